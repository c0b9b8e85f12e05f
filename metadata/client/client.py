"""The per-process client of a cluster: the source, the sink, the public API and the command line work with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from metadata.cluster.cluster import Cluster, open_cluster, resolve
from metadata.common.errors import SweepIncomplete
from metadata.instream.model import transaction_buffer
from metadata.maintenance.sweeper import Sweeper, SweepReport
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.topics.subscriptions import Subscriptions
from metadata.topics.topics import Topics
from metadata.write.background import Background, Job
from metadata.write.coordinator import Coordinator

if TYPE_CHECKING:
    from metadata.instream.client import InStream
    from metadata.maintenance.autoscaling import Autoscaler


@dataclass
class Client:
    """The objects through which one process uses a cluster. They share one open cluster and one cache of the cluster's log."""

    cluster: Cluster
    buffer: TransactionBuffer
    topics: Topics
    sweeper: Sweeper
    coordinator: Coordinator
    finish: Callable[[], None]
    """Waits until the background work of the commits is done."""

    @cached_property
    def subscriptions(self) -> Subscriptions:
        return Subscriptions(self.cluster, self.coordinator.acks)

    @cached_property
    def autoscaler(self) -> Autoscaler:
        """The component that splits and merges segments by policy if this process is the leading sweeper."""
        from metadata.maintenance.autoscaling import (
            Autoscaler,  # imported late, because otherwise every Spark process that plans a read would import it
        )

        return Autoscaler(self.cluster, self.buffer)

    @cached_property
    def instream(self) -> InStream:
        """The client of the cluster's persistent:// topics."""
        from metadata.instream.client import instream  # lazy: processes that use topic:// alone do not need it

        return instream(self.cluster, self.coordinator.background)

    def sweep(self) -> SweepReport:
        """Sweep the topics of both models once, without the orphan sweep.

        In the report, a transaction of persistent:// topics counts as timed out if the sweep aborted it past its deadline, and as
        settled if the sweep finished it. Raises SweepIncomplete if some segments or topics could not be swept. All others were
        swept.
        """
        more = self.instream.sweeper.sweep()
        try:
            report = self.sweeper.sweep()
        except SweepIncomplete as error:
            more.complain(error)
            raise
        report.timed_out += more.timed_out
        report.settled += more.finished
        more.complain()
        return report

    def close(self) -> None:
        self.finish()
        self.cluster.close()


def client(cluster: Cluster, background: Callable[[Job], None] | None = None) -> Client:
    """Return a new client. `background` receives the work that follows a commit and for which no caller waits. If it is None, the
    client starts a thread for this work, and the thread also does a share of the sweeping.
    """
    buffer = transaction_buffer(cluster)
    sweeper = Sweeper(cluster, buffer)
    own = Background(sweeper.share)
    coordinator = Coordinator(cluster, background or own, buffer.log)
    return Client(cluster, buffer, Topics(cluster), sweeper, coordinator, own.close)


@dataclass
class _Place:
    """The client of one process and service URL, and a lock for this URL alone. So a cluster that does not answer blocks only
    callers with the same URL.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    client: Client | None = None


_shared: dict[tuple[int, str], _Place] = {}
_lock = threading.Lock()


def shared_client(service_url: str | None) -> Client:
    """Return this process's client of a service URL. Spark creates many readers and writers in one process; they share the client.

    The client is kept until the process ends. A forked child opens its own.
    """
    key = (os.getpid(), resolve(service_url).text)
    with _lock:
        place = _shared.setdefault(key, _Place())
    with place.lock:
        if place.client is None:
            place.client = client(open_cluster(key[1]))
        return place.client
