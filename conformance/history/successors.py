"""Make one log of a persistent topic and its successor, a topic://, in a history without store records. The checker then also finds
rows that are lost or doubled between the two topics.

A constant is added to all numbers of the successor, so that they lie above all numbers of the old log. Each pair of topics is
judged separately from all other topics. In a history with store records, the module `migrations` does this work, and takes the
constant from the seals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.history.findings import Findings
from conformance.history.format import Ack, Commit, Drained, Event, Horizon, Place, Plan, Poll, Read, Row, Successor, Told, Written
from conformance.history.words import topic_of


@dataclass(frozen=True, slots=True)
class Pair:
    """The persistent topic `old` was migrated to `new`. `behind`: the constant that is added to each number of `new`."""

    old: str
    new: str
    behind: int

    def has(self, place: str) -> bool:
        """Return whether a topic or segment belongs to the pair."""
        return place == self.old or topic_of(place) == self.new

    def row(self, row: Row) -> Row:
        ledger, entry, index = row.position
        if row.segment == self.old:
            return row._replace(segment=self.segment)
        return row._replace(position=(ledger + self.behind, entry, index))

    @property
    def segment(self) -> str:
        """The name of the first segment of `new`, which stands for the old log."""
        return f"{self.new.replace('topic://', 'segment://')}/0000-ffff-0"

    def place(self, place: Place, segment: str) -> Place:
        ledger, *rest = place
        return place if segment == self.old else (ledger + self.behind, *rest)  # type: ignore[return-value]


def pairs(history: Iterable[Event]) -> list[Pair]:
    """Return one pair for each `Successor` event of a history."""
    successors: dict[str, str] = {}
    tops: dict[str, int] = {}
    for event in history:
        if isinstance(event, Successor):
            successors[event.topic] = event.successor
        elif isinstance(event, (Read, Poll)):
            for row in event.rows:
                tops[row.segment] = max(row.position[0], tops.get(row.segment, 0))
    return [Pair(old, new, tops.get(old, 0) + 1) for old, new in successors.items()]


def without(history: Iterable[Event], found: Sequence[Pair]) -> list[Event]:
    """Return the events without the topics and rows of these pairs."""
    rest: list[Event] = []
    for event in history:
        if isinstance(event, (Read, Plan, Poll, Horizon)):
            topics = tuple(topic for topic in event.topics if not any(pair.has(topic) for pair in found))
            if topics or not event.topics:
                rest.append(_less(event._replace(topics=topics), found))
        elif isinstance(event, Commit):
            rest.append(event._replace(rows=tuple(r for r in event.rows if not any(_is_in(r, event, pair) for pair in found))))
        elif not (isinstance(event, Ack) and any(pair.has(event.segment) for pair in found)):
            rest.append(event)
    return rest


def _less(event: Read | Plan | Poll | Horizon, found: Sequence[Pair]) -> Event:
    if isinstance(event, (Read, Poll)):
        return event._replace(rows=tuple(row for row in event.rows if not any(pair.has(row.segment) for pair in found)))
    return event


def of_pair(history: Iterable[Event], pair: Pair, found: Findings) -> list[Event]:
    """Return the events of one pair. Both topics get the name of the successor. Report micro-batches with rows of both topics."""
    part: list[Event] = []
    calls: set[str] = set()
    for event in history:
        if isinstance(event, (Read, Poll)):
            if any(pair.has(topic) for topic in event.topics):
                part.append(_seen(event, pair, found))
        elif isinstance(event, Plan):
            if any(pair.has(topic) for topic in event.topics):
                more = 0 if event.log == pair.old else pair.behind
                part.append(event._replace(topics=(pair.new,), start=event.start + more, end=event.end + more, cut=None, log=""))
        elif isinstance(event, Commit):
            rows = tuple(Written(row.id, row.key, pair.new) for row in event.rows if _is_in(row, event, pair))
            if rows:
                calls.add(event.call)
                part.append(event._replace(rows=rows))
        elif isinstance(event, Told):
            if event.call in calls:
                part.append(event._replace(number=None))
        elif isinstance(event, Ack) and pair.has(event.segment):
            ranges = tuple((pair.place(first, event.segment), pair.place(last, event.segment)) for first, last in event.ranges)
            part.append(event._replace(segment=pair.segment if event.segment == pair.old else event.segment, ranges=ranges))
    return part


def _seen(event: Read | Poll, pair: Pair, found: Findings) -> Event:
    rows = tuple(row for row in event.rows if pair.has(row.segment))
    if isinstance(event, Poll) and event.subscription is None and 0 < sum(row.segment == pair.old for row in rows) < len(rows):
        text = f"{event.stream}, micro-batch {event.batch} has rows of {pair.old} and of {pair.new}"
        found.note("parent with child", text, event)
    moved = tuple(map(pair.row, rows))
    return event._replace(topics=(pair.new,), rows=moved, start=None, end=None, cut=None, segments=None, log="")


def _is_in(row: Written, call: Commit, pair: Pair) -> bool:
    return pair.has(row.segment or call.topic)


def left_undone(history: Sequence[Event], found: Findings) -> None:
    """Judge each subscription that reported no lag (`Drained`). It must have received all rows that the final reads of its topics
    returned. If its rows were copied to another topic (`Drained.into`), a final read of that topic must have returned these rows,
    too.
    """
    of = {event.successor: event.topic for event in history if isinstance(event, Successor)}
    final: dict[str, dict[str, None]] = {}
    given: dict[str, set[str]] = {}
    drained: list[Drained] = []
    for event in history:
        if isinstance(event, Read) and event.final:
            for row in event.rows:
                topic = topic_of(row.segment)
                final.setdefault(of.get(topic, topic), {})[row.id] = None
        elif isinstance(event, Poll) and event.subscription is not None:
            given.setdefault(event.subscription, set()).update(row.id for row in event.rows)
        elif isinstance(event, Drained):
            drained.append(event)
    for event in drained:
        there = [name for topic in event.topics for name in final.get(topic, ())]
        if missing := [name for name in there if name not in given.get(event.subscription, ())]:
            text = f"{event.subscription} had nothing left, and was never given {len(missing)} rows, e.g. {missing[0]}"
            found.note("never delivered", text, event)
        if lacking := [name for name in there if event.into and name not in final.get(event.into, ())]:
            text = f"{event.subscription} moved all to {event.into}, where {len(lacking)} rows are missing, e.g. {lacking[0]}"
            found.note("acknowledged without its rows", text, event)
