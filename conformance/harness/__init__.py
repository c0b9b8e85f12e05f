"""Tools that several suites share: a store with injected faults, and a Spark driver without a JVM."""
