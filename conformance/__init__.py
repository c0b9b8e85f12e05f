"""Test suites for a store, the protocol's code and a whole deployment (docs/conformance.md). No product package imports them.

command, report    `python -m conformance`: one command and one report for the suites of store, simulator, scripts, histories,
                   mutants and the cluster. `scenarios`, `power` and `surface` have commands of their own
store              the contract of the metadata store, and deliberately faulty stores (`store.faults`)
simulator          the real protocol code under a scheduler that controls every interleaving; an exhaustive search within bounds
scripts            golden scripts: transactions as text with exact answers
history            recorded histories (`history.format`, `history.files`) and their checker; shares no code with the rest
mutants            faults planted in the real code; a suite must detect each of them
scenarios          real processes that are killed; a real ZooKeeper ensemble and Spark cluster under faults (`make chaos`)
pulsar_chaos       kills of drivers and of a real Pulsar broker, and splits and merges of segments, while streams run
power              all code that writes files, on a simulated disk; the power fails at every crash point
surface            random calls of the whole public API, compared with a model in plain Python
harness            what several suites share: a store with injected faults, and a Spark driver without a JVM
servers, fixtures  real servers for the tests of other projects (docs/servers.md)
proxy              a TCP proxy that fails on command
"""
