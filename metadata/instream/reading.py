"""A consistent read of one persistent topic (docs/in_stream.md, Reading)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ledgers.model import Ledger
from metadata.cluster.cluster import Cluster
from metadata.instream.rules import TopicState, visible
from metadata.instream.topics import PersistentTopic
from metadata.records.names import PersistentName
from metadata.records.persistent_records import EntryKind, LogEntry
from metadata.rules.timestamps import Above
from metadata.rules.transitions import Weight

GROUP = 1_000
"""Maximum number of entries that one request to the store reads."""


class Entries(Protocol):
    """The methods of the buffer (`metadata.instream.buffer`) that a reading uses. Log entries, which they return, never change."""

    @property
    def cluster(self) -> Cluster: ...

    def ledger(self, name: PersistentName, number: int, entry: LogEntry) -> Ledger: ...

    def entries(self, name: PersistentName, numbers: Sequence[int]) -> Iterable[tuple[int, LogEntry]]: ...


@dataclass(frozen=True)
class TopicReading:
    """One consistent read of a persistent topic. It never changes, except that rows may be trimmed.

    `cut`: the reading has no rows above this number. Everything at or below it is decided, unless the reading is `uncommitted`.
    `end`: the number of the last entry of the log. Both numbers can be compared with ledger ids, because the ledger of a log entry
    has the entry's number as its id.
    """

    topic: PersistentTopic
    cut: int
    end: int
    now_ms: int
    uncommitted: bool
    _buffer: Entries
    _state: TopicState
    _numbers: Sequence[int]

    @property
    def cluster(self) -> Cluster:
        return self._buffer.cluster

    @property
    def name(self) -> str:
        """The topic's full name. It takes the place of a segment's name."""
        return str(self.topic.name)

    @property
    def sealed_at(self) -> int | None:
        """The number of the SEAL that counts; later entries are void."""
        return self._state.sealed_at

    @property
    def trimmed_to(self) -> int:
        """The number up to which all entries are trimmed; 0 if none are."""
        return self.topic.layout.trimmed_log

    @property
    def lost_to(self) -> int:
        """The number of the last trimmed entry that had visible rows (0: none). A reader that has read up to this number has lost
        no row, even if markers above the number are trimmed, too.
        """
        last = self.topic.layout.trimmed_to
        return 0 if last is None else last.ledger_id

    @property
    def ongoing(self) -> dict[str, int]:
        """The transactions that are open in the topic, each with the number of its first entry."""
        return {txn: first for txn, (first, _) in self._state.ongoing.items()}

    def ledgers(self, after: int = 0, through: int | None = None) -> Iterator[Ledger]:
        """Yield the visible ledgers with after < id <= through (and <= cut), ascending and lazily.

        Raises CorruptRecord, StorageError. Raises DataLoss if a needed entry was trimmed and has left the log since this reading.
        """
        for number, entry in self._entries(after, through):
            yield self._buffer.ledger(self.topic.name, number, entry)

    def weights(self, after: int = 0, through: int | None = None) -> Iterator[Weight]:
        """Yield the number, the rows and the bytes of each visible ledger, ascending."""
        for number, entry in self._entries(after, through):
            assert entry.write is not None
            yield Weight(number, entry.write.rows, entry.write.bytes)

    def published(self, after: int = 0, through: int | None = None) -> Iterator[tuple[int, int]]:
        """Yield (number, publish time in ms) of each visible ledger, ascending. All trimmed rows together count as one ledger with
        the number `lost_to`.
        """
        if after < self.lost_to <= (self.cut if through is None else through):
            yield self.lost_to, self.topic.layout.trimmed_ms or 0
        for number, entry in self._entries(after, through):
            yield number, entry.publish_ms

    def above_cut(self) -> Iterator[Above]:
        """Yield the DATA entries above the cut that are visible or undecided, ascending, up to the end of the log."""
        beyond = list(self._numbers[bisect_right(self._numbers, self.cut) :])
        for i in range(0, len(beyond), GROUP):
            for number, entry in self._buffer.entries(self.topic.name, beyond[i : i + GROUP]):
                if entry.kind is EntryKind.DATA and visible(self._state, number, entry.txn):
                    yield Above(number, entry.publish_ms, entry.txn not in self._state.ongoing)

    def last_change(self, start: int) -> int:
        """Return the highest number with start < number <= cut that is the number of a visible ledger, of the SEAL, or of the last
        trimmed entry. Return `start` if there is none.
        """
        found = [start, self.trimmed_to, *(n for n in (self.sealed_at,) if n is not None)]
        last = self.newest(start)
        return max(n for n in (*found, start if last is None else last[0]) if n <= max(start, self.cut))

    def max_read_position(self) -> tuple[int, int] | None:
        """Return the position of the last visible entry with rows up to the cut; None if there is no such entry."""
        return self.newest(0)

    def newest(self, after: int, through: int | None = None) -> tuple[int, int] | None:
        """Return the position of the last visible entry with rows, with after < number <= through (and <= cut). Return None if
        there is no such entry. The search begins at the end of the range.
        """
        for number, entry in self._entries(after, through, newest=True):
            assert entry.write is not None
            return number, entry.write.entries - 1
        return None

    def last_entry(self, number: int) -> int:
        """Return the last entry id of the ledger `number`. Return 0 for markers and seals, and for numbers that are not in the log
        or are trimmed.
        """
        at = bisect_right(self._numbers, number)
        if number <= self.trimmed_to or not at or self._numbers[at - 1] != number:
            return 0
        ((_, entry),) = self._buffer.entries(self.topic.name, [number])
        return 0 if entry.write is None else entry.write.entries - 1

    def _entries(self, after: int, through: int | None, *, newest: bool = False) -> Iterator[tuple[int, LogEntry]]:
        """Yield the visible DATA entries with after < number <= through (and <= cut), ascending, or newest first if `newest` is
        set.
        """
        top = self.cut if through is None else min(through, self.cut)
        low = max(after, self.trimmed_to)
        numbers = list(self._numbers[bisect_right(self._numbers, low) : bisect_right(self._numbers, top)])
        if newest:
            numbers.reverse()
        size = 1 if newest else GROUP
        at = 0
        while at < len(numbers):
            some = numbers[at : at + size]
            for number, entry in self._buffer.entries(self.topic.name, some):
                if entry.kind is EntryKind.DATA and (self.uncommitted or visible(self._state, number, entry.txn)):
                    yield number, entry
            at, size = at + size, min(GROUP, size * 2)
