"""The cluster suite. A seeded plan of faults strikes real ZooKeeper servers, and a real Spark cluster that runs the wheel.

The command is `python -m conformance --cluster --faults N --seed S`. A streaming query and a batch job write rows. A reader gets
them by another streaming query and by batch reads. Processes are killed and stopped, connections are cut, sessions expire, the disk
fills, clocks jump. At the end a last batch read must return every row once, and `conformance.history` judges the recorded history.
"""
