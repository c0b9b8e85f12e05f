"""Tools that several suites share: a metadata store with injected faults, a counter of round trips to a store, a Spark driver
without a JVM, and a faster start of real Spark processes.
"""
