"""A persistent topic in the words of a reading of topic://: the topic stands where those have a segment, its log where they have
the cluster's. Whoever works on readings and segments then works on either kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledgers.model import Ledger
from metadata.instream.reading import TopicReading
from metadata.read.reading import Reading, Selection
from metadata.read.segment_view import SegmentView
from metadata.records.names import RING
from metadata.records.records import Position, Range, SegmentInfo, SegmentState
from metadata.rules.transitions import Weight
from metadata.topics.topic import Topic


@dataclass(frozen=True, kw_only=True)
class PersistentSegment(SegmentView):
    """`reading`: what it stands for. Numbers are of the topic's own log, where they are ids of ledgers."""

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
        return self.reading.topic.layout.trimmed_to  # of rows; `trimmed_log` may be a marker behind them


def as_reading(found: TopicReading) -> Reading:
    """One segment of the whole ring that is named as the topic is; what is ongoing there is what is undecided.

    Its selection is empty, so the reading has no guard of segments that left their layout: this topic cannot lose its only one.
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
    return Reading(
        cluster=found.cluster,
        cut=found.cut,
        end_of_log=found.end,
        now_ms=found.now_ms,
        topics=(topic,),
        segments=(segment,),
        undecided=tuple(sorted((first, txn) for txn, first in found.ongoing.items())),
        gone=(),
        forgotten=(),
        selection=Selection(),
    )
