"""Scenarios: real processes, stores, Spark and ZooKeeper ensembles that meet faults while they work, and the check of what they
leave.

Each scenario has the phases of `scenario`: setup, start, faults, check, figures. `faults` names the kinds of fault. `python -m
conformance.chaos` (`make chaos`) runs all scenarios, `python -m conformance --cluster` runs the one in `cluster`, and the tests run
short forms. No product code knows about scenarios: processes are killed from outside (`forks`) or stop themselves between two calls
to their metadata store (`crashing`). The replies that clients got and the rows that readers got go to the history checker
(`history`).
"""
