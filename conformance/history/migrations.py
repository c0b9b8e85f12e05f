"""Give the events of a migrated persistent topic the numbers of the common log, in a history with store records.

In the common log the persistent topic is the first segment of the new topic. Ledger `n` of the old log gets the number `n + shift`,
so that its SEAL comes just below the seal that ends this segment. So readers of the new topic are also judged by the commits of the
old one. A stream that began under the old name is judged as one stream over both topics. So the checker also finds rows that are
lost or doubled between the two topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from conformance.history.findings import Findings
from conformance.history.format import (
    Abort,
    Ack,
    Application,
    Commit,
    Event,
    Header,
    Horizon,
    Layout,
    Place,
    Plan,
    Poll,
    Position,
    Read,
    Row,
    Seal,
    Time,
    Trim,
    Written,
)
from conformance.history.in_stream import InStream
from conformance.history.truth import Registered, Truth

PERSISTENT = "persistent://"


@dataclass(frozen=True, slots=True)
class Migration:
    """The persistent topic `old` was migrated to `new`. `segment`: the name of `old` in the common log. `seal`: the number of the
    SEAL in the log of `old`. `sealed_at`: the number of the seal in the common log.
    """

    old: str
    new: str
    segment: str
    seal: int
    sealed_at: int
    at: Time
    apart: float
    """A fraction above 0 and below 1. Each migration of a history has a different fraction."""

    @property
    def shift(self) -> int:
        """The amount that is added to a ledger id of the old log. It has the fraction `apart`, so the numbers of this topic's
        ledgers differ from those of other migrated topics and of the common log.

        The amount is a float. It is declared as an int, because the checker declares all numbers as int.
        """
        return cast(int, self.sealed_at - 1 - self.seal - self.apart)

    def number(self, number: int) -> int:
        """Convert a stream's position in the old log to a number of the common log. A position at the SEAL of the old log becomes
        the number of the seal in the common log, because no row lies between the two.
        """
        return self.sealed_at if number >= self.seal else number + self.sealed_at - 1 - self.seal if number else 0

    def row(self, row: Row) -> Row:
        ledger, entry, index = row.position
        return row._replace(segment=self.segment, position=(ledger + self.shift, entry, index))

    def place(self, place: Place) -> Place:
        ledger, *rest = place
        return (ledger + self.shift, *rest)  # type: ignore[return-value]


class Migrations:
    """The migrations of one history. `in_stream` must have followed all entries of the history."""

    def __init__(self, history: Iterable[Event], in_stream: InStream, found: Findings) -> None:
        self._in_stream, self._found = in_stream, found
        self._by_old: dict[str, Migration] = {}
        for event in history:
            if isinstance(event, Layout):
                self._shown(event)
            elif isinstance(event, Seal):
                for old in event.segments:
                    if old.startswith(PERSISTENT) and old not in self._by_old:
                        self._sealed(event, old)
        self._by_new = {one.new: one for one in self._by_old.values()}

    def __bool__(self) -> bool:
        return bool(self._by_old)

    def _shown(self, event: Layout) -> None:
        for segment in event.segments:
            if segment.name.startswith(PERSISTENT) and self._end_of(segment.name, event.at) is None:
                text = f"{event.topic} went on from {segment.name}, which was not sealed for it"
                self._found.note("layout does not tile", text, event, invariant=12)

    def _end_of(self, old: str, at: Time) -> int | None:
        log = self._in_stream.topics.get(old)
        if log is None or log.sealed_at is None or log.sealed_when > at:
            return None
        return log.sealed_at

    def _sealed(self, event: Seal, old: str) -> None:
        seal = self._end_of(old, event.at)
        if seal is not None:
            segment = f"{event.topic.replace('topic://', 'segment://')}/0000-ffff-0"
            apart = _between(len(self._by_old))
            self._by_old[old] = Migration(old, event.topic, segment, seal, event.number, event.at, apart)

    # --- the events of the common log -----------------------------------------------------------------------------------

    def common(self, history: Iterable[Event]) -> Iterator[Event]:
        """Return all events. Events of migrated topics get the numbers of the common log. There is one exception: a reader's
        event with numbers of an old log stays unchanged, unless it is a poll with a known range and without a subscription.
        """
        return (self._under_successor(event) for event in history) if self else iter(history)

    def _under_successor(self, event: Event) -> Event:
        match event:
            case Layout():
                segments = tuple(
                    s._replace(name=self._name(s.name), parents=tuple(map(self._name, s.parents))) for s in event.segments
                )
                return event._replace(segments=segments)
            case Seal():
                return event._replace(segments=tuple(map(self._name, event.segments)))
            case Commit():
                return event._replace(topic=self._topic(event.topic), rows=tuple(map(self._written, event.rows)))
            case Header() | Abort() | Application():
                return event._replace(topic=self._topic(event.topic)) if event.topic else event
            case Ack() | Trim() if event.segment in self._by_old:
                one = self._by_old[event.segment]
                if isinstance(event, Trim):
                    return event._replace(segment=one.segment, through=event.through + one.shift)
                ranges = tuple((one.place(first), one.place(last)) for first, last in event.ranges)
                return event._replace(segment=one.segment, ranges=ranges)
            case Read() | Plan() | Poll() | Horizon():
                return self._seen(event)
        return event

    def _seen(self, event: Read | Plan | Poll | Horizon) -> Event:
        one = self._by_old.get(event.log)
        if one is not None:
            if not isinstance(event, Poll) or event.subscription is not None or event.start is None or event.end is None:
                return event
            rows = tuple(map(one.row, event.rows))
            start, end = one.number(event.start), one.number(event.end)
            return event._replace(log="", topics=(one.new,), rows=rows, start=start, end=end, cut=None)
        if event.log or self._by_new.keys().isdisjoint(event.topics):
            return event
        if isinstance(event, Horizon):
            return event._replace(positions=tuple(self._position(*found) for found in event.positions))
        if isinstance(event, Plan):
            return event
        rows = tuple(self._by_old[row.segment].row(row) if row.segment in self._by_old else row for row in event.rows)
        known = None if event.segments is None else tuple(map(self._name, event.segments))
        return event._replace(rows=rows, segments=known)

    def _position(self, segment: str, position: Position) -> tuple[str, Position]:
        one = self._by_old.get(segment)
        return (segment, position) if one is None else (one.segment, (position[0] + one.shift, position[1]))

    def _name(self, segment: str) -> str:
        one = self._by_old.get(segment)
        return segment if one is None else one.segment

    def _topic(self, topic: str) -> str:
        one = self._by_old.get(topic)
        return topic if one is None else one.new

    def _written(self, row: Written) -> Written:
        return row._replace(segment=self._name(row.segment)) if row.segment is not None else row

    # --- what was committed ---------------------------------------------------------------------------------------------

    def into(self, truth: Truth) -> None:
        """Add the registrations and commits of the old logs to `truth`, the committed data of the common log. Each ledger gets its
        number in the common log.
        """
        for one in self._by_old.values():
            own = self._in_stream.topics[one.old].truth
            for number, registered in own.registered.items():
                if number > one.seal:
                    continue
                at = number + one.shift
                rows = self._rows(registered.first.rows, one)
                first = registered.first._replace(at=one.at, number=at, rows=rows)
                truth.registered[at] = Registered(first, topics=frozenset({one.new}))
                if (batch := own.committed.get(number)) is not None:
                    truth.committed[at] = type(batch)(
                        batch.label, rows, at, batch.txn, batch.version, batch.committed_at, topic=one.new
                    )

    @staticmethod
    def _rows(rows: Sequence[Written], one: Migration) -> tuple[Written, ...]:
        return tuple(row._replace(segment=one.segment) for row in rows)


def _between(which: int) -> float:
    """Return element `which` (from 0) of 1/2, 1/4, 3/4, 1/8, 3/8, ... These floats are exact, also as a sum with a whole number."""
    bits = (which + 1).bit_length()
    return (2 * (which + 1) + 1) / (1 << bits) - 1
