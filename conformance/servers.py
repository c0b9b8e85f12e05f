"""Real servers for tests and development, without a container. All but Pulsar need no download: their jars come with pyspark.

    with ZooKeeperServer(folder) as server:                 # one server
        store = open_store(f"zk://{server.hosts}/test")
    with ZooKeeperEnsemble(folder) as ensemble:             # three with a quorum; `ensemble.leader().kill()`
        store = open_store(f"zk://{ensemble.hosts}/test")
    with SparkCluster(folder, python=python) as cluster:    # master and two workers; `spark-submit`
        job = cluster.submit(script, [], folder / "job.log")
    with PulsarBroker(folder) as broker:                    # Pulsar 5, whose jars Maven downloads
        topic = broker.create("orders", 4)

The servers listen on 127.0.0.1 only, keep their files in the given folder, and end with the block. If the process that started them
is killed, they are killed, too. `conformance.fixtures` provides them as pytest fixtures.
"""

from conformance.ports import LOCAL, free_ports
from conformance.pulsar_server import PulsarBroker
from conformance.spark_cluster import Executor, SparkCluster
from conformance.zookeeper_server import ZooKeeperEnsemble, ZooKeeperServer, zookeeper_classpath

__all__ = [
    "LOCAL",
    "Executor",
    "PulsarBroker",
    "SparkCluster",
    "ZooKeeperEnsemble",
    "ZooKeeperServer",
    "free_ports",
    "zookeeper_classpath",
]
