"""The cluster suite: a seeded plan of faults strikes real ZooKeeper servers and a real Spark cluster, in which the wheel is
installed.

The command is `python -m conformance --cluster --faults N --seed S`. A streaming query and a batch job write, while another query
and batch reads read. Processes are killed and stopped, connections are cut, sessions expire, the disk fills, clocks jump. In the
end every row is counted, and `conformance.history` judges the recorded history.
"""
