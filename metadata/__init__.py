"""The transaction protocol: records, rules, metadata stores, and the code that applies the rules.

Reading order: `records.names`, `records.records` and `records.paths` (what is stored), `rules.transitions` (the pure rules),
`store.contract` (the metadata store), then `write.coordinator`, `read.transaction_buffer` and `maintenance.sweeper`, which apply
the rules. docs/architecture.md describes each folder of this package. In docstrings "protocol.md" means docs/protocol.md.
"""
