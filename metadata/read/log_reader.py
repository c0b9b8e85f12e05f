"""Readers of one log. `ClusterLog` reads the cluster's log. `metadata.instream.topic_logs` reads a persistent topic's log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metadata.cluster.cluster import Cluster
from metadata.common.errors import DataLoss
from metadata.read.reading import LogSelection, Reading
from metadata.read.selection import LOG
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records import paths
from metadata.records.paths import Prefix
from metadata.rules.timestamps import OpenTransactions
from metadata.store.contract import View


class LogReader(ABC):
    """A reader of one log."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name that the log has in an offset."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The topics and segments that are read, by full name; empty for a pattern."""

    @property
    @abstractmethod
    def cluster(self) -> Cluster: ...

    @abstractmethod
    def now(self, *, uncommitted: bool = False) -> Reading:
        """Return a reading up to the current cut, or with `uncommitted` up to the end of the log. Raises TopicNotFound."""

    @abstractmethod
    def to(self, end: int) -> Reading:
        """Return a reading whose cut is at or above `end`. Such a reading has every row up to `end`. Raises TopicNotFound. Raises
        OffsetOutOfRange if the log ends before `end`, if a restore lost `end`, or if something at or below `end` stays undecided.
        """

    @abstractmethod
    def open_transactions(self) -> OpenTransactions:
        """Return the transactions that may still append to the log. A read of the log after this call sees every append of all
        other transactions that began before this call.
        """

    @abstractmethod
    def is_newest(self, view: View, reading: Reading) -> bool:
        """Return whether a new reading would have the same content as this reading."""

    @abstractmethod
    def watched(self, reading: Reading) -> Mapping[str, Prefix]:
        """Return the sequences of records whose changes wake a stream that has this reading and waits for a newer one. Each key of
        the mapping identifies one sequence.
        """


How = Callable[[LogReader], Reading]


def rows_gone(topic: str, successor: str | None, after: int) -> DataLoss:
    """Return the error for a topic whose rows after a number are gone. `successor`: the topic that it was migrated to, if any."""
    why = "was deleted" if successor is None else f"was migrated to {successor}, which was deleted or keeps them no longer"
    return DataLoss(
        f"The topic {topic} {why}: rows of it after {after}, which this read may need, are gone.",
        advice="Set failOnDataLoss=false to go on without these rows, or use a new checkpoint.",
    )


def now(log: LogReader) -> Reading:
    """Return a reading of the log up to its current cut."""
    return log.now()


@dataclass(frozen=True)
class ClusterLog(LogReader):
    """A reader of the cluster's log for some topics. The log orders the rows of all topic:// topics."""

    buffer: TransactionBuffer
    selection: LogSelection

    @property
    def name(self) -> str:
        return LOG

    @property
    def names(self) -> tuple[str, ...]:
        return self.selection.names

    @property
    def cluster(self) -> Cluster:
        return self.buffer.cluster

    def now(self, *, uncommitted: bool = False) -> Reading:
        return self.buffer.read(self.selection, uncommitted=uncommitted)

    def to(self, end: int) -> Reading:
        return self.buffer.read_to(self.selection, end)

    def open_transactions(self) -> OpenTransactions:
        return self.buffer.open_transactions()

    def is_newest(self, view: View, reading: Reading) -> bool:
        """Return whether no rows of this read were registered and nothing was sealed since the reading, and the reading had no
        undecided registration.

        This method need not read the layouts. A split, merge or deletion appends a seal to the log before it changes the layout. A
        new topic, schema or segment gets its first row by a later registration. A trim is not in the log, so this method does not
        notice it.
        """
        if reading.undecided:
            return False
        listing = self.buffer.log.list(view)
        if listing.end == reading.end_of_log:
            return True
        new = [entry for entry in listing.entries if entry.number > reading.end_of_log]
        if len(new) != listing.end - reading.end_of_log:
            return False  # some registrations are folded already, so it is not known whose rows they had
        return not any(entry.is_seal or any(map(self.selection.covers, entry.registration.segments)) for entry in new)

    def watched(self, reading: Reading) -> Mapping[str, Prefix]:
        """Return the sequence of the log, and for each segment of the reading the sequence of its events. After a transaction is
        decided, an event is written for each of its segments. If the reading has no undecided registration, sealed segments are
        left out, because a sealed segment then gets no further events.
        """
        deciding = [s.name for s in reading.segments if s.sealed_at is None or reading.undecided]
        return {paths.LOG.path: paths.LOG} | {name: paths.segment_events(name) for name in deciding}
