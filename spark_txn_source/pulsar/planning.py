"""What a micro-batch reads from the segments of a Pulsar topic. Pure: no I/O, no clock."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from metadata.common.errors import DataLoss
from pulsar_protocol.cut import Cut
from pulsar_protocol.layout import EARLIEST, Layout, Position, Segment
from pulsar_protocol.whole_transactions import Child
from spark_txn_source.pulsar.offsets import Positions, PulsarOffset


def unread(layout: Layout, ended: frozenset[str]) -> tuple[Segment, ...]:
    """Return the segments that have not ended."""
    return tuple(one for one in layout.segments.values() if one.name not in ended)


def readable(layout: Layout, ended: frozenset[str]) -> tuple[Segment, ...]:
    """Return the segments that may be read: those that have not ended, and whose parents have all ended. A parent that is not in
    the layout any more was deleted after its retention, so it does not hold its children back.
    """
    return tuple(one for one in unread(layout, ended) if not _parents(layout, one) - ended)


def _parents(layout: Layout, segment: Segment) -> frozenset[str]:
    return frozenset(layout.segments[number].name for number in segment.parents if number in layout.segments)


def ended_at(layout: Layout, ended: frozenset[str], positions: Mapping[str, Position], cuts: Mapping[str, Cut]) -> frozenset[str]:
    """Return the segments that have ended at these positions: they are sealed, all their entries are decided, all committed ones
    were read, and so were those of their parents. `ended`: segments that are known to have ended.
    """
    while True:
        more = {
            one.name
            for one in readable(layout, ended)
            if one.name in cuts and cuts[one.name].is_final and positions.get(one.name, EARLIEST) >= cuts[one.name].position
        }
        if not more:
            return ended
        ended |= more


def children(layout: Layout, ended: frozenset[str], starts: Mapping[str, Position], cuts: Mapping[str, Cut]) -> dict[str, Child]:
    """Return the segments with an ancestor that has not ended. `cuts`: those of segments that have not ended."""
    found = {}
    for one in unread(layout, ended):
        if above := _ancestors(layout, one) - ended:
            ends = {name: cuts[name].position if name in cuts and cuts[name].is_final else None for name in above}
            found[one.name] = Child(starts.get(one.name, EARLIEST), ends)
    return found


def families(layout: Layout, segments: Iterable[str]) -> list[list[str]]:
    """Return the segments in groups: a segment is in one group with its ancestors. Ancestors are before their descendants."""
    by_name = {one.name: one for one in layout.segments.values()}
    found: list[list[str]] = []
    for name in sorted(segments, key=lambda one: (by_name[one].id if one in by_name else -1, one)):
        above = _ancestors(layout, by_name[name]) if name in by_name else frozenset()
        joined = [one for one in found if not above.isdisjoint(one)]
        found = [one for one in found if above.isdisjoint(one)]
        found.append([*itertools.chain.from_iterable(joined), name])
    return found


def _ancestors(layout: Layout, segment: Segment) -> frozenset[str]:
    by_name = {one.name: one for one in layout.segments.values()}
    found: set[str] = set()
    left = list(_parents(layout, segment))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _parents(layout, by_name[name])
    return frozenset(found)


def without_gone(offset: PulsarOffset, layout: Layout, *, fail_on_data_loss: bool) -> PulsarOffset:
    """Return the offset without the segments that the layout does not have any more. Raises DataLoss if one of them was not read to
    its end, or if the topic was deleted and created again.
    """
    if layout.epoch < offset.epoch:
        raise DataLoss(
            f"{offset.topic} has the epoch {layout.epoch}, but the checkpoint has seen the epoch {offset.epoch}: the topic was "
            "deleted and created again.",
            advice="Start with a new checkpoint.",
        )
    names = {one.name for one in layout.segments.values()}
    gone = {name for name in offset.segments if name not in names}
    unread = sorted(gone - offset.ended)
    if unread and fail_on_data_loss:
        raise DataLoss(
            f"{unread[0]} was deleted. It was read up to {offset.segments[unread[0]].text} only, and may have had more entries.",
            advice="Keep a subscription or retention on the topic. Start a new checkpoint, or set failOnDataLoss=false.",
        )
    kept = {name: place for name, place in offset.segments.items() if name in names}
    return replace(offset, epoch=layout.epoch, segments=kept, ended=offset.ended & names)


@dataclass(frozen=True)
class FirstEntry:
    """The first unread entry of a segment: its position, the number of its messages, and its size in bytes."""

    position: Position
    messages: int
    size: int


def limited(
    ends: Mapping[str, Position], firsts: Mapping[str, FirstEntry], max_rows: int | None, max_bytes: int | None
) -> dict[str, Position]:
    """Return the ends within the limits. The limits are soft. Each segment gets the same share, and at least one entry. The first
    entry of a segment stands for the others, whose sizes are not known. An end is in the ledger of the first entry, or in `ends`.
    """
    found = {}
    for name, end in ends.items():
        first = firsts[name]
        counts = [
            max(1, limit // len(ends) // max(1, size))
            for limit, size in ((max_rows, first.messages), (max_bytes, first.size))
            if limit is not None
        ]
        last = Position(first.position.ledger, first.position.entry + min(counts) - 1) if counts else end
        found[name] = min(end, last)
    return found


def moved(offset: PulsarOffset, ends: Mapping[str, Position], ended: frozenset[str], sent: Positions | None = None) -> PulsarOffset:
    """Return the end of a micro-batch. If the start is that of a new checkpoint, the end names it. `sent`: where a reader that goes
    on there begins in the log of writers.
    """
    segments = {**offset.segments, **ends}
    began = None
    if offset.is_initial:
        began = {**dict.fromkeys(ends, EARLIEST), **offset.segments}
    return replace(offset, segments=segments, ended=ended, is_initial=False, began=began, sent=sent)
