"""A read of one log from one number to another, and the numbers that starts and ends of a read stand for in each log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from spark_txn_source.limits import Stretch
from spark_txn_source.pieces import pieces
from spark_txn_source.tasks import Piece

NOTHING: Mapping[str, Rows] = MappingProxyType({})


@dataclass(frozen=True)
class LogRange:
    """What is read of one log: rows of ledgers with start < number <= end, but for those in `done`, by segment."""

    reading: Reading
    start: int
    end: int
    done: Mapping[str, Rows] = field(default_factory=lambda: NOTHING)

    @property
    def log(self) -> str:
        return self.reading.log

    @property
    def places(self) -> tuple[Position, Position]:
        """Start and end, as offsets say them."""
        return self.reading.position(self.start), self.reading.position(self.end)

    def done_of(self, segment: SegmentView) -> Rows:
        return self.done.get(segment.name, NONE)

    def left(self, segment: SegmentView) -> list[Ledger]:
        """The ledgers of a segment with rows that are read."""
        return [ledger for ledger, _ in pending(segment, self.done_of(segment), self.start, self.end)]

    def pieces(self, *, marks: bool) -> list[list[Piece]]:
        """For each segment with rows in the range its rows in order, part by part. Raises DataLoss, CorruptRecord, StorageError."""
        found = (list(pieces(s, self.start, self.end, marks=marks, done=self.done_of(s))) for s in self.reading.segments)
        return [some for some in found if some]


def start_number(reading: Reading, start: Start) -> int:
    """The number after which a read of a log begins. Raises OffsetOutOfRange."""
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
    """The number up to and with which a batch reads a log. By a timestamp it is final in a reading that `final` gave. Raises
    OffsetOutOfRange.
    """
    match end:
        case Latest():
            return reading.cut
        case AtLog():
            return reading.given(end)
        case AtTime(ms=ms):
            return reading.before_lost(timestamps.end(reading.published(0, reading.cut), ms, reading.cut)[0])


def deleted_to(reading: Reading, start: Start, end: int | None) -> int:
    """The number up to which deletions are no loss for a NEW read that ends at a number (None: at the cut): what they took was gone
    before its range was ever read.

    A start that names no number begins after every deletion that its end has seen; with `AtLog` the range itself was read before.
    """
    if isinstance(start, AtLog):
        return 0
    return max((n for n in reading.deletions() if end is None or n <= end), default=0)


def limited(ranges: Sequence[LogRange], *, max_rows: int | None, max_bytes: int | None) -> dict[str, int]:
    """Where a micro-batch ends in each log: whole transactions within the limits, never fewer than one of all, and never beyond the
    next seal.
    """
    ends = {one.log: min([one.end, *one.reading.seals(one.start, one.end)]) for one in ranges}
    if max_rows is None and max_bytes is None:
        return ends
    if len(ranges) == 1:  # publish times order several logs; one needs none of them
        (one,) = ranges
        weights = one.reading.weights(one.start, one.end)
        return {one.log: transitions.limited(weights, ends[one.log], max_rows=max_rows, max_bytes=max_bytes)}
    return limits.limited({one.log: _stretch(one, ends[one.log]) for one in ranges}, max_rows=max_rows, max_bytes=max_bytes)


def _stretch(one: LogRange, end: int) -> Stretch:
    ledgers = limits.published(one.reading.weights(one.start, end), one.reading.published(one.start, end))
    return Stretch(one.start, end, ledgers)
