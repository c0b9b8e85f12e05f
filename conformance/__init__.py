"""Test suites for a store, the protocol's code and a whole deployment (docs/conformance.md). No product package imports them.

command, report    `python -m conformance`: one command for all suites, one report
store              the contract of the metadata store, and deliberately faulty stores (`store.faults`)
simulator          the real protocol code under a scheduler that controls every interleaving; exhaustive search
scripts            golden scripts: transactions as text with exact answers
history            recorded histories (`history.format`, `history.files`) and their checker; shares no code with the rest
mutants            faults planted in the real code; a suite must detect each of them
scenarios          real processes that are killed; a real ZooKeeper ensemble and Spark cluster under faults (`chaos` runs them)
servers, fixtures  real servers for the tests of other projects (docs/servers.md)
proxy              a TCP proxy that fails on command
"""
