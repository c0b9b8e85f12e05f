"""Random calls of the whole public API, compared with a model in plain Python (docs/conformance.md, The public surface).

    python -m conformance.surface --steps 100000 --seed 0 --store sqlite

A run is a short list of operations on a new cluster in a real store. An operation is data: its name and random numbers, which
select among the objects that exist when it runs. So the others stay meaningful when some operations are dropped, and a failing list
can be shrunk. No JVM: `spark.py` calls readers and writers in the order in which Spark calls them.
"""
