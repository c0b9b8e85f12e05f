"""Reading one log: the cluster's (`ClusterLog`), or that of one persistent topic (`metadata.instream.topic_logs`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from metadata.cluster.cluster import Cluster
from metadata.common.errors import DataLoss
from metadata.read.reading import Reading
from metadata.read.reading import Selection as LogSelection
from metadata.read.selection import LOG
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records import paths
from metadata.records.paths import Prefix
from metadata.rules.timestamps import OpenTransactions
from metadata.store.contract import View


class LogReader(ABC):
    """What a read asks of one log."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the log in an offset."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """What is read of it: topics and segments by full name; none of a pattern."""

    @property
    @abstractmethod
    def cluster(self) -> Cluster: ...

    @abstractmethod
    def now(self, *, uncommitted: bool = False) -> Reading:
        """One decision; `uncommitted`: with all rows up to the end of the log. Raises TopicNotFound."""

    @abstractmethod
    def to(self, end: int) -> Reading:
        """A decision whose cut reaches a GIVEN end. Raises OffsetOutOfRange rather than fewer rows, TopicNotFound."""

    @abstractmethod
    def open_transactions(self) -> OpenTransactions:
        """The transactions that may still append to the log. What is read after this call has all that the others appended."""

    @abstractmethod
    def is_newest(self, view: View, reading: Reading) -> bool:
        """Whether a reading made now would show nothing else."""

    @abstractmethod
    def watched(self, reading: Reading) -> Mapping[str, Prefix]:
        """By name, what wakes a follower who has this reading."""


How = Callable[[LogReader], Reading]


def rows_gone(topic: str, successor: str | None, after: int) -> DataLoss:
    """The error for rows after a number that went with their topic; `successor`: what it was migrated to."""
    why = "was deleted" if successor is None else f"was migrated to {successor}, which was deleted or keeps them no longer"
    return DataLoss(
        f"The topic {topic} {why}: rows of it after {after}, which this read may need, are gone.",
        advice="Set failOnDataLoss=false to go on without these rows, or use a new checkpoint.",
    )


def now(log: LogReader) -> Reading:
    """What is decided now."""
    return log.now()


@dataclass(frozen=True)
class ClusterLog(LogReader):
    """The log that orders the rows of all topic:// topics, read for some of them."""

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
        """Nothing was registered since, and nothing that could have been decided since was open.

        A layout changes only after its seal is in the log, and a new topic, schema or segment has no row before a registration that
        came after it.
        """
        if reading.undecided:
            return False
        numbers = view.keys(paths.LOG.range())
        return reading.end_of_log == (paths.sequence_number(numbers[-1]) if numbers else 0)

    def watched(self, reading: Reading) -> Mapping[str, Prefix]:
        """Registrations, and the events of this read's segments, which follow a decision. A sealed segment in which nothing is open
        has none to come.
        """
        deciding = [s.name for s in reading.segments if s.sealed_at is None or reading.undecided]
        return {paths.LOG.path: paths.LOG} | {name: paths.segment_events(name) for name in deciding}
