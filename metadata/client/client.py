"""The per-process client of a cluster: the source, the sink, the public API and the command line work with it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from metadata.cluster.cluster import Cluster, open_cluster, resolve
from metadata.cluster.figures import interval_s
from metadata.common.errors import SweepIncomplete
from metadata.instream.model import transaction_buffer
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.topics.topics import Topics
from metadata.write.background import Background, Job

if TYPE_CHECKING:
    from metadata.client.reporter import Reporter
    from metadata.instream.client import InStream
    from metadata.maintenance.autoscaling import Autoscaler
    from metadata.maintenance.sweeper import Sweeper, SweepReport
    from metadata.topics.subscriptions import Subscriptions
    from metadata.write.coordinator import Coordinator


@dataclass
class Client:
    """The objects through which one process uses a cluster. They share one open cluster and one cache of the cluster's log.

    The modules of the properties are imported late, because a Spark process that plans a read needs none of them.
    """

    cluster: Cluster
    buffer: TransactionBuffer
    topics: Topics
    background: Callable[[Job], None]
    """Gets the work that follows a commit."""
    finish: Callable[[], None]
    """Waits until the background work of the commits is done."""
    reports: Reporter | None = None
    """Writes the figures of this process into the store. None: nothing is counted yet, or this client writes no reports."""

    @cached_property
    def sweeper(self) -> Sweeper:
        from metadata.maintenance.sweeper import Sweeper

        return Sweeper(self.cluster, self.buffer)

    @cached_property
    def coordinator(self) -> Coordinator:
        """The coordinator of transactions of topic:// topics. The sweeper is made with it, although only the background work of
        commits uses it. If the background thread imported the sweeper's modules, a child forked meanwhile would find them half
        imported.
        """
        from metadata.write.coordinator import Coordinator

        _ = self.sweeper
        return Coordinator(self.cluster, self.background, self.buffer.log)

    @cached_property
    def subscriptions(self) -> Subscriptions:
        from metadata.topics.subscriptions import Subscriptions

        return Subscriptions(self.cluster, self.coordinator.acks)

    @cached_property
    def autoscaler(self) -> Autoscaler:
        """The component that splits and merges segments by policy if this process is the leading sweeper."""
        from metadata.maintenance.autoscaling import Autoscaler

        return Autoscaler(self.cluster, self.buffer)

    @cached_property
    def instream(self) -> InStream:
        """The client of the cluster's persistent:// topics."""
        from metadata.instream.client import instream

        # A job asks for the coordinator, because a process that only reads makes none.
        return instream(self.cluster, lambda job: self.coordinator.background(job))

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

    def report(self) -> None:
        """Let the figures of this process be reported from now on. Idempotent. The module of the reports is imported at the first
        change of the figures, because a process that plans a batch read needs none.
        """
        figures, every_s = self.cluster.figures, interval_s()
        if not every_s:
            figures.changed = None
            return
        from metadata.client.reporter import Reporter

        with _lock:
            if self.reports is None:
                self.reports = Reporter(self.cluster, every_s)
        figures.changed = self.reports.begin
        figures.changed()

    def close(self) -> None:
        self.finish()
        if self.reports is not None:
            self.reports.close()
        self.cluster.close()


def client(cluster: Cluster, background: Callable[[Job], None] | None = None) -> Client:
    """Return a new client. `background` receives the work that follows a commit and for which no caller waits. If it is None, the
    client starts a thread for this work, and the thread also does a share of the sweeping. Such a client also reports its figures.

    Raises ConfigurationError, and closes the cluster, if the environment has a bad time between two reports.
    """
    buffer = transaction_buffer(cluster)
    own = Background(lambda: made.sweeper.share())
    made = Client(cluster, buffer, Topics(cluster), background or own, own.close)
    if background is None and not cluster.store.read_only:
        try:
            interval_s()  # a bad value is told now, not in the middle of a commit
        except BaseException:
            cluster.close()
            raise
        cluster.figures.changed = made.report
    return made


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
