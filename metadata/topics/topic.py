"""A topic as read by one view of the metadata store."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from metadata.common.errors import TopicNotFound
from metadata.records.names import TopicName
from metadata.records.records import Layout, SegmentInfo, SegmentState
from metadata.rules.migrated import shift
from metadata.store.contract import Record


@dataclass(frozen=True)
class Topic:
    """A topic as read by one view. `layout`: the content of its record. `record`: the record itself, whose version a later CAS
    expects.
    """

    name: TopicName
    layout: Layout
    record: Record

    def segment(self, info: SegmentInfo) -> str:
        return info.full_name(self.name)

    def segments(self) -> list[str]:
        """Return the full names of all segments, in the order of their ids, without segments that a deletion removed."""
        return [self.segment(i) for i in self.layout.kept()]

    def active(self) -> list[SegmentInfo]:
        """Return the active segments in the order of their ranges. They tile the ring."""
        infos = [i for i in self.layout.segments.values() if i.state is SegmentState.ACTIVE]
        return sorted(infos, key=lambda i: i.hash_range.start)


class SegmentsIgnored(UserWarning):
    """A write gave a number of segments for a topic that exists with another number. The number is for new topics only."""


def warn_of_segments(topic: str, wanted: int | None, active: int, *, first: bool) -> None:
    """Warn if a write wants another number of segments than a topic has. `first`: whether the topic still has its first segments.
    After a split or a merge the numbers differ rightly, so there is no warning. `wanted`: None: the write gives no number.
    """
    if wanted is not None and first and wanted != active:
        warnings.warn(
            f"The write gives segments={wanted}, but {topic} exists with {active}: the number is for new topics only. "
            "Leave it out, or split and merge segments (txnsegment topics split, topics merge).",
            SegmentsIgnored,
            stacklevel=4,
        )


def of_record(name: TopicName, record: Record | None) -> Topic | None:
    """Return the topic that a record describes. Return None if there is no record, or if the record is a tombstone."""
    if record is None:
        return None
    layout = Layout.of(record)
    return None if layout.deleted else Topic(name, layout, record)


def not_found(name: TopicName) -> TopicNotFound:
    return TopicNotFound(f"There is no topic {name}.", advice=f"Create it (txnsegment topics create {name}) or write to it.")


def legacy_shift(topic: Topic, segment: str) -> int:
    """Return the offset that, added to a ledger id of a migrated segment, gives the ledger's number in the cluster's log."""
    info = next(info for info in topic.layout.kept() if info.legacy_topic_name == segment)
    assert topic.layout.migration is not None
    assert info.sealed_at_log is not None
    return shift(info.sealed_at_log, topic.layout.migration.seal)
