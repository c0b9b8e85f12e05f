"""The order of the segments of a topic: children are read after their parents. Pure.

A segment has ended for a reader if nothing in it, and nothing in its parents, is left to read (`ended_at`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from pulsar_protocol.cut import Cut
from pulsar_protocol.layout import EARLIEST, Layout, Position, Segment
from pulsar_protocol.whole_transactions import Child


def unread(layout: Layout, ended: frozenset[str]) -> tuple[Segment, ...]:
    """Return the segments of the layout that have not ended. `ended`: the names of those that have."""
    return tuple(one for one in layout.segments.values() if one.name not in ended)


def readable(layout: Layout, ended: frozenset[str]) -> tuple[Segment, ...]:
    """Return the segments that may be read: they have not ended, and all their parents have ended. A parent that is not in the
    layout any more was deleted after its retention, so it does not hold its children back.
    """
    return tuple(one for one in unread(layout, ended) if not _parents(layout, one) - ended)


def _parents(layout: Layout, segment: Segment) -> frozenset[str]:
    return frozenset(layout.segments[number].name for number in segment.parents if number in layout.segments)


def ended_at(layout: Layout, ended: frozenset[str], positions: Mapping[str, Position], cuts: Mapping[str, Cut]) -> frozenset[str]:
    """Return the segments that have ended for a reader at these positions. Such a segment is sealed, all its entries are decided,
    the reader has read all committed ones, and all parents of the segment have ended. `ended`: segments that are known to have
    ended.
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
    """Return, by name, the segments with an ancestor that has not ended. `starts`: where the read begins in each segment (none: at
    the first entry). `cuts`: the cuts of the segments that have not ended.
    """
    found = {}
    for one in unread(layout, ended):
        if above := ancestors(layout, one) - ended:
            ends = {name: cuts[name].position if name in cuts and cuts[name].is_final else None for name in above}
            found[one.name] = Child(starts.get(one.name, EARLIEST), ends)
    return found


def families(layout: Layout, segments: Iterable[str]) -> list[list[str]]:
    """Return the segments in groups. A segment is in the same group as its ancestors, and comes after them."""
    by_name = {one.name: one for one in layout.segments.values()}
    found: list[list[str]] = []
    for name in sorted(segments, key=lambda one: (by_name[one].id if one in by_name else -1, one)):
        above = ancestors(layout, by_name[name]) if name in by_name else frozenset()
        joined = [one for one in found if not above.isdisjoint(one)]
        found = [one for one in found if above.isdisjoint(one)]
        found.append([*itertools.chain.from_iterable(joined), name])
    return found


def ancestors(layout: Layout, segment: Segment) -> frozenset[str]:
    """Return the names of the parents of a segment, of their parents, and so on, as far as the layout has them."""
    by_name = {one.name: one for one in layout.segments.values()}
    found: set[str] = set()
    left = list(_parents(layout, segment))
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _parents(layout, by_name[name])
    return frozenset(found)
