"""One segment in a reading, with its visible ledgers (protocol.md section 6). The number of a ledger is its number in the log that
orders the rows of the segment.

A segment of a topic:// is a `StoredSegment`. A persistent topic is the one segment of its own log (`metadata.instream.view`). A
migrated persistent topic is a segment of the cluster's log (`metadata.instream.legacy`). Code that uses a reading treats the three
kinds alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledgers import extents
from ledgers.model import Ledger
from ledgers.storage import LedgerStorage
from metadata.log.live_log import ledger
from metadata.records.records import Position, Registration, SegmentInfo, Watermark
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, end_of
from metadata.records.row_ranges import rows as row_ranges
from metadata.rules.retention import Kept, is_done
from metadata.rules.transitions import Weight
from metadata.topics.topic import Topic

if TYPE_CHECKING:
    from ledgers.extents import Extent
    from ledgers.snapshots import SnapshotHead


@dataclass(frozen=True, kw_only=True)
class SegmentView(ABC):
    """One segment at one cut. The arguments `after` and `through` of the methods are numbers of the log that orders the rows. They
    mean the range after < number <= through. Generator methods read lazily, except `weights` and `kept` of a migrated topic. These
    two list the whole range first, to find whole transactions.

    `live`: the visible registrations above the `watermark`, with their numbers, ascending. `head`: the head of the index snapshot,
    which lists the ledgers at or below the watermark. Only a `StoredSegment` has `watermark`, `head` and `live`.
    """

    name: str
    topic: Topic
    info: SegmentInfo
    sealed_at: int | None
    watermark: Watermark | None = None
    head: SnapshotHead | None = None
    live: tuple[tuple[int, Registration], ...] = ()

    @abstractmethod
    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        """Yield the visible ledgers, ascending. Raises DataLoss, CorruptRecord, StorageError."""

    def extents(self, after: int, through: int, *, marks: bool) -> Iterator[Extent]:
        """Yield the visible rows as extents. Each part of a ledger is one extent, but adjacent rows of one compacted file are
        joined to one extent. `marks`: an extent of a compacted file also has the positions of its entries (`Extent.marks`).
        """
        return extents.of_ledgers(self.ledgers(after, through), marks=marks)

    @abstractmethod
    def weights(self, after: int, through: int) -> Iterator[Weight]:
        """Yield the rows and bytes of each visible registration, ascending."""

    def kept(self, cut: int) -> Iterator[Kept]:
        """Yield the units of retention up to the cut, ascending. Retention removes a unit as a whole or not at all."""
        return (Kept(found.id, found.publish_ms, found.bytes) for found in self.ledgers(0, cut))

    def free_to(self, needed: Row, through: int) -> int:
        """Return the highest number, at most `through`, up to which no row is needed. `needed`: the first row that is needed."""
        first = next((one for one in self.ledgers(0, through) if not is_done(one.id, one.last_entry, needed)), None)
        return through if first is None else self.number(first.id) - 1

    def size(self, cut: int) -> int:
        """Return the bytes, as written, of all kept rows up to the cut."""
        return sum(weight.bytes for weight in self.weights(0, cut))

    @abstractmethod
    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        """Yield (number, publish time in ms) of each ledger, ascending. All trimmed ledgers together count as one ledger. It has
        the number of the last trimmed ledger, and the latest publish time of all trimmed ledgers.
        """

    @abstractmethod
    def newest(self, start: int, cut: int) -> int:
        """Return the highest number in (start, cut] with a visible row. Return a number at or below `start` if there is none. The
        cost does not depend on the length of the history.
        """

    @abstractmethod
    def last(self, cut: int) -> tuple[int, int] | None:
        """Return maxReadPosition: the position of the last visible entry at or below the cut; None if there is none."""

    def number(self, ledger_id: int) -> int:
        """Return the log number of a ledger. `ledger_id` 0, before the first ledger, gives 0."""
        return ledger_id

    def ledger_id(self, number: int) -> int:
        """Return the highest ledger id that is possible at or below a log number."""
        return number

    @property
    def deleted_at(self) -> int | None:
        """The number of the seal that deleted the topic with this segment; None if the topic was not deleted."""
        return self.info.deleted_at_log

    @property
    def folded_to(self) -> int:
        """The number up to which the index snapshot lists the ledgers. Above it the live log has them. (0: nothing is folded.)"""
        return self.watermark.ledger_id if self.watermark is not None else 0

    @property
    def last_trimmed(self) -> Position | None:
        """The position up to which retention has removed rows; None if it has removed none."""
        return None if self.watermark is None else self.watermark.trimmed_to

    @property
    def trimmed_to(self) -> int:
        """The number at or below which rows of this segment may be gone (0: none)."""
        return 0 if self.last_trimmed is None else self.number(self.last_trimmed.ledger_id)

    def trimmed(self, after: int = 0) -> Rows:
        """Return the rows above the number `after` that retention may have removed, as one range."""
        first, last = self.ledger_id(after), self.last_trimmed
        return NONE if last is None else row_ranges([(end_of(first) if first else FIRST, end_of(last.ledger_id, last.entry_id))])


@dataclass(frozen=True, kw_only=True)
class StoredSegment(SegmentView):
    """A segment of a topic://. Its ledgers are registrations of the cluster's log. A ledger's id is its registration's number."""

    storage: LedgerStorage

    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        yield from self._folded_ledgers(after, through)
        yield from self._live_ledgers(after, through)

    def extents(self, after: int, through: int, *, marks: bool) -> Iterator[Extent]:
        if self.head is not None and after < self.folded_to:
            from ledgers import snapshot_extents  # imported late, because most reads end before the snapshot

            yield from snapshot_extents.of_snapshot(self.storage, self.head, after, min(through, self.folded_to), marks=marks)
        yield from extents.of_ledgers(self._live_ledgers(after, through), marks=marks)

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        for found in self._folded_ledgers(after, through):
            yield Weight(found.id, found.rows, found.bytes)
        for number, registration in self._live(after, through):
            write = registration.segments[self.name]
            yield Weight(number, write.rows, write.bytes)

    def size(self, cut: int) -> int:
        folded = 0 if self.head is None else self.head.bytes
        return folded + sum(registration.segments[self.name].bytes for _, registration in self.live)

    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        if after < self.trimmed_to <= through and self.watermark is not None:
            yield self.trimmed_to, self.watermark.trimmed_ms or 0
        for found in self.ledgers(after, through):
            yield found.id, found.publish_ms

    def newest(self, start: int, cut: int) -> int:
        numbers = [n for n, _ in self.live if n <= cut]
        if numbers or self.head is None:
            return numbers[-1] if numbers else start
        last = self.head.last_ledger
        if last <= cut:
            return last
        # the last ledger was folded after the log was listed
        return max((found.id for found in self._folded_ledgers(start, cut)), default=start)

    def last(self, cut: int) -> tuple[int, int] | None:
        """Return maxReadPosition from the live log or the snapshot. The watermark's position is not used, because the registration
        at this position may be void.
        """
        live = [(n, r.segments[self.name].entries - 1) for n, r in self.live if n <= cut]
        if live or self.head is None:
            return live[-1] if live else None
        # The head names its last ledger. If that ledger was folded after the log was listed, it may lie beyond the cut. Then all
        # ledgers up to the cut are read.
        last = self.head.last_ledger
        shown = [(found.id, found.last_entry) for found in self.ledgers(last - 1 if last <= cut else 0, cut)]
        return shown[-1] if shown else None

    def _folded_ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        if self.head is not None and after < self.folded_to:
            from ledgers import snapshots  # imported late, for the same reason

            yield from snapshots.read_ledgers(self.storage, self.head, after=after, through=min(through, self.folded_to))

    def _live_ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        for number, registration in self._live(after, through):
            yield ledger(self.storage, number, registration, self.name)

    def _live(self, after: int, through: int) -> Iterator[tuple[int, Registration]]:
        return ((number, registration) for number, registration in self.live if after < number <= through)
