"""The sweep of the marker-based model. It aborts expired transactions, finishes decided transactions, takes snapshots, compacts and
trims (docs/in_stream.md, Sweeping).

Any number of processes may sweep at once. If an entry that a sweep appends is void, or if a CAS of the sweep fails, another process
has done the same step.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from metadata.cluster.cluster import Cluster
from metadata.common.errors import (
    BadVersion,
    SubscriptionNotFound,
    SweepIncomplete,
    TransactionUnfinished,
    TxnSegmentError,
    UnknownOutcome,
)
from metadata.common.failures import RACES, STORE, contained, described
from metadata.instream import pending_ack
from metadata.instream.ack_records import SubscriptionRecord
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.coordinator import InStreamCoordinator
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.remains import Remains
from metadata.instream.sealing import Sealing
from metadata.instream.topics import PersistentTopic
from metadata.instream.trimming import InStreamTrimmer
from metadata.store.contract import View, decide

log = logging.getLogger("txnsegment.instream")


@dataclass
class InStreamReport:
    """The result of one sweep. `timed_out`, `finished`: how many transactions it aborted past their deadline, and how many decided
    ones it finished. `snapshots`, `trimmed`: of how many topics it took a snapshot, and how many it trimmed. `compacted`: how many
    entries it deleted from the transaction log and the pending-ack logs. `left`: how many entries it deleted from the logs of
    topics. `stalled`: the errors of decided transactions that cannot be finished. `failed`: the errors of topics and steps that
    could not be swept.
    """

    timed_out: int = 0
    finished: int = 0
    snapshots: int = 0
    compacted: int = 0
    trimmed: int = 0
    left: int = 0
    stalled: list[TransactionUnfinished] = field(default_factory=list)
    failed: dict[str, Exception] = field(default_factory=dict)

    def complain(self, beside: SweepIncomplete | None = None) -> None:
        """Raise SweepIncomplete if `failed` has an error of a topic or step. `beside`: the error from the sweep of `topic://`
        topics; its message is added to the advice. Stalled transactions raise no error, because no action can finish them. Each
        sweep logs them.
        """
        if self.failed:
            name, error = next(iter(self.failed.items()))
            why, advice = described(error), "Its traceback is in the log."
            if isinstance(error, TxnSegmentError):
                why, advice = error.message, error.advice
            said = f"{len(self.failed)} persistent topics could not be swept, such as {name}: {why}"
            more, causes = ("", ()) if beside is None else (f" {beside}", beside.causes)
            group = ExceptionGroup("what cannot be swept", [*self.failed.values(), *causes])
            raise SweepIncomplete(said, advice=f"{advice}{more}".strip()) from group


@dataclass
class InStreamSweeper:
    """Sweeps a cluster's persistent topics."""

    cluster: Cluster
    buffer: InStreamBuffer
    coordinator: InStreamCoordinator
    trimmer: InStreamTrimmer = field(init=False)
    remains: Remains = field(init=False)
    sealing: Sealing = field(init=False)

    def __post_init__(self) -> None:
        self.trimmer = InStreamTrimmer(self.cluster, self.buffer, self.coordinator.topics, self.acks)
        self.remains = Remains(self.cluster, self.buffer, self.coordinator.topics, self.acks, self.trimmer)
        self.sealing = Sealing(self.cluster, self.buffer, self.coordinator.topics)

    @property
    def acks(self) -> InStreamAcks:
        return self.coordinator.acks

    def sweep(self) -> InStreamReport:
        """Run all steps once. If a topic is damaged, the report has its error. The other topics are still swept. Raises StoreError,
        in which case the remaining steps do not run.
        """
        report = InStreamReport()
        ending = self.coordinator.ending
        with contained("sweep", "expired transactions", report.failed, passing=STORE):
            report.timed_out = self.timeouts()
        with contained("sweep", "decided transactions", report.failed, passing=STORE):
            report.finished, report.stalled = ending.finish_all()
        for topic in self.remains.due(self.trimmer.every()):
            with contained("sweep", str(topic.name), report.failed, races=RACES):
                self._sweep_topic(topic, report)
        with contained("sweep", "the transaction log", report.failed, passing=STORE):
            report.compacted += self.coordinator.log.compact()
        report.compacted += self._compact_acks(report)
        for stalled in report.stalled:
            log.warning("%s", stalled)
        return report

    def timeouts(self) -> int:
        """Abort the transactions that are OPEN past their deadline. Return how many were found."""
        return self.coordinator.ending.timeouts()

    def named_files(self, view: View) -> Iterator[str]:
        """Yield, for the orphan sweep, the paths of the files that records of the marker-based model name. The caller has listed
        the files before this call.
        """
        path = self.coordinator.log.kept_in(view)
        if path is not None:
            yield path
        yield from self.buffer.named_files(view)

    def _sweep_topic(self, topic: PersistentTopic, report: InStreamReport) -> None:
        if topic.layout.bare and self.remains.is_bare(topic):
            return
        report.left += self.trimmer.leave(topic.name)
        if self.remains.collect(topic):
            return
        if topic.layout.sealing:
            self.sealing.finish(topic.name)
            if self.coordinator.topics.find(topic.name) is None:
                return
        if topic.layout.contains_txn is None:
            self.buffer.confirm(topic.name)
        if self.buffer.state(topic.name).ongoing:
            self.coordinator.ending.resolve_topic(topic.name)
        before = topic.layout.trimmed_log
        report.snapshots += self.buffer.snapshot(topic.name)
        report.trimmed += self.trimmer.trim(topic.name).to > before

    def _compact_acks(self, report: InStreamReport) -> int:
        gone = 0
        for where, record in decide(self.cluster.store, pending_ack.records):
            with contained("sweep", f"{where[1]!r} of {where[0]}", report.failed, passing=STORE):
                found = SubscriptionRecord.of(record)
                try:
                    gone += self.acks.clear(where, found, record)
                    if found.deleted_ms is None:
                        gone += self.acks.compact(where)
                except (BadVersion, UnknownOutcome, SubscriptionNotFound) as error:
                    log.info("put off to the next sweep: %s of %s: %s", where[1], where[0], error)
        return gone
