"""A persistent topic in the words of a reading of topic://: the topic stands where those have a segment, its log where they have
the cluster's. Whoever works on readings and segments then works on either kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledgers import stretches
from ledgers.model import Ledger
from ledgers.stretches import Stretch
from metadata.instream.buffer import TopicReading
from metadata.names import RING
from metadata.records import Range, SegmentInfo, SegmentState, Watermark
from metadata.topic import Topic
from metadata.transaction_buffer import Reading, SegmentView, Selection
from metadata.transitions import Weight


@dataclass(frozen=True)
class PersistentReading(Reading):
    """`shown`: what it is the reading of. Numbers (`cut`, `end_of_log`, those of ledgers) are of the topic's own log."""

    shown: TopicReading

    def ledgers(self, segment: SegmentView, after: int, through: int) -> Iterator[Ledger]:
        return self.shown.ledgers(after, through)

    def stretches(self, segment: SegmentView, after: int, through: int, *, marks: bool) -> Iterator[Stretch]:
        return stretches.of_ledgers(self.shown.ledgers(after, through), marks=marks)

    def guards(self) -> dict[str, int]:
        """None: it has no segments that could leave it."""
        return {}

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        return self.shown.weights(after, through)

    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        return self.shown.published(after, through)

    def last_change(self, start: int) -> int:
        return self.shown.last_change(start)

    def max_read_position(self, segment: SegmentView) -> tuple[int, int] | None:
        return self.shown.max_read_position()


def as_reading(found: TopicReading) -> PersistentReading:
    """One segment of the whole ring that is named as the topic is; what is ongoing there is what is undecided."""
    topic = Topic(found.topic.name, found.topic.layout, found.topic.record)
    last = topic.layout.trimmed_to  # the last rows that retention took; trimmed_log may be a marker behind them
    gone = None if last is None else Watermark(**dict(last), trimmed_to=last, trimmed_ms=topic.layout.trimmed_ms)
    sealed = found.sealed_at
    info = SegmentInfo(
        segment_id=0,
        hash_range=Range(start=0, end=RING - 1),
        state=SegmentState.ACTIVE if sealed is None else SegmentState.SEALED,
        created_at_epoch=0,
        created_at_ms=found.topic.layout.created_ms,
        sealed_at_log=sealed,
    )
    return PersistentReading(
        found._buffer.cluster,
        found.cut,
        found.end,
        found.now_ms,
        (topic,),
        (SegmentView(found.name, topic, info, gone, None, sealed, ()),),
        tuple(sorted((first, txn) for txn, first in found.ongoing.items())),
        (),
        (),
        Selection((found.name,)),
        found,
    )
