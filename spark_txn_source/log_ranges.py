"""The range of a log that a read reads, and the log numbers at which a read starts and ends."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ledgers.model import Ledger
from metadata.read.backlog import pending
from metadata.read.reading import Reading
from metadata.read.segment_view import SegmentView
from metadata.read.selection import AtLog, AtTime, Earliest, End, Latest, Position, Start
from metadata.records.row_ranges import NONE, Rows
from metadata.rules import timestamps, transitions
from spark_txn_source import limits
from spark_txn_source.limits import LogWindow
from spark_txn_source.pieces import pieces
from spark_txn_source.planned import Piece

NOTHING: Mapping[str, Rows] = MappingProxyType({})


@dataclass(frozen=True)
class LogRange:
    """The range of one log that a read reads. It has the rows of the ledgers with start < number <= end. `done`: the rows that
    are left out, by segment.
    """

    reading: Reading
    start: int
    end: int
    done: Mapping[str, Rows] = field(default_factory=lambda: NOTHING)

    @property
    def log(self) -> str:
        return self.reading.log

    @property
    def places(self) -> tuple[Position, Position]:
        """The start and the end of the range as positions, for an offset."""
        return self.reading.position(self.start), self.reading.position(self.end)

    def done_of(self, segment: SegmentView) -> Rows:
        return self.done.get(segment.name, NONE)

    def left(self, segment: SegmentView) -> list[Ledger]:
        """Return the ledgers of a segment with rows to read."""
        return [ledger for ledger, _ in pending(segment, self.done_of(segment), self.start, self.end)]

    def pieces(self, *, marks: bool) -> list[list[Piece]]:
        """Return the pieces of the rows in the range, in order. There is one list for each segment that has rows. Raises DataLoss,
        CorruptRecord, StorageError.
        """
        found = (list(pieces(s, self.start, self.end, marks=marks, done=self.done_of(s))) for s in self.reading.segments)
        return [some for some in found if some]


def start_number(reading: Reading, start: Start) -> int:
    """Return the number in a log after which a read begins. Raises OffsetOutOfRange."""
    match start:
        case Earliest():
            return 0
        case Latest():
            return reading.before_lost(reading.cut)
        case AtLog():
            return reading.given(start)
        case AtTime(ms=ms):
            return reading.before_lost(timestamps.start(reading.published(0, reading.cut), ms, reading.cut))


def end_number(reading: Reading, end: End) -> int:
    """Return the number up to which a batch reads a log, inclusive. If the end is a timestamp, and `reading` does not come from
    `timestamps.final`, a later reading may give another number. Raises OffsetOutOfRange.
    """
    match end:
        case Latest():
            return reading.cut
        case AtLog():
            return reading.given(end)
        case AtTime(ms=ms):
            return reading.before_lost(timestamps.end(reading.published(0, reading.cut), ms, reading.cut)[0])


def deleted_to(reading: Reading, start: Start, end: int | None) -> int:
    """Return the number up to which deletions of topics are no data loss for a NEW read, because the deleted rows were gone before
    the read began. `end`: the end of the read (None: the cut).

    If the start has no number (e.g. `earliest`), every deletion at or below the end counts as made before the read. If the start
    has a number (`AtLog`), the read continues an earlier read. Every deletion in its range is then a loss, so the result is 0.
    """
    if isinstance(start, AtLog):
        return 0
    return max((n for n in reading.deletions() if end is None or n <= end), default=0)


def limited(ranges: Sequence[LogRange], *, max_rows: int | None, max_bytes: int | None) -> dict[str, int]:
    """Return the end of a micro-batch in each log. A micro-batch has whole transactions within the limits. It has at least one
    transaction, even if that transaction alone exceeds a limit. It never crosses a seal.
    """
    if len(ranges) == 1:  # a single log needs no publish times, and reading them would take time
        (one,) = ranges
        weights = one.reading.weights(one.start, one.end)
        return {one.log: transitions.limited(weights, one.end, max_rows=max_rows, max_bytes=max_bytes, seals=_seals(one))}
    ends = {one.log: transitions.limited((), one.end, seals=_seals(one)) for one in ranges}
    if max_rows is None and max_bytes is None:
        return ends
    windows = {one.log: _window(one, ends[one.log]) for one in ranges}
    return limits.ends_by_publish_time(windows, max_rows=max_rows, max_bytes=max_bytes)


def _seals(one: LogRange) -> Collection[int]:
    return one.reading.seals(one.start, one.end)


def _window(one: LogRange, end: int) -> LogWindow:
    ledgers = limits.published(one.reading.weights(one.start, end), one.reading.published(one.start, end))
    return LogWindow(one.start, end, ledgers)
