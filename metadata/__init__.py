"""The transaction protocol and its state: records, rules, the store they live in, and who moves them.

Reading order: `names`, `records`, `paths` (what is kept), `transitions` (the rules, pure), `store` (where), `cluster`
(which one), then `coordinator`, `transaction_buffer` and `sweeper`, which carry the rules out.
"""
