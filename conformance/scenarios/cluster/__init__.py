"""The cluster suite: real ZooKeeper servers, a real Spark cluster with the wheel installed, and faults from a seeded plan.

`python -m conformance --cluster --faults N --seed S`. A streaming query and a batch job write while another query and batch reads
look on; processes are killed and stopped, connections cut, sessions expired, disks filled, clocks moved. In the end every row is
counted (`checks`), and the recorded history can be judged by `conformance.history`.
"""
