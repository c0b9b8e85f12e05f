"""Judge deliveries to a subscription (invariants 4, 5 and 11). Each delivered row must be committed and at its position. A consumer
must get each row at most once, and no unacknowledged row may be skipped. Unlike a micro-batch, a poll of a consumer need not return
all rows of a range of numbers, because the consumer decides how many rows it requests.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from conformance.history.acks import Acks, Row
from conformance.history.findings import Findings
from conformance.history.format import Poll, Time
from conformance.history.keys import Keys
from conformance.history.reading import Reading
from conformance.history.truth import Truth

Name = tuple[int, str]
"""A row: its number and its id."""


class Deliveries:
    """Judges polls of subscriptions, in the order in which they returned."""

    def __init__(self, truth: Truth, reading: Reading, acks: Acks, found: Findings) -> None:
        self._truth, self._reading, self._acks, self._found = truth, reading, acks, found
        self._given: dict[str, set[Name]] = defaultdict(set)
        self._began: dict[str, Time] = {}
        """Stream -> the time at which its last poll began."""
        self._polls: list[Poll] = []
        self._first: dict[str, Keys] = {}
        """Subscription -> the judge of the order of rows within each key. It judges only the first delivery of each row."""
        self._known: dict[str, set[Name]] = defaultdict(set)
        self._polled: dict[str, Time] = {}
        """Subscription -> the time at which its last poll with ordered rows (`Poll.ordered`) began."""

    def poll(self, event: Poll) -> None:
        self._reading.delivered(event)
        self._acks.poll(event)
        rows, given = {(row.position[0], row.id) for row in event.rows}, self._given[event.stream]
        twice = rows & given
        if twice and not self._moved(event, self._began.get(event.stream, event.began), event.at):
            self._found.note("duplicate", f"{event.stream}: {len(twice)} rows came before, e.g. {min(twice)}", event)
        given |= rows
        self._in_order(event)
        self._began[event.stream] = event.began
        self._polls.append(event)

    def _in_order(self, event: Poll) -> None:
        """Report a violation if the first deliveries of the rows of a key come in another order than the one in which the rows were
        written. Rows that were delivered before a move of the subscription are not compared with rows after the move. Polls without
        an order of their rows (`Poll.ordered`) are not judged.
        """
        if not event.ordered:
            return
        assert event.subscription is not None
        since = self._polled.get(event.subscription, event.began)
        self._polled[event.subscription] = event.began
        if self._acks.any_moved(event.subscription, min(since, event.began), event.at):
            self._first.pop(event.subscription, None)
            self._known.pop(event.subscription, None)
        known = self._known[event.subscription]
        new = tuple(row for row in event.rows if (row.position[0], row.id) not in known)
        known.update((row.position[0], row.id) for row in new)
        keys = self._first.setdefault(event.subscription, Keys(self._truth, self._found))
        keys.more(event._replace(rows=new), event.stream)

    def end(self, settled: Time) -> None:
        """Judge the complete history, when the positions and acks of all rows are known. Report each unacknowledged row that a
        consumer had not got when it got a later row of the segment. `settled`: as in `Acks.end`.
        """
        self._acks.end(settled, self._reading.placed)
        if not self._truth.store:
            return  # the checks below need the time of each commit, which is unknown without store records
        places, given = self._places(), defaultdict[str, set[Name]](set)
        tops: dict[tuple[str, str], Row] = {}
        before: dict[str, Time] = {}
        for poll in self._polls:
            if self._moved(poll, before.get(poll.stream, poll.began), poll.began):  # after a move, a consumer may get rows again
                given.pop(poll.stream, None)
                tops = {where: top for where, top in tops.items() if where[0] != poll.stream}
            before[poll.stream] = poll.began
            mine = given[poll.stream]
            for row in poll.rows:
                mine.add((row.position[0], row.id))
                where = (poll.stream, row.segment)
                tops[where] = max(row.position, tops.get(where, row.position))
            for (stream, segment), top in tops.items():
                if stream == poll.stream:
                    self._passed_over(poll, segment, places[segment], top, mine)

    def _moved(self, poll: Poll, after: Time, before: Time) -> bool:
        """Return whether the subscription of a poll was moved, deleted or created again between the two moments, on any segment."""
        assert poll.subscription is not None
        return self._acks.any_moved(poll.subscription, after, before)

    def _passed_over(self, poll: Poll, segment: str, rows: list[tuple[Row, str]], top: Row, given: set[Name]) -> None:
        assert poll.subscription is not None
        for position, name in rows[: bisect_left(rows, (top, ""))]:
            batch = self._truth.committed[position[0]]
            if (position[0], name) in given or batch.committed_at >= poll.began:
                continue
            if self._truth.trims.is_gone(segment, position[0], poll.at):
                continue
            if self._acks.covering(segment, poll.subscription, position, poll.at, poll.began) is None:
                text = f"{poll.stream} was given {top} of {segment} and never {position} ({name}), which nobody had acknowledged"
                self._found.note("poll skip", text, poll, invariant=11)
                return

    def _places(self) -> dict[str, list[tuple[Row, str]]]:
        """Return segment -> its committed rows whose position is known, as (position, row id), ordered by position."""
        found: dict[str, list[tuple[Row, str]]] = defaultdict(list)
        for (number, name), row in self._reading.placed.items():
            if number in self._truth.committed:
                found[row.segment].append((row.position, name))
        for rows in found.values():
            rows.sort()
        return found
