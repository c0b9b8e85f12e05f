"""Acks: one transaction holds a position, committed acks stay, released ones come again (invariant 11)."""

from __future__ import annotations

from collections import defaultdict

from conformance.history.findings import Findings
from conformance.history.format import Ack, Poll, Position, Time
from conformance.history.truth import NEVER, Truth

Range = tuple[Position, Position]
FIRST: Position = (-1, -1)


class Acks:
    """Follows the claims and the cursor of each (segment, subscription), in the order of the events."""

    def __init__(self, truth: Truth, found: Findings) -> None:
        self._truth, self._found = truth, found
        self._pending: dict[tuple[str, str], list[tuple[Range, Ack]]] = defaultdict(list)
        self._acked: dict[tuple[str, str], list[tuple[Range, Ack]]] = defaultdict(list)
        self._released: list[tuple[Range, Ack]] = []
        self._polls: dict[str, list[Poll]] = defaultdict(list)

    def ack(self, event: Ack) -> None:
        name = (event.segment, event.subscription)
        ranges = [(FIRST, end) for _, end in event.ranges] if event.cumulative else list(event.ranges)
        pending = self._pending[name]
        if event.state == "released":
            self._pending[name] = [(r, a) for r, a in pending if a.txn != event.txn or not any(_meet(r, each) for each in ranges)]
            self._released += [(each, event) for each in event.ranges]
            if self._state(event.txn, event.at) == "COMMITTED":
                self._found.note("committed ack lost", f"{_what(event)} of {event.txn}, COMMITTED, was released", event)
            return
        for each in ranges:
            self._free(each, event, name)
        if event.state == "pending":
            pending += [(each, event) for each in ranges]
            return
        if event.txn is not None and self._truth.store and self._state(event.txn, event.at) != "COMMITTED":
            text = f"{_what(event)} of {event.txn}, {self._state(event.txn, event.at)}, reached the cursor"
            self._found.note("ack of an aborted transaction", text, event)
        self._pending[name] = [(r, a) for r, a in pending if a.txn != event.txn or not any(_meet(r, each) for each in ranges)]
        self._acked[name] += [(each, event) for each in ranges]

    def _free(self, wanted: Range, event: Ack, name: tuple[str, str]) -> None:
        """Nobody else holds it; and it is not acked (a cumulative ack may cover what is)."""
        for held, ack in self._pending[name]:
            if ack.txn != event.txn and _meet(held, wanted) and self._state(ack.txn, event.at) != "ABORTED":
                text = f"{_what(event)} by {event.txn or 'a plain ack'} although {ack.txn} claims it"
                self._found.note("acked twice", text, ack, event)
        if event.cumulative:
            return
        for held, ack in self._acked[name]:
            if not ack.cumulative and _meet(held, wanted):
                self._found.note("acked twice", f"{_what(event)} by {event.txn or 'a plain ack'}: it was acked before", ack, event)
            elif ack.cumulative and wanted[1] <= held[1]:
                self._found.note("acked twice", f"{_what(event)} lies below the cursor {held[1]}", ack, event)

    def _state(self, txn: str | None, at: Time) -> str:
        known = self._truth.txns.get(txn or "")
        return "unknown" if known is None else known.state if known.decided_at <= at else "OPEN"

    def poll(self, event: Poll) -> None:
        if event.subscription is None:
            return
        self._polls[event.subscription].append(event)
        for row in event.rows:
            position = row.position[:2]
            for (first, last), ack in self._acked.get((row.segment, event.subscription), ()):
                if ack.at < event.began and first <= position <= last:
                    text = f"{event.stream} was given {position} of {row.segment}, which {event.subscription} had acked"
                    self._found.note("redelivered after ack", text, ack, event)

    def end(self, settled: Time) -> None:
        """When everything is over. `settled`: when the last read of a settled world began; NEVER: there was none."""
        for (segment, subscription), claims in self._pending.items():
            for _, ack in claims:
                if settled < NEVER and ack.at < settled and self._state(ack.txn, settled) == "COMMITTED":
                    text = f"the ack of {ack.txn}, COMMITTED, never reached the cursor of {subscription} on {segment}"
                    self._found.note("committed ack lost", text, ack)
        for (first, last), ack in self._released:
            self._redelivered(first, last, ack)

    def _redelivered(self, first: Position, last: Position, released: Ack) -> None:
        """Somebody is given it again, before rows beyond it, unless somebody who had been given it before has acked it since."""
        passed = None
        name = (released.segment, released.subscription)
        taken = [self._counts_from(ack) for held, ack in self._acked[name] if _meet(held, (first, last))]
        acked_at = min((at for at in taken if at > released.at), default=NEVER)
        for poll in self._polls[released.subscription]:
            if poll.began <= released.at or poll.at >= acked_at:
                continue
            positions = [row.position[:2] for row in poll.rows if row.segment == released.segment]
            if any(first <= position <= last for position in positions):
                return
            if any(position > last for position in positions):
                passed = poll
        if passed is not None:
            text = f"{released.subscription} was given what lies beyond {last} of {released.segment}, and not {first}..{last} again"
            self._found.note("not redelivered", text, released, passed)

    def _counts_from(self, ack: Ack) -> Time:
        """A transaction's ack counts from its decision on, whenever it is moved into the cursor."""
        known = self._truth.txns.get(ack.txn or "")
        return ack.at if known is None else min(ack.at, known.decided_at)


def _meet(one: Range, other: Range) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _what(event: Ack) -> str:
    ranges = ", ".join(f"{first[0]}:{first[1]}..{last[0]}:{last[1]}" for first, last in event.ranges)
    return f"{event.segment} {ranges} for {event.subscription}"
