"""Scenarios: faults strike real processes, stores, Spark and ZooKeeper servers while they work. Then the results are checked.

Each scenario has the phases of `scenario`: setup, start, faults, check, figures. `faults` names the kinds of fault. `make chaos`
(`python -m conformance.scenarios`) runs all scenarios, and `python -m conformance --cluster` runs the one in `cluster`. The tests
run short forms. No product code knows about scenarios. Processes are killed from outside (`forks`), or end between two calls to
their metadata store (`crashing`). All replies to clients and all rows of readers go to the history checker (`history`).
"""
