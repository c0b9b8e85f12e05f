"""Judge streams. Micro-batches must follow each other without gap or overlap. A replay must return the same rows as the first
delivery. A plan must not say that there is nothing new although there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from conformance.history.findings import Findings
from conformance.history.format import Plan, Poll
from conformance.history.keys import Keys
from conformance.history.ranges import Ranges
from conformance.history.reading import Reading
from conformance.history.truth import Truth
from conformance.history.words import topic_of


@dataclass
class Followed:
    """The state of one stream."""

    keys: Keys
    batches: dict[int, tuple[Poll, int, int]] = field(default_factory=dict)
    """The first delivery of each micro-batch, and its range."""
    batch: int = -1
    end: int | None = None
    """The highest end of all micro-batches so far. If their ends are unknown: the highest number of a row that the stream returned.
    """
    seen: set[tuple[int, str]] = field(default_factory=set)


class Streams:
    """Judges the polls and plans of streams, in the order in which they returned."""

    def __init__(self, truth: Truth, ranges: Ranges, reading: Reading, found: Findings) -> None:
        self._truth, self._ranges, self._reading, self._found = truth, ranges, reading, found
        self._streams: dict[str, Followed] = {}

    def plan(self, event: Plan) -> None:
        if event.cut is not None and event.end > event.cut and event.end > event.start:
            text = f"{event.stream}: planned up to {event.end}, beyond the cut {event.cut}"
            self._found.note("beyond its cut", text, event)
        if event.end <= event.start:
            cut = event.start if event.cut is None else event.cut
            waiting = self._ranges.any_visible(event.topics, event.start, cut, event.began, event.at)
            floor = self._ranges.floor(event.topics, event.began)
            if self._truth.store and floor <= cut:
                floor = event.start  # `any_visible` judged these numbers already, without trimmed rows
            if waiting is not None or floor > event.start:
                text = f"{event.stream} stands still at {event.start} although {waiting or floor} is visible (cut {event.cut})"
                self._found.note("stands still", text, event)
            for batch in self._ranges.unseen(event.topics, event.began, final=False):
                text = f"{event.stream} stands still at {event.start} although {batch.label} is committed, which nobody ever got"
                self._found.note("stands still", text, *batch.calls[-1:], event)

    def poll(self, event: Poll) -> None:
        stream = self._streams.get(event.stream)
        if stream is None:
            stream = self._streams[event.stream] = Followed(Keys(self._truth, self._found), end=event.start)
        before = stream.batches.get(event.batch)
        if before is not None:
            self._again(before[0], event)
            self._reading.compare(event, *before[1:])
            return
        name, found = f"{event.stream}, micro-batch {event.batch}", self._found
        numbers = [row.position[0] for row in event.rows]
        last = -1 if stream.end is None else stream.end
        start = last if event.start is None else event.start
        end = max([start, *numbers]) if event.end is None else event.end
        stream.batches[event.batch] = (event, start, end)
        if event.batch < stream.batch:
            found.note("nonmonotonic poll", f"{name} comes after {stream.batch}", event)
        if end < start or start < last:
            found.note("nonmonotonic poll", f"{name} reads {start}..{end}, {last} was finished", event)
        elif start > last and self._ranges.expected(event.topics, last, start, event.at, event.segments).cells:
            found.note("poll skip", f"{name} begins at {start}, {last} was finished, and there are rows between", event)
        self._reading.compare(event, start, end)
        self._seals(event, start, end, name)
        rows = {(row.position[0], row.id) for row in event.rows}
        if twice := rows & stream.seen:
            found.note("duplicate", f"{name}: {len(twice)} rows came before, e.g. {min(twice)}", event)
        stream.seen |= rows
        stream.batch, stream.end = max(stream.batch, event.batch), max(last, end)
        if any(row.key is not None for row in event.rows):
            stream.keys.more(event, name)

    def _again(self, before: Poll, event: Poll) -> None:
        same = (before.start, before.end) == (event.start, event.end) and (
            before.rows == event.rows or sorted(r[:3] for r in before.rows) == sorted(r[:3] for r in event.rows)
        )
        if not same:
            text = (
                f"{event.stream}, micro-batch {event.batch}: first {before.start}..{before.end} with {len(before.rows)} rows, "
                f"then {event.start}..{event.end} with {len(event.rows)}"
            )
            self._found.note("replay differs", text, before, event)

    def _seals(self, event: Poll, start: int, end: int, name: str) -> None:
        for segment, number in self._truth.seals.items():
            topic = topic_of(segment)
            if self._truth.left.get(segment, event.began) < event.began:
                continue
            if start < number < end and topic in event.topics and topic not in self._truth.deleted:
                self._found.note("parent with child", f"{name} reads {start}..{end}, over the seal {number} of {segment}", event)
                return
