"""What anyone can run against a store, the protocol's code or a whole deployment (docs/conformance.md); nobody above imports it.

command, report    `python -m conformance`: one command for all suites, one report
store              the contract of the metadata store, and deliberately faulty stores (`store.faults`)
simulator          the real protocol code under a scheduler that owns every interleaving; exhaustive search
scripts            golden scripts: transactions as text with exact answers
history            recorded histories (`history.format`, `history.files`) and who judges them; shares no code with the rest
mutants            faults planted in the real code, each of which one of these must catch
scenarios          real processes that are killed; a real ZooKeeper ensemble and Spark cluster under faults (`chaos` runs them)
servers, fixtures  real servers for the tests of others (docs/servers.md); `proxy`: a connection that fails on command
"""
