"""One process's hands on a cluster: everything that the source, the sink, the face and the command line work with."""

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
from metadata.write.aftermath import Aftermath, Job
from metadata.write.coordinator import Coordinator

if TYPE_CHECKING:
    from metadata.instream.client import InStream
    from metadata.maintenance.autoscaling import Autoscaler


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

    @cached_property
    def subscriptions(self) -> Subscriptions:
        return Subscriptions(self.cluster, self.coordinator.acks)

    @cached_property
    def autoscaler(self) -> Autoscaler:
        """This process's candidate for splitting and merging topics by policy."""
        from metadata.maintenance.autoscaling import (
            Autoscaler,  # here: each of Spark's processes that plans a read would import it, too
        )

        return Autoscaler(self.cluster, self.buffer)

    @cached_property
    def instream(self) -> InStream:
        """The persistent:// topics of the cluster."""
        from metadata.instream.client import instream  # here: who reads and writes topic:// alone does without

        return instream(self.cluster, self.coordinator.aftermath)

    def sweep(self) -> SweepReport:
        """Everything but the orphan sweep, once, of both kinds of topics. Transactions of persistent:// that were timed out or
        finished are counted as timed out or settled. Raises SweepIncomplete (all else was done) if segments or topics could not be
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


def client(cluster: Cluster, aftermath: Callable[[Job], None] | None = None) -> Client:
    """The client of one process. `aftermath` is handed what commits do not wait for; None: a thread of the client's own, which also
    does a share of the sweeping.
    """
    buffer = transaction_buffer(cluster)
    sweeper = Sweeper(cluster, buffer)
    own = Aftermath(sweeper.share)
    coordinator = Coordinator(cluster, aftermath or own, buffer.log)
    return Client(cluster, buffer, Topics(cluster), sweeper, coordinator, own.close)


@dataclass
class _Place:
    """One key's client, opened under a lock of its own: a cluster that does not answer holds up nobody else."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    client: Client | None = None


_shared: dict[tuple[int, str], _Place] = {}
_lock = threading.Lock()


def shared_client(service_url: str | None) -> Client:
    """The client of this process by service URL: Spark makes readers and writers by the dozen in a process that stays warm.

    Kept until the process ends; a forked child opens its own.
    """
    key = (os.getpid(), resolve(service_url).text)
    with _lock:
        place = _shared.setdefault(key, _Place())
    with place.lock:
        if place.client is None:
            place.client = client(open_cluster(key[1]))
        return place.client
