"""Random calls of the whole public API, compared with a model in plain Python (docs/conformance.md, The public surface).

    python -m conformance.surface --steps 100000 --seed 0 --store sqlite

A run is a short list of operations on a new cluster in a real store. An operation is data: its name and random numbers. The numbers
select among the objects that exist when the operation runs. So when a failing list is shrunk, an operation can still run although
earlier operations were dropped. A run needs no JVM: `conformance.harness.spark_driver` calls readers and writers in the order in
which Spark calls them.
"""
