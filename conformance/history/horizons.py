"""Judge cuts, maxReadPositions and watermarks (invariants 6, 7, 9). Each of them must lie below every undecided registration of its
topics or segment, and must never move back. A cut must not be too low either: it must be at or above each committed registration
that was decided, with all registrations below it, before the read began.
"""

from __future__ import annotations

from bisect import bisect_left

from conformance.history.findings import Findings
from conformance.history.format import Horizon, Layout, Plan, Position, Read, Time, Watermark
from conformance.history.ranges import Ranges
from conformance.history.truth import Truth
from conformance.history.words import topic_of


class Horizons:
    """Judges the cuts, maxReadPositions and watermarks, in the order of the events."""

    def __init__(self, truth: Truth, ranges: Ranges, found: Findings) -> None:
        self._truth, self._ranges, self._found = truth, ranges, found
        self._cuts: dict[tuple[str, ...], tuple[list[Time], list[int]]] = {}
        self._highest: dict[tuple[str, ...], Read | Plan | Horizon] = {}
        self._positions: dict[tuple[str, str], Position] = {}
        self._marks: dict[str, Watermark] = {}
        self._layouts: dict[str, Layout] = {}

    def cut(self, event: Read | Plan | Horizon) -> None:
        cut = event.cut
        assert cut is not None
        who = event.stream if isinstance(event, Plan) else event.who
        found, topics = self._found, event.topics
        for number, at, decided, _ in self._ranges.touching(topics):
            if number > cut:
                break
            if at > event.at:
                found.note("late registration", f"{number} appeared after {who} had passed it (cut {cut})", event)
            elif decided > event.at:
                found.note("beyond an open transaction", f"{who}: the cut {cut} lies at or above {number}, which is open", event)
        floor = self._ranges.floor(topics, event.began)
        if floor > cut:
            found.note("stale read", f"{who}: the cut {cut} lies below {floor}, which was decided before", event)
        for others, (ats, cuts) in self._cuts.items():
            if others == topics or set(others) >= set(topics):
                passed = bisect_left(ats, event.began)
                if passed and cuts[passed - 1] > cut:
                    text = f"{who}: the cut went back from {cuts[passed - 1]} to {cut}"
                    found.note("horizon went back", text, self._highest[others], event)
        ats, cuts = self._cuts.setdefault(topics, ([], []))
        ats.append(event.at)
        cuts.append(max(cut, cuts[-1]) if cuts else cut)
        if cuts[-1] == cut:
            self._highest[topics] = event

    def horizon(self, event: Horizon) -> None:
        self.cut(event)
        for segment, position in event.positions:
            if position[0] > event.cut:
                text = f"{event.who}: maxReadPosition {position} of {segment} lies beyond the cut {event.cut}"
                self._found.note("beyond its cut", text, event, invariant=6)
            before = self._positions.get((event.who, segment), position)
            if position < before:
                text = f"{event.who}: maxReadPosition of {segment} went back from {before} to {position}"
                self._found.note("horizon went back", text, event)
            self._positions[event.who, segment] = position

    def layout(self, event: Layout) -> None:
        self._layouts[event.topic] = event

    def watermark(self, event: Watermark) -> None:
        segment, position = event.segment, event.position
        before = self._marks.pop(segment, None)
        if position is None:
            layout = self._layouts.get(topic_of(segment))
            if layout is not None and segment in (s.name for s in layout.segments):
                text = f"the watermark of {segment} was deleted, and the segment is in the layout"
                self._found.note("watermark deleted", text, layout, event)
            return
        self._marks[segment] = event
        if before is not None and before.position is not None and position < before.position:
            text = f"the watermark of {segment} moved back from {before.position} to {position}"
            self._found.note("horizon went back", text, before, event)
        truth = self._truth
        for number, found in truth.registered.items():
            if (
                number <= position[0]
                and found.first.at < event.at < truth.decided_at(number)
                and truth.seals.get(segment, number) >= number
                and any(row.segment == segment for row in found.first.rows)
            ):
                text = f"the watermark {position} of {segment} lies at or above {number}, which is open"
                self._found.note("beyond an open transaction", text, found.first, event)
