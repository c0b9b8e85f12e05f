"""Tools that several suites share: a store with injected faults, a counter of its round trips, a Spark driver without a JVM, and a
faster start of real Spark processes.
"""
