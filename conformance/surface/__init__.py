"""Everything that a user calls, driven at random against a model in plain Python (docs/conformance.md, The public surface).

    python -m conformance.surface --steps 100000 --seed 0 --store sqlite

A run is a short list of operations on a new cluster in a real store. Operations are data: each names what it does and holds random
numbers, which pick among what there is when it runs. So dropping some operations leaves the others meaningful, and a failing list
can be shrunk. No JVM: `spark.py` calls readers and writers in the order in which Spark calls them.
"""
