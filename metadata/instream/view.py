"""Adapters that make a `Reading` with one segment from a read of a persistent topic. The topic's own log takes the place of the
cluster's log. So code for readings and segments works for both models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledgers.model import Ledger
from metadata.common.errors import OffsetOutOfRange
from metadata.instream.reading import TopicReading
from metadata.read.reading import LogSelection, Reading
from metadata.read.segment_view import SegmentView
from metadata.read.selection import AtLog
from metadata.read.selection import Position as Place
from metadata.records.names import RING
from metadata.records.records import Position, Range, SegmentInfo, SegmentState
from metadata.rules.timestamps import Above
from metadata.rules.transitions import Weight
from metadata.topics.topic import Topic


@dataclass(frozen=True, kw_only=True)
class PersistentSegment(SegmentView):
    """A persistent topic as a segment. `reading`: the reading of the topic's log. The parameters `after`, `start`, `through` and
    `cut` of the methods are ledger ids of this log.
    """

    reading: TopicReading

    def ledgers(self, after: int, through: int) -> Iterator[Ledger]:
        return self.reading.ledgers(after, through)

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        return self.reading.weights(after, through)

    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        return self.reading.published(after, through)

    def newest(self, start: int, cut: int) -> int:
        return self.reading.last_change(start)

    def last(self, cut: int) -> tuple[int, int] | None:
        return self.reading.max_read_position()

    @property
    def last_trimmed(self) -> Position | None:
        return self.reading.topic.layout.trimmed_to  # `trimmed_log` may be the number of a marker after the last trimmed rows


@dataclass(frozen=True, kw_only=True)
class PersistentReading(Reading):
    """A `Reading` made from `found`, the reading of a persistent topic's log. `cut`, `end_of_log`: ledger ids of that log."""

    found: TopicReading

    @property
    def log(self) -> str:
        return self.found.name

    @property
    def owner(self) -> str:
        return self.found.name

    @property
    def successor(self) -> str | None:
        return self.found.topic.layout.migrated_to

    def before_lost(self, number: int) -> int:
        return self.found.topic.before_lost(number)

    def check_not_lost(self, number: int) -> None:
        self.found.topic.check_not_lost(number)

    def given(self, offset: AtLog) -> int:
        """Return the ledger of the position that an offset has for this log. The position must be the last entry of an append, or
        `0:0`. Raises OffsetOutOfRange.
        """
        place = offset.at(self.log)
        self.check_reached(place.ledger)
        last = self.found.last_entry(place.ledger)
        if place.entry < last:
            raise OffsetOutOfRange(
                f"The position {place} of {self.owner} lies within one append, whose last entry is {place.ledger}:{last}.",
                advice=f"An append is read whole: give {place.ledger}:{last}, or the position before {place.ledger}:0.",
            )
        if place.entry > last and not 0 < place.ledger <= self.found.trimmed_to:
            raise OffsetOutOfRange(
                f"The position {place} of {self.owner} does not exist: the last entry up to there is {place.ledger}:{last}.",
                advice=f"Give {place.ledger}:{last}, or check where the position comes from: it may belong to another topic.",
            )
        return place.ledger

    def position(self, number: int) -> Place:
        """Return the position of the last entry of the append `number`."""
        return Place(number, self.found.last_entry(number))

    def shown(self, number: int) -> str:
        return f"{number} of {self.owner}"

    def above_cut(self) -> Iterator[Above]:
        return self.found.above_cut()


def as_reading(found: TopicReading) -> PersistentReading:
    """Return the reading of a persistent topic as a `Reading`. It has one segment over the whole ring, with the topic's name. Its
    undecided transactions are those that are open in the topic.

    Its selection is empty. A `Reading` needs a selection only for the guards of segments that have left the layout, and this
    segment cannot leave.
    """
    topic = Topic(found.topic.name, found.topic.layout, found.topic.record)
    sealed = found.sealed_at
    info = SegmentInfo(
        segment_id=0,
        hash_range=Range(start=0, end=RING - 1),
        state=SegmentState.ACTIVE if sealed is None else SegmentState.SEALED,
        created_at_epoch=0,
        created_at_ms=found.topic.layout.created_ms,
        sealed_at_log=sealed,
    )
    segment = PersistentSegment(name=found.name, topic=topic, info=info, sealed_at=sealed, reading=found)
    return PersistentReading(
        cluster=found.cluster,
        cut=found.cut,
        end_of_log=found.end,
        now_ms=found.now_ms,
        topics=(topic,),
        segments=(segment,),
        undecided=tuple(sorted((first, txn) for txn, first in found.ongoing.items())),
        gone=(),
        forgotten=(),
        selection=LogSelection(),
        found=found,
    )
