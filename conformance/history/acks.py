"""Judge acknowledgements row by row (invariant 11). At any time at most one transaction may have a pending ack on a row.
Acknowledged rows must stay acknowledged. If a pending ack is released, its rows must be delivered again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from conformance.history.findings import Findings
from conformance.history.format import Ack, Place, Poll, Time
from conformance.history.format import Row as SeenRow
from conformance.history.truth import NEVER, Truth

Row = tuple[int, int, int]
Range = tuple[Row, Row]
"""The first and the last row of a range, both inclusive."""
FIRST: Row = (-1, -1, -1)
LAST = 1 << 62
"""The row index that stands for the last row of an entry."""


class Acks:
    """Follows the pending acks and the cursor of each (segment, subscription), in the order of the events."""

    def __init__(self, truth: Truth, found: Findings) -> None:
        self._truth, self._found = truth, found
        self._pending: dict[tuple[str, str], list[tuple[Range, Ack]]] = defaultdict(list)
        self._acked: dict[tuple[str, str], list[tuple[Range, Ack]]] = defaultdict(list)
        self._past: dict[tuple[str, str], list[tuple[Range, Ack, Time, Time]]] = defaultdict(list)
        """Acks that ended because the subscription was moved or deleted: rows, ack, and the times at which it began and ended."""
        self._moved: dict[tuple[str, str], list[Time]] = defaultdict(list)
        self._released: list[tuple[Range, Ack]] = []
        self._polls: dict[str, list[Poll]] = defaultdict(list)

    def ack(self, event: Ack) -> None:
        name = (event.segment, event.subscription)
        exact = [_rows(first, last) for first, last in event.ranges]
        if event.state in ("moved", "deleted"):
            self._move(event, exact)
            return
        ranges = [(FIRST, end) for _, end in exact] if event.cumulative else exact
        pending = self._pending[name]
        if event.state == "released":
            self._pending[name] = [(r, a) for r, a in pending if a.txn != event.txn or not any(_meet(r, each) for each in ranges)]
            behind = [held for held, ack in self._acked[name] if ack.state == "moved"]  # rows that a seek put behind the cursor
            self._released += [(each, event) for each in exact if not any(_meet(each, held) for held in behind)]
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

    def _move(self, event: Ack, exact: list[Range]) -> None:
        """Follow a move or a deletion of the subscription. Both end all earlier acks. A move then acknowledges the rows that it
        puts behind the cursor (`exact`), and leaves pending acks unchanged. A deletion also ends the pending acks.
        """
        name, at = (event.segment, event.subscription), event.at
        self._past[name] += [(each, ack, self._since(ack), at) for each, ack in self._acked[name]]
        self._acked[name] = [(each, event) for each in exact]
        self._moved[name].append(at)
        if event.state == "deleted":
            # A process that read the cursor before the deletion knows these pending acks. If the transaction of one of them commits
            # later, that process treats the rows of this pending ack as acknowledged.
            claimed = [(each, ack, max(ack.at, self._decided(ack)), at) for each, ack in self._pending.pop(name, ())]
            self._past[name] += [held for held in claimed if held[2] < NEVER]

    def moved(self, segment: str, subscription: str, after: Time, before: Time) -> bool:
        """Return whether the subscription was moved, deleted or created again on the segment between the two moments."""
        return any(after < at < before for at in self._moved.get((segment, subscription), ()))

    def any_moved(self, subscription: str, after: Time, before: Time) -> bool:
        """Return whether the subscription was moved, deleted or created again on any segment between the two moments."""
        return any(self.moved(*name, after, before) for name in self._moved if name[1] == subscription)

    def _free(self, wanted: Range, event: Ack, name: tuple[str, str]) -> None:
        """Report a violation if rows that an ack wants are acked already, or claimed by another transaction. A cumulative ack may
        cover rows that are acked already.
        """
        for held, ack in self._pending[name]:
            if ack.txn != event.txn and _meet(held, wanted) and self._state(ack.txn, event.at) != "ABORTED":
                text = f"{_what(event)} by {event.txn or 'a plain ack'} although {ack.txn} claims it"
                self._found.note("acked twice", text, ack, event)
        if event.cumulative:
            return
        for held, ack in self._acked[name]:
            if ack.state == "moved" and self._claimed_before(wanted, event, ack):
                continue
            if not ack.cumulative and _meet(held, wanted):
                self._found.note("acked twice", f"{_what(event)} by {event.txn or 'a plain ack'}: it was acked before", ack, event)
            elif ack.cumulative and wanted[1] <= held[1]:
                self._found.note("acked twice", f"{_what(event)} lies below the cursor {_text(*held)}", ack, event)

    def _claimed_before(self, wanted: Range, event: Ack, moved: Ack) -> bool:
        """Return whether the transaction of the ack `event` had claimed the row before the seek `moved` put the row behind the
        cursor. Such an ack is correct, because a seek leaves pending acks unchanged.
        """
        claims = self._pending[event.segment, event.subscription]
        return any(claim.txn == event.txn and claim.at < moved.at and _meet(held, wanted) for held, claim in claims)

    def _state(self, txn: str | None, at: Time) -> str:
        known = self._truth.txns.get(txn or "")
        return "unknown" if known is None else known.state if known.decided_at <= at else "OPEN"

    def poll(self, event: Poll) -> None:
        if event.subscription is None:
            return
        self._polls[event.subscription].append(event)
        for row in event.rows:
            ack = self.covering(row.segment, event.subscription, row.position, event.began, event.at)
            if ack is not None:
                text = f"{event.stream} was given {row.position} of {row.segment}, which {event.subscription} had acked"
                self._found.note("redelivered after ack", text, ack, event)

    def covering(self, segment: str, subscription: str, row: Row, at: Time, until: Time) -> Ack | None:
        """Return an ack that covered the row from before `at` until `until` or later; None if there is none. If `until` is earlier
        than `at`, the ack need only have covered the row at some moment between the two times.

        A pending ack covers its rows from the commit of its transaction on, also before the ack is settled.
        """
        name = (segment, subscription)
        for (first, last), ack in self._acked.get(name, ()):
            if first <= row <= last and self._since(ack) < at:
                return ack
        for (first, last), ack, since, gone in self._past.get(name, ()):
            if first <= row <= last and since < at and (gone > until if at <= until else gone >= until):
                return ack
        for (first, last), ack in self._pending.get(name, ()):
            if first <= row <= last and max(ack.at, self._decided(ack)) < at:
                return ack
        return None

    def _since(self, ack: Ack) -> Time:
        return min(ack.at, self._decided(ack))

    def _decided(self, ack: Ack) -> Time:
        """Return the time at which the ack's transaction committed; NEVER if there is no transaction or no commit."""
        known = self._truth.txns.get(ack.txn or "")
        return NEVER if known is None or known.state != "COMMITTED" else known.decided_at

    def end(self, settled: Time, placed: Mapping[tuple[int, str], SeenRow]) -> None:
        """Judge the complete history. `settled`: the time at which the final read began (`Read.final`), before which everything was
        settled; NEVER if the history has no final read. `placed`: (number, row id) -> the row, for each row that a reader got.
        """
        for (segment, subscription), claims in self._pending.items():
            for _, ack in claims:
                if settled < NEVER and ack.at < settled and self._state(ack.txn, settled) == "COMMITTED":
                    text = f"the ack of {ack.txn}, COMMITTED, never reached the cursor of {subscription} on {segment}"
                    self._found.note("committed ack lost", text, ack)
        for _, ack in self._released:
            known = self._truth.txns.get(ack.txn or "")
            if known is not None and known.state == "COMMITTED" and known.decided_at > ack.at:
                self._found.note("committed ack lost", f"{_what(ack)} of {ack.txn} was released before it committed", ack)
        for (first, last), ack in self._released:
            if self._hold_any(ack.segment, first, last, placed):
                self._redelivered(first, last, ack)

    def _hold_any(self, segment: str, first: Row, last: Row, placed: Mapping[tuple[int, str], SeenRow]) -> bool:
        """Return whether a committed row of the segment may lie between `first` and `last`. A row that no reader got has no known
        position. It may lie there if `first` and `last` enclose its number. Return True if the history has no store records.
        """
        if not self._truth.store:
            return True
        for number, batch in self._truth.committed.items():
            for row in batch.rows if first[0] <= number <= last[0] else ():
                seen = placed.get((number, row.id))
                if batch.place(row) == segment and (seen is None or first <= seen.position <= last):
                    return True
        return False

    def _redelivered(self, first: Row, last: Row, released: Ack) -> None:
        """Report a violation if later polls returned rows beyond the released rows, and none of them returned a released row. There
        are three exceptions: the subscription was moved or deleted; retention trimmed the rows; or a consumer that had received the
        rows before their release acknowledged them (`Deliveries` judges these rows one by one).
        """
        if self.moved(released.segment, released.subscription, released.at, NEVER):
            return
        later = self._acked.get((released.segment, released.subscription), ())
        meeting = [ack for held, ack in later if ack.at > released.at and _meet(held, (first, last))]
        taken = min((self._since(ack) for ack in meeting), default=NEVER)
        passed = None
        for poll in self._polls[released.subscription]:
            if poll.began <= released.at or poll.at > taken:
                continue
            positions = [row.position for row in poll.rows if row.segment == released.segment]
            if any(first <= position <= last for position in positions):
                return
            if any(position > last for position in positions) and not self._truth.trims.is_gone(released.segment, last[0], poll.at):
                passed = poll
        if passed is not None:
            text = f"{released.subscription} was given rows of {released.segment} beyond {_text(first, last)}, and not those again"
            self._found.note("not redelivered", text, released, passed)


def _meet(one: Range, other: Range) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _what(event: Ack) -> str:
    ranges = ", ".join(_text(*_rows(first, last)) for first, last in event.ranges)
    return f"{event.segment} {ranges} for {event.subscription}"


def _rows(first: Place, last: Place) -> Range:
    return (*first, 0)[:3], (*last, LAST)[:3]


def _text(first: Row, last: Row) -> str:
    end = f"{last[0]}:{last[1]}" + (f":{last[2]}" if last[2] < LAST else "")
    return f"{first[0]}:{first[1]}{f':{first[2]}' if first[2] else ''}..{end}"
