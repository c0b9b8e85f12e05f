"""Scenarios. Faults strike real processes, stores, Spark and ZooKeeper servers while these work. Then the results are checked.

The module `scenario` defines the phases of every scenario: setup, start, faults, check, figures. The module `faults` names the
kinds of fault. `make chaos` (`python -m conformance.scenarios`) runs all scenarios, and `python -m conformance --cluster` runs only
the scenario in `cluster`. The tests run the same scenarios with fewer faults and less work. No product code knows about scenarios.
A process is killed from outside (`forks`), or it kills itself before or after a call to its metadata store (`crashing`). The
history checker (`conformance.history`) judges all replies to clients and all rows of readers.
"""
