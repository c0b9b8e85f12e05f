"""Real processes that are really broken, on real stores, a real Spark and a real ensemble, and the check of what they left.

Each way to do that is a scenario (`scenario`): set up, start, faults, check, figures. `faults` has the words of what is done to
them. `python -m conformance.chaos` (`make chaos`) runs all, `python -m conformance --cluster` the one of `cluster`; the tests run
a short form. No product code knows of it: processes are killed from outside (`forks`), or stop themselves between two calls to
their metadata store (`crashing`). What clients were told and readers got goes to the history checker (`history`).
"""
