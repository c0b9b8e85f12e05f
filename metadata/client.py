"""One process's hands on a cluster: everything that the source, the sink, the face and the command line work with."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from metadata.aftermath import Aftermath
from metadata.cluster import Cluster, open_cluster, resolve
from metadata.coordinator import Coordinator
from metadata.sweeper import Sweeper
from metadata.topics import Topics
from metadata.transaction_buffer import TransactionBuffer


@dataclass
class Client:
    """The parts that share one cluster and one memory of its log."""

    cluster: Cluster
    buffer: TransactionBuffer
    topics: Topics
    sweeper: Sweeper
    coordinator: Coordinator
    finish: Callable[[], None]
    """Waits for what commits left to the background."""

    def close(self) -> None:
        self.finish()
        self.cluster.close()


def client(cluster: Cluster) -> Client:
    buffer = TransactionBuffer(cluster)
    sweeper = Sweeper(cluster, buffer)
    aftermath = Aftermath(sweeper.share)
    coordinator = Coordinator(cluster, aftermath, buffer.log)
    return Client(cluster, buffer, Topics(cluster), sweeper, coordinator, aftermath.close)


_shared: dict[tuple[int, str], Client] = {}
_lock = threading.Lock()


def shared_client(service_url: str | None) -> Client:
    """The client of this process by service URL: Spark makes readers and writers by the dozen in a process that stays warm.

    Kept until the process ends; a forked child opens its own.
    """
    key = (os.getpid(), resolve(service_url).text)
    with _lock:
        if key not in _shared:
            _shared[key] = client(open_cluster(key[1]))
        return _shared[key]
