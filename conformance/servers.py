"""Real servers for tests and development, from the jars that come with pyspark: no download, no container.

    with ZooKeeperServer(folder) as server:                 # one server
        store = open_store(f"zk://{server.hosts}/test")
    with ZooKeeperEnsemble(folder) as ensemble:             # three with a quorum; `ensemble.leader().kill()`
        store = open_store(f"zk://{ensemble.hosts}/test")
    with SparkCluster(folder, python=python) as cluster:    # master and two workers; `spark-submit`
        job = cluster.submit(script, [], folder / "job.log")

The servers listen on 127.0.0.1 only, keep their files in the given folder, and end with the block. If the process that started them
is killed, they are killed, too. `conformance.fixtures` provides them as pytest fixtures.
"""

from conformance.ports import LOCAL, free_ports
from conformance.spark_cluster import Executor, SparkCluster
from conformance.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer, zookeeper_classpath

__all__ = ["LOCAL", "Executor", "SparkCluster", "ZooKeeperEnsemble", "ZooKeeperServer", "free_ports", "zookeeper_classpath"]
