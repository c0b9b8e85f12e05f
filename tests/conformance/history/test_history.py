"""Tests of the history checker. For each anomaly there is a small history that contains it, and a similar correct history."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_history_in_stream import CASES as IN_STREAM

from conformance.command.main import main
from conformance.history.checker import check, verdict
from conformance.history.files import FormatError, Writer, line, merge, parse, read, repair, shortened, write
from conformance.history.findings import WORDS
from conformance.history.format import (
    Abort,
    Ack,
    Application,
    Commit,
    Complaint,
    Counts,
    Drained,
    End,
    Event,
    Header,
    Horizon,
    Layout,
    Plan,
    Poll,
    Read,
    ReadFailed,
    Registration,
    Row,
    Seal,
    Segment,
    Start,
    Sweep,
    Told,
    Trim,
    Watermark,
    Written,
)

T, U = "topic://p/d/t", "topic://p/d/u"
S, V = "segment://p/d/t/0000-7fff-0", "segment://p/d/t/8000-ffff-1"
LEFT, RIGHT = "segment://p/d/t/0000-3fff-2", "segment://p/d/t/4000-7fff-3"
SU = "segment://p/d/u/0000-ffff-0"


class H:
    """A builder of histories. The time of each event is the number of events before it."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def now(self) -> int:
        return len(self.events)

    def add(self, kind: Callable[..., Event], *fields: Any, **more: Any) -> H:
        self.events.append(kind(self.now(), *fields, **more))
        return self

    # events that the records of the store show

    def open(self, txn: str, version: int = 0, *, app: str = "a", attempt: str | None = None, deadline: int = 1000) -> H:
        return self.add(Header, txn, "OPEN", app, T, version, attempt or f"try-{txn}", None, deadline)

    def register(self, number: int, txn: str | None, *rows: tuple[str, str]) -> H:
        return self.add(Registration, number, txn, None, tuple(Written(i, None, s) for i, s in rows))

    def decide(self, txn: str, number: int | None, version: int = 0, *, app: str = "a") -> H:
        return self.add(Header, txn, "COMMITTED", app, T, version, f"try-{txn}", number)

    def drop(self, txn: str, version: int = 0, *, by: str | None = None) -> H:
        return self.add(Header, txn, "ABORTED", "a", T, version, f"try-{txn}", by=by)

    def trims(self, segment: str, through: int, *, took: int = 0) -> H:
        """Add a trim of a segment. The trim began `took` steps before this event."""
        return self.add(Trim, self.now() - took, segment, through)

    def settle(self, number: int, state: str) -> H:
        return self.add(Registration, number, state=state)

    def commits(self, number: int, version: int, *, app: str = "a") -> H:
        """Add all events of a committed transaction over both segments."""
        txn = f"0_{number}"
        return self.open(txn, version, app=app).register(number, txn, *rows(number)).decide(txn, number, version, app=app)

    # events that clients record

    def asks(self, call: str, version: int = 0, *ids: str, app: str = "a", key: str | None = None, **more: Any) -> H:
        return self.add(Commit, call, "writer", app, T, version, tuple(Written(i, key) for i in ids), **more)

    def told(self, call: str, said: str = "committed", txn: str | None = None, number: int | None = None, **more: Any) -> H:
        return self.add(Told, call, said, txn, number, **more)

    def writes(self, call: str, version: int, number: int, *ids: str) -> H:
        return self.asks(call, version, *ids).told(call, "committed", f"0_{number}", number)

    # events that readers record

    def reads(self, *seen: Row, began: int | None = None, who: str = "r", topics: tuple[str, ...] = (T,), **more: Any) -> H:
        return self.add(Read, self.now() if began is None else began, who, topics, seen, **more)

    def polls(self, batch: int, start: int, end: int, *seen: Row, began: int | None = None, **more: Any) -> H:
        return self.add(Poll, self.now() if began is None else began, "s", batch, (T,), seen, start, end, **more)


def rows(number: int) -> tuple[tuple[str, str], tuple[str, str]]:
    return (f"{number}-s", S), (f"{number}-v", V)


def at(number: int, name: str = "s", entry: int = 0, *, key: str | None = None, segment: str | None = None) -> Row:
    """Return a row of the ledger `number`. `segment`: the row's segment; None means S for the name `s`, and V for the name `v`."""
    return Row(f"{number}-{name}", segment or {"s": S, "v": V}[name], (number, entry, 0), key)


def both(*numbers: int) -> list[Row]:
    return [at(n) for n in numbers] + [at(n, "v") for n in numbers]


def row(name: str, number: int, index: int = 0, *, key: str | None = None, segment: str = S) -> Row:
    return Row(name, segment, (number, 0, index), key)


def of(txn: str, *seen: Row) -> list[Row]:
    """Return copies of the rows. Each copy has the transaction id `txn`."""
    return [each._replace(txn=txn) for each in seen]


def sealed(number: int) -> Segment:
    return Segment(S, 0, 0x7FFF, False, (), number)


def layout(epoch: int, *segments: Segment, deleted: bool = False) -> dict[str, Any]:
    return {"topic": T, "epoch": epoch, "segments": segments, "deleted": deleted}


TWO = (Segment(S, 0, 0x7FFF, True), Segment(V, 0x8000, 0xFFFF, True))
SPLIT = (
    Segment(S, 0, 0x7FFF, False, sealed_at=5),
    Segment(LEFT, 0, 0x3FFF, True, (S,)),
    Segment(RIGHT, 0x4000, 0x7FFF, True, (S,)),
    TWO[1],
)


def acks(state: str, txn: str | None, first: int, last: int, **more: Any) -> dict[str, Any]:
    return {"segment": S, "subscription": "x", "state": state, "ranges": (((first, 0), (last, 0)),), "txn": txn, **more}


def moved(*names: str) -> H:
    """Return a history in which the subscription `x` delivers the rows `p` and `q`, and a program moves these rows to topic U.
    `names`: the rows that were registered in topic U.
    """
    seen = row("p", 1), row("q", 1, 1)
    h = H().register(1, None, ("p", S), ("q", S)).register(2, None, *((name, SU) for name in names))
    return h.polls(0, 0, 1, *seen, subscription="x").add(Drained, 2, "x", (T,), U).reads(*seen, final=True)


def later_first(*between: Any, ordered: bool = True, **fields: Any) -> H:
    """Return a history in which the subscription `x` delivers a row in one poll, and an earlier row of the same key in the next
    poll. `between`: the kind of an event between the two polls; `fields`: the fields of this event.
    """
    given = {"subscription": "x", "ordered": ordered}
    h = H().add(Ack, **acks("moved", None, 0, 0)).asks("c", 0, "x", "y", key="k").told("c", "committed", "0_1", 1)
    h = h.polls(0, 0, 1, row("y", 1, key="k"), **given)
    return (h.add(*between, **fields) if between else h).polls(1, 0, 1, row("x", 1, 1, key="k"), **given)


# Each case: the anomaly, its invariant, a wrong history, and a similar correct one. A comment that does not say to which history it
# belongs describes the wrong one, or both.
CASES: list[tuple[str, int, H, H]] = [
    # --- invariants 1 to 3: headers
    (
        "ended twice",
        1,
        H().commits(1, 0).drop("0_1"),
        H().commits(1, 0).add(Header, "0_1", "gone"),
    ),
    ("ended twice", 1, H().open("0_1").add(Header, "0_1", "gone"), H().open("0_1").drop("0_1").add(Header, "0_1", "gone")),
    ("ended twice", 1, H().drop("0_1"), H().open("0_1").drop("0_1")),
    (
        "ended both ways",
        2,
        H().open("0_1").drop("0_1").add(End, "e", "w", "0_1", "commit").told("e", "committed"),
        H().open("0_1").drop("0_1").add(End, "e", "w", "0_1", "commit").told("e", "failed"),
    ),
    (
        "ended both ways",
        2,
        H().add(End, "e", "w", "0_1", "commit").told("e").add(End, "f", "v", "0_1", "abort").told("f", "aborted"),
        H().add(End, "e", "w", "0_1", "commit").told("e").add(End, "f", "v", "0_1", "abort").told("f", "failed"),
    ),
    (
        "repeat refused",
        2,
        H().add(End, "e", "w", "0_1", "commit").told("e").add(End, "f", "w", "0_1", "commit").told("f", "failed"),
        H().add(End, "e", "w", "0_1", "commit").told("e").add(End, "f", "w", "0_1", "commit").told("f"),
    ),
    (
        "unknown transaction ended",
        2,
        H().open("0_1").add(End, "e", "w", "0_9", "abort").told("e", "aborted"),
        H().open("0_1").add(End, "e", "w", "0_9", "abort").told("e", "failed"),
    ),
    (
        "txn id reused",
        3,
        H().open("0_1").drop("0_1").add(Header, "0_1", "gone").open("0_1", 1),
        H().open("0_1").drop("0_1").add(Header, "0_1", "gone").open("0_2", 1),
    ),
    (
        "ended another's transaction",
        3,
        H().open("0_1").drop("0_1", by="try-0_0"),
        H().open("0_1").drop("0_1", by="try-0_1"),
    ),
    (
        "ended another's transaction",
        3,
        H().asks("c", attempt="late").commits(1, 0).told("c", "committed", "0_1"),
        H().asks("c", attempt="try-0_1").commits(1, 0).told("c", "committed", "0_1"),
    ),
    (
        "ended another's transaction",
        3,
        H().open("0_1").register(1, "0_1", *rows(1)).open("0_2", app="b").decide("0_2", 1, app="b"),
        H().open("0_1").register(1, "0_1", *rows(1)).open("0_2", app="b").decide("0_1", 1),
    ),
    # --- invariant 4: rows that must not be visible
    (
        "aborted read",
        4,
        H().open("0_1").register(1, "0_1", *rows(1)).drop("0_1").reads(*both(1), start=0, end=1),
        H().open("0_1").register(1, "0_1", *rows(1)).drop("0_1").reads(start=0, end=1),
    ),
    (
        # the header names only the second registration of the transaction, so rows of the first are not visible (failure A26)
        "aborted read",
        4,
        H()
        .open("0_1")
        .register(1, "0_1", *rows(1))
        .register(2, "0_1", *rows(1))
        .decide("0_1", 2)
        .reads(*both(1), *(Row(r.id, r.segment, (2, 0, 0)) for r in both(1)), start=0, end=2, ordered=False),
        H()
        .open("0_1")
        .register(1, "0_1", *rows(1))
        .register(2, "0_1", *rows(1))
        .decide("0_1", 2)
        .reads(*(Row(r.id, r.segment, (2, 0, 0)) for r in both(1)), start=0, end=2),
    ),
    (
        "aborted read",
        4,
        H().asks("c", 0, "x").told("c", "failed").reads(row("x", 1)),
        H().asks("c", 0, "x").told("c", "unknown").reads(row("x", 1)),
    ),
    (
        "precommitted read",
        4,
        H().open("0_1").register(1, "0_1", *rows(1)).reads(*both(1), start=0, end=1).decide("0_1", 1),
        H().open("0_1").register(1, "0_1", *rows(1)).decide("0_1", 1).reads(*both(1), start=0, end=1),
    ),
    ("precommitted read", 4, H().reads(row("x", 1)).writes("c", 0, 1, "x"), H().writes("c", 0, 1, "x").reads(row("x", 1))),
    (
        "precommitted read",  # in the correct history the row is visible between the request and its reply
        4,
        H().reads(row("x", 1)).asks("c", 0, "x").told("c", "committed", "0_1", 1),
        H().asks("c", 0, "x").reads(row("x", 1)).told("c", "committed", "0_1", 1),
    ),
    (
        "wrong transaction",
        4,
        H().commits(1, 0).reads(*of("0_2", *both(1)), start=0, end=1),
        H().commits(1, 0).reads(*of("0_1", *both(1)), start=0, end=1),
    ),
    (
        "wrong transaction",  # in the wrong history only the poll is wrong, not the read before it
        4,
        H().commits(1, 0).reads(*of("0_1", *both(1)), start=0, end=1).polls(0, 0, 1, *of("0_2", *both(1))),
        H().commits(1, 0).reads(*of("0_1", *both(1)), start=0, end=1).polls(0, 0, 1, *of("0_1", *both(1))),
    ),
    (
        "wrong transaction",  # the rows were written without a transaction, so their transaction id must be empty
        4,
        H().register(1, None, *rows(1)).reads(*of("0_1", *both(1)), start=0, end=1),
        H().register(1, None, *rows(1)).reads(*both(1), start=0, end=1),
    ),
    (
        "wrong transaction",  # the history has no records of the store, so the right transaction id is that of the reply
        4,
        H().writes("c", 0, 1, "x").reads(*of("0_2", row("x", 1))),
        H().writes("c", 0, 1, "x").reads(*of("0_1", row("x", 1))),
    ),
    (
        "unwritten read",
        4,
        H().commits(1, 0).reads(*both(1), at(2), start=0, end=2),
        H().commits(1, 0).reads(*both(1), start=0, end=2),
    ),
    (
        "unwritten read",
        4,
        H().writes("c", 0, 1, "x").reads(row("x", 1), row("y", 1, 1)),
        H().writes("c", 0, 1, "x").reads(row("x", 1)),
    ),
    (
        "other rows committed",  # the registered rows differ from the requested ones
        4,
        H().asks("c", 0, "1-s", attempt="try-0_1").commits(1, 0).told("c", "committed", "0_1"),
        H().asks("c", 0, "1-s", "1-v", attempt="try-0_1").commits(1, 0).told("c", "committed", "0_1"),
    ),
    (
        "wrongly settled",
        4,
        H().open("0_1").register(1, "0_1", *rows(1)).drop("0_1").settle(1, "COMMITTED"),
        H().open("0_1").register(1, "0_1", *rows(1)).drop("0_1").settle(1, "VOID"),
    ),
    ("wrongly settled", 5, H().commits(1, 0).settle(1, "VOID"), H().commits(1, 0).settle(1, "COMMITTED")),
    # --- invariant 5: committed rows are visible, exactly once
    ("lost write", 5, H().commits(1, 0).reads(start=0, end=1), H().commits(1, 0).reads(*both(1), start=0, end=1)),
    ("lost write", 5, H().commits(1, 0).reads(final=True), H().commits(1, 0).reads(*both(1), final=True)),
    (
        "lost write",
        5,
        H().open("0_1").asks("c", attempt="try-0_1").told("c", "committed", "0_1"),
        H().asks("c", attempt="try-0_1").commits(1, 0).told("c", "committed", "0_1"),
    ),
    ("lost write", 5, H().writes("c", 0, 1, "x").reads(), H().asks("c", 0, "x").reads().told("c")),
    (
        "lost write",
        5,
        H().asks("c", 0, "x").told("c").reads(final=True),
        H().asks("c", 0, "x").told("c", "unknown").reads(final=True),
    ),
    (
        "duplicate",
        5,
        H().commits(1, 0).reads(*both(1), at(1), start=0, end=1, ordered=False),
        H().commits(1, 0).reads(*both(1), start=0, end=1, ordered=False),
    ),
    ("duplicate", 5, H().writes("c", 0, 1, "x").reads(row("x", 1), row("x", 1)), H().writes("c", 0, 1, "x").reads(row("x", 1))),
    (
        "duplicate",
        5,
        H().commits(1, 0).commits(2, 1).polls(0, 0, 1, *both(1)).polls(1, 1, 2, *both(1, 2)),
        H().commits(1, 0).commits(2, 1).polls(0, 0, 1, *both(1)).polls(1, 1, 2, *both(2)),
    ),
    (
        "trimmed rows came back",
        5,
        H().commits(1, 0).commits(2, 1).trims(S, 1).reads(*both(1, 2), start=0, end=2),
        H().commits(1, 0).commits(2, 1).trims(S, 1).reads(*both(2), start=0, end=2),
    ),
    (
        "trimmed rows came back",
        5,
        H().writes("c", 0, 1, "x").reads(row("x", 1)).trims(S, 1).reads(row("x", 1)),
        H().writes("c", 0, 1, "x").reads(row("x", 1)).trims(S, 1).reads(),
    ),
    (
        "trimmed rows came back",
        5,
        H().commits(1, 0).trims(S, 1).reads(*both(1), start=0, end=1),
        H().commits(1, 0).trims(S, 1).reads(*both(1), start=0, end=1, began=2),
    ),
    (
        "torn read",
        9,
        H().commits(1, 0).reads(at(1, "v"), start=0, end=1, began=2).trims(S, 1, took=1),
        H().commits(1, 0).trims(S, 1).reads(start=0, end=1, began=2),
    ),
    (
        "torn read",  # retention has trimmed only one of the two segments
        9,
        H().commits(1, 0).commits(2, 1).trims(S, 1).reads(at(2), at(1, "v"), at(2, "v"), start=0, end=2),
        H().commits(1, 0).commits(2, 1).trims(S, 1).reads(*both(2), start=0, end=2),
    ),
    (
        "lost write",
        5,
        H().writes("c", 0, 1, "x").reads(row("x", 1)).trims(SU, 1).reads(),
        H().writes("c", 0, 1, "x").reads(row("x", 1)).trims(V, 1).reads(),
    ),
    (
        "torn read",
        9,
        H().commits(1, 0).commits(2, 1).polls(0, 0, 1, *both(1)).trims(S, 2).polls(1, 1, 2, at(2, "v")),
        H().commits(1, 0).commits(2, 1).trims(S, 2).polls(0, 0, 1).polls(1, 1, 2),
    ),
    (
        "torn read",
        9,
        H().commits(1, 0).commits(2, 1).trims(S, 1).polls(0, 0, 1, at(1, "v")).polls(1, 1, 2, *both(2)),
        H().commits(1, 0).commits(2, 1).trims(S, 1).polls(0, 0, 1).polls(1, 1, 2, *both(2)),
    ),
    (
        "internal skip",
        5,
        H().commits(1, 0).commits(2, 1).commits(3, 2).reads(*both(1, 3), start=0, end=3),
        H().commits(1, 0).commits(2, 1).commits(3, 2).reads(*both(1, 2, 3), start=0, end=3),
    ),
    (
        "internal skip",
        5,
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").reads(row("y", 2)),
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").reads(row("x", 1), row("y", 2)),
    ),
    (
        "poll skip",
        5,
        H().commits(1, 0).commits(2, 1).polls(0, 0, 0).polls(1, 1, 2, *both(2)),
        H().commits(1, 0).commits(2, 1).polls(0, 0, 1, *both(1)).polls(1, 1, 2, *both(2)),
    ),
    (
        "poll skip",
        5,
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").add(Poll, 4, "s", 0, (T,), (row("y", 2),)),
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").add(Poll, 4, "s", 0, (T,), (row("x", 1), row("y", 2))),
    ),
    (
        "nonmonotonic poll",
        5,
        H().commits(1, 0).commits(2, 1).polls(0, 0, 2, *both(1, 2)).polls(1, 1, 2, *both(2)),
        H().commits(1, 0).commits(2, 1).polls(0, 0, 2, *both(1, 2)).polls(1, 2, 3),
    ),
    (
        "replay differs",
        5,
        H().commits(1, 0).polls(0, 0, 1, *both(1)).polls(0, 0, 1, at(1)),
        H().commits(1, 0).polls(0, 0, 1, *both(1)).polls(0, 0, 1, *reversed(both(1))),
    ),
    (
        "moved row",
        5,
        H().commits(1, 0).reads(*both(1), start=0, end=1).reads(at(1, "s", 1), at(1, "v"), start=0, end=1),
        H().commits(1, 0).reads(*both(1), start=0, end=1).reads(*both(1), start=0, end=1),
    ),
    (
        "outside its range",
        5,
        H().commits(1, 0).commits(2, 1).reads(*both(1, 2), start=0, end=1),
        H().commits(1, 0).commits(2, 1).reads(*both(1), start=0, end=1),
    ),
    (
        "read failed",
        5,
        H().add(ReadFailed, "r", "MissingFile", False),
        H().add(ReadFailed, "r", "Unavailable", True),
    ),
    # --- invariant 6: the cut and the maxReadPosition
    (
        "beyond an open transaction",
        6,
        H().open("0_1").register(1, "0_1", *rows(1)).reads(start=0, end=1, cut=1).drop("0_1"),
        H().open("0_1").register(1, "0_1", *rows(1)).reads(start=0, end=0, cut=0).drop("0_1"),
    ),
    (
        "beyond an open transaction",
        6,
        H().open("0_1").register(1, "0_1", *rows(1)).add(Watermark, S, (1, 0)).drop("0_1"),
        H().open("0_1").register(1, "0_1", *rows(1)).drop("0_1").add(Watermark, S, (1, 0)),
    ),
    (
        "horizon went back",
        6,
        H().commits(1, 0).reads(*both(1), start=0, end=1, cut=4).reads(*both(1), start=0, end=1, cut=3, who="other"),
        H().commits(1, 0).reads(*both(1), start=0, end=1, cut=4).reads(*both(1), start=0, end=1, cut=3, began=1),
    ),
    (
        "horizon went back",
        6,
        H().add(Watermark, S, (3, 0)).add(Watermark, S, (2, 0)),
        H().add(Watermark, S, (3, 0)).add(Watermark, V, (2, 0)),
    ),
    (
        "horizon went back",
        6,
        H().add(Horizon, 0, "r", (T,), 4, ((S, (4, 1)),)).add(Horizon, 1, "r", (T,), 5, ((S, (4, 0)),)),
        H().add(Horizon, 0, "r", (T,), 4, ((S, (4, 0)),)).add(Horizon, 1, "r", (T,), 5, ((S, (4, 1)),)),
    ),
    (
        "watermark deleted",
        6,
        H().add(Layout, **layout(0, *TWO)).add(Watermark, S, (3, 0)).add(Watermark, S),
        H().add(Layout, **layout(0, *SPLIT[1:])).add(Watermark, S, (3, 0)).add(Watermark, S),
    ),
    # --- invariant 7: no row appears at or below a cut
    (
        "late registration",
        7,
        H().commits(1, 0).settle(1, "COMMITTED").settle(1, "gone").settle(1, "COMMITTED"),
        H().commits(1, 0).settle(1, "COMMITTED").settle(1, "gone"),
    ),
    (
        "late registration",
        7,
        H().reads(start=0, end=1, cut=1).commits(1, 0),
        H().reads(start=0, end=0, cut=0).commits(1, 0),
    ),
    ("late registration", 7, H().commits(2, 0).commits(1, 1), H().commits(1, 0).commits(2, 1)),
    *(
        (
            "lost write",
            5,
            H().open("0_1").drop("0_1").asks("c", 0, "x", query="q").add(Application, "a", T, 0, "q").told("c", said),
            H()
            .open("0_1")
            .drop("0_1")
            .asks("b", query="q")
            .asks("c", 0, "x", query="q")
            .add(Application, "a", T, 0, "q")
            .told("c", said),
        )
        for said in ("committed", "skipped")
    ),
    (
        "moved row",
        5,
        H().writes("c", 0, 1, "x", "y").reads(row("x", 1), row("y", 1), ordered=False),
        H().writes("c", 0, 1, "x", "y").reads(row("x", 1), row("y", 1, 1), ordered=False),
    ),
    # --- invariant 8: one commit for each version
    ("version committed twice", 8, H().commits(1, 0).commits(2, 0), H().commits(1, 0).commits(2, 1)),
    (
        "version committed twice",
        8,
        H().writes("c", 0, 1, "x").writes("d", 0, 2, "y"),
        H().writes("c", 0, 1, "x").asks("d", 0, "y").told("d", "skipped"),
    ),
    (
        "version committed twice",
        8,
        H().asks("c", 0, "x").told("c", "unknown").reads(row("x", 1), row("x", 2)),
        H().asks("c", 0, "x").told("c", "unknown").reads(row("x", 2)),
    ),
    ("versions out of order", 8, H().commits(1, 3).commits(2, 2), H().commits(1, 2).commits(2, 3)),
    (
        "versions out of order",
        8,
        H().commits(1, 0).add(Application, "a", T, 2).add(Application, "a", T, 1),
        H().commits(1, 0).add(Application, "a", T, 0).add(Application, "a", T).add(Application, "a", T, 1),
    ),
    (
        "versions out of order",
        8,
        H().writes("c", 3, 1, "x").writes("d", 2, 2, "y"),
        H().writes("c", 2, 1, "x").writes("d", 3, 2, "y"),
    ),
    (
        "wrong answer",
        8,
        H().asks("c", query="q", attempt="z").open("0_1").told("c", "conflict"),
        H().asks("c", query="q", attempt="z").commits(1, 0).told("c", "conflict"),
    ),
    (
        "wrong answer",
        8,
        H().asks("b", query="p", attempt="try-0_1").commits(1, 0).asks("c", query="q").told("c", "skipped"),
        H().asks("b", query="q", attempt="try-0_1").commits(1, 0).asks("c", query="q").told("c", "skipped"),
    ),
    (
        "wrong answer",
        8,
        H().asks("b", attempt="try-0_1").commits(1, 0).told("b", "failed"),
        H().asks("b", attempt="another").commits(1, 0).told("b", "failed"),
    ),
    (
        "wrong answer",
        8,
        H().commits(1, 0).add(Abort, "x", "w", txn="0_1").told("x", "aborted"),
        H().open("0_1").drop("0_1").add(Abort, "x", "w", txn="0_1").told("x", "aborted"),
    ),
    # --- invariant 9: transactions are visible as a whole, and in time
    ("torn read", 9, H().commits(1, 0).reads(at(1), start=0, end=1), H().commits(1, 0).reads(*both(1), start=0, end=1)),
    ("torn read", 9, H().commits(1, 0).polls(0, 0, 1, at(1, "v")), H().commits(1, 0).polls(0, 0, 1, *both(1))),
    (
        "torn read",
        9,
        H().writes("c", 0, 1, "x", "y").reads(row("x", 1)),
        H().writes("c", 0, 1, "x", "y").reads(row("x", 1), row("y", 1, 1)),
    ),
    (
        "stale read",
        9,
        H().commits(1, 0).reads(start=0, end=0, cut=0),
        H().open("0_0", app="b").register(0, "0_0", *rows(0)).commits(1, 0).reads(start=-1, end=-1, cut=-1),
    ),
    (
        "stale read",
        9,
        H().writes("c", 0, 1, "x").reads(start=0, end=0, cut=0),
        H().asks("b", 0, "y", app="b").writes("c", 0, 1, "x").reads(start=0, end=0, cut=0),
    ),
    (
        "beyond its cut",
        9,
        H().commits(1, 0).add(Plan, 3, "s", (T,), 0, 2, 1),
        H().commits(1, 0).add(Plan, 3, "s", (T,), 0, 1, 1),
    ),
    (
        "beyond its cut",
        6,
        H().add(Horizon, 0, "r", (T,), 4, ((S, (5, 0)),)),
        H().add(Horizon, 0, "r", (T,), 5, ((S, (5, 0)),)),
    ),
    (
        "stands still",
        9,
        H().commits(1, 0).add(Plan, 3, "s", (T,), 0, 0, 1),
        H().commits(1, 0).add(Plan, 3, "s", (T,), 1, 1, 1),
    ),
    (
        "stands still",  # retention left the rows of transaction 2, so the plan must include them
        9,
        H().commits(1, 0).commits(2, 1).trims(S, 1).trims(V, 1).add(Plan, 3, "s", (T,), 0, 0, 1),
        H().commits(1, 0).commits(2, 1).trims(S, 2).trims(V, 2).add(Plan, 3, "s", (T,), 0, 0, 1),
    ),
    (
        "stands still",  # retention removed all rows of one segment, but not those of the other
        9,
        H().commits(1, 0).commits(2, 1).trims(S, 2).add(Plan, 3, "s", (T,), 0, 0, 1),
        H().commits(1, 0).commits(2, 1).trims(S, 2).trims(V, 2).add(Plan, 3, "s", (T,), 0, 0, 1),
    ),
    (
        "stands still",  # in the wrong history the plan began after the trim was complete
        9,
        H().commits(1, 0).commits(2, 1).trims(S, 2).trims(V, 2).add(Plan, 8, "s", (T,), 0, 0, 1),
        H().commits(1, 0).commits(2, 1).trims(S, 2).trims(V, 2).add(Plan, 3, "s", (T,), 0, 0, 1),
    ),
    # --- invariant 10: deadlines
    (
        "open past its deadline",
        10,
        H().open("0_1", deadline=50).add(Sweep, 1, "w", 60),
        H().open("0_1", deadline=50).add(Sweep, 1, "w", 40),
    ),
    (
        "open past its deadline",
        10,
        H().open("0_1", deadline=50).add(Sweep, 1, "w", 60).drop("0_1"),
        H().open("0_1", deadline=50).drop("0_1").add(Sweep, 1, "w", 60),
    ),
    # --- invariant 11: acks
    (
        "acked twice",
        11,
        H().open("0_1").open("0_2").add(Ack, **acks("pending", "0_1", 1, 3)).add(Ack, **acks("pending", "0_2", 3, 4)),
        H().open("0_1").open("0_2").add(Ack, **acks("pending", "0_1", 1, 2)).add(Ack, **acks("pending", "0_2", 3, 4)),
    ),
    (
        "acked twice",
        11,
        H().open("0_1").add(Ack, **acks("pending", "0_1", 1, 3)).add(Ack, **acks("acked", None, 2, 2)),
        H().open("0_1").add(Ack, **acks("pending", "0_1", 1, 3)).add(Ack, **{**acks("acked", None, 2, 2), "subscription": "x1"}),
    ),
    (
        "acked twice",
        11,
        H().add(Ack, **acks("acked", None, 5, 5, cumulative=True)).add(Ack, **acks("acked", None, 2, 2)),
        H().add(Ack, **acks("acked", None, 5, 5, cumulative=True)).add(Ack, **acks("acked", None, 6, 6)),
    ),
    (
        "ack of an aborted transaction",
        11,
        H().open("0_1").add(Ack, **acks("pending", "0_1", 1, 1)).drop("0_1").add(Ack, **acks("acked", "0_1", 1, 1)),
        H().open("0_1").add(Ack, **acks("pending", "0_1", 1, 1)).decide("0_1", None).add(Ack, **acks("acked", "0_1", 1, 1)),
    ),
    (
        "committed ack lost",
        11,
        H().open("0_1").add(Ack, **acks("pending", "0_1", 1, 1)).decide("0_1", None).add(Ack, **acks("released", "0_1", 1, 1)),
        H().open("0_1").add(Ack, **acks("pending", "0_1", 1, 1)).drop("0_1").add(Ack, **acks("released", "0_1", 1, 1)),
    ),
    (
        "committed ack lost",
        11,
        H().open("0_1").add(Ack, **acks("pending", "0_1", 1, 1)).decide("0_1", None).reads(final=True),
        H()
        .open("0_1")
        .add(Ack, **acks("pending", "0_1", 1, 1))
        .decide("0_1", None)
        .add(Ack, **acks("acked", "0_1", 1, 1))
        .reads(final=True),
    ),
    (
        "redelivered after ack",
        11,
        H().commits(1, 0).add(Ack, **acks("acked", None, 1, 1)).polls(0, 0, 1, *both(1), subscription="x"),
        H().commits(1, 0).add(Ack, **acks("acked", None, 1, 1)).polls(0, 0, 1, *both(1), subscription="x1"),
    ),
    (
        "never delivered",
        11,
        H().commits(1, 0).polls(0, 0, 1, at(1), subscription="x").add(Drained, 4, "x", (T,)).reads(*both(1), final=True),
        H().commits(1, 0).polls(0, 0, 1, *both(1), subscription="x").add(Drained, 4, "x", (T,)).reads(*both(1), final=True),
    ),
    (
        "acknowledged without its rows",
        9,
        moved("p").reads(row("p", 2, segment=SU), topics=(U,), final=True),
        moved("p", "q").reads(row("p", 2, segment=SU), row("q", 2, 1, segment=SU), topics=(U,), final=True),
    ),
    (
        "not redelivered",
        11,
        H()
        .commits(1, 0)
        .commits(2, 1)
        .open("0_9", 5)
        .add(Ack, **acks("pending", "0_9", 1, 1))
        .drop("0_9", 5)
        .add(Ack, **acks("released", "0_9", 1, 1))
        .polls(0, 1, 2, *both(2), subscription="x"),
        H()
        .commits(1, 0)
        .commits(2, 1)
        .open("0_9", 5)
        .add(Ack, **acks("pending", "0_9", 1, 1))
        .drop("0_9", 5)
        .add(Ack, **acks("released", "0_9", 1, 1))
        .polls(0, 0, 2, *both(1, 2), subscription="x"),
    ),
    (
        "not redelivered",
        11,
        H()
        .commits(1, 0)
        .commits(2, 1)
        .open("0_9", 5)
        .add(Ack, **acks("pending", "0_9", 1, 1))
        .drop("0_9", 5)
        .add(Ack, **acks("released", "0_9", 1, 1))
        .polls(0, 1, 2, *both(2), subscription="x")
        .add(Ack, **acks("acked", None, 1, 1)),
        H()  # in the correct history another consumer had received the row before, and has acknowledged it since
        .commits(1, 0)
        .commits(2, 1)
        .open("0_9", 5)
        .add(Ack, **acks("pending", "0_9", 1, 1))
        .drop("0_9", 5)
        .add(Ack, **acks("released", "0_9", 1, 1))
        .add(Ack, **acks("acked", None, 1, 1))
        .polls(0, 1, 2, *both(2), subscription="x"),
    ),
    # --- invariants 12 and 13: seals and layouts
    (
        "written after the seal",
        12,
        H().add(Seal, 0, T, (S,), "split", 0).commits(1, 0),
        H().open("0_0").register(0, "0_0", *rows(0)).add(Seal, 1, T, (S,), "split", 0).decide("0_0", 0),
    ),
    (
        "stalled by a seal",
        12,
        H()
        .add(Commit, "c", "w", "a", T, 0, (Written("x", None, S),), attempt="try-0_1")
        .open("0_1")
        .register(1, "0_1", ("x", S))
        .add(Seal, 2, T, (S,), "split", 0)
        .told("c", "failed", number=1, error="SegmentSealed"),
        H()
        .add(Commit, "c", "w", "a", T, 0, (Written("x", None, S),), attempt="try-0_1")
        .add(Seal, 1, T, (S,), "delete", 0)
        .open("0_1")
        .register(2, "0_1", ("x", S))
        .told("c", "failed", number=2, error="SegmentSealed"),
    ),
    (
        "stalled by a seal",  # the seal belongs to a split, so the writer had to continue in the children of the segment
        12,
        H()
        .add(Commit, "c", "w", "a", T, 0, (Written("x", None, S),), attempt="try-0_1")
        .add(Seal, 1, T, (S,), "split", 0)
        .open("0_1")
        .told("c", "failed", error="SegmentSealed"),
        H()
        .add(Commit, "c", "w", "a", T, 0, (Written("x", None, S),), attempt="try-0_1")
        .add(Seal, 1, T, (S,), "split", 0)
        .open("0_1")
        .told("c", "failed", error="Fenced"),
    ),
    (
        "committed out of order",
        13,
        H()
        .add(Commit, "c", "w", "a", T, 0, (Written("x", "k", S), Written("y", "k", S)), attempt="try-0_1")
        .open("0_1")
        .add(Registration, 1, "0_1", None, (Written("y", "k", S), Written("x", "k", S)))
        .decide("0_1", 1),
        H()
        .add(Commit, "c", "w", "a", T, 0, (Written("x", "k", S), Written("y", "l", S)), attempt="try-0_1")
        .open("0_1")
        .add(Registration, 1, "0_1", None, (Written("y", "l", S), Written("x", "k", S)))
        .decide("0_1", 1),
    ),
    (
        "layout does not tile",  # two seals have the same epoch, so the second seal is void
        13,
        H().add(Seal, 2, T, (S,), "split", 0).add(Seal, 3, T, (S,), "split", 0).add(Layout, **layout(1, sealed(3), *SPLIT[1:])),
        H().add(Seal, 2, T, (S,), "split", 0).add(Seal, 3, T, (S,), "split", 0).add(Layout, **layout(1, sealed(2), *SPLIT[1:])),
    ),
    ("layout does not tile", 13, H().add(Layout, **layout(0, TWO[0])), H().add(Layout, **layout(0, *TWO))),
    (
        "layout does not tile",
        13,
        H().add(Layout, **layout(0, TWO[0], Segment(V, 0x7FFF, 0xFFFF, True))),
        H().add(Layout, **layout(0, deleted=True)),
    ),
    (
        "layout does not tile",
        13,
        H().add(Layout, **layout(1, *SPLIT)).add(Layout, **layout(2, *TWO)),
        H().add(Layout, **layout(1, *TWO)).add(Layout, **layout(2, *SPLIT)),
    ),
    (
        "layout does not tile",
        13,
        H().add(Layout, **layout(1, *TWO)).add(Layout, **layout(1, *SPLIT)),
        H().add(Layout, **layout(1, *TWO)).add(Layout, **layout(1, *TWO)),
    ),
    (
        "internal reorder",
        13,
        H().asks("c", 0, "x", "y", key="k").told("c", "committed", "0_1", 1).reads(row("y", 1, key="k"), row("x", 1, 1, key="k")),
        H().asks("c", 0, "x", "y", key="k").told("c", "committed", "0_1", 1).reads(row("x", 1, key="k"), row("y", 1, 1, key="k")),
    ),
    (
        "internal reorder",  # two polls of one subscription
        13,
        later_first(),
        later_first(ordered=False),
    ),
    (
        "internal reorder",  # in the correct history a seek between the two polls permits the earlier row
        13,
        later_first(),
        later_first(Ack, **acks("moved", None, 0, 0)),
    ),
    (
        "internal reorder",
        5,
        H().commits(1, 0).commits(2, 1).reads(at(2), at(1), at(1, "v"), at(2, "v"), start=0, end=2),
        H().commits(1, 0).commits(2, 1).reads(at(2), at(1), at(1, "v"), at(2, "v"), start=0, end=2, ordered=False),
    ),
    (
        "key in several segments",
        13,
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").reads(row("x", 1, key="k"), row("y", 2, key="k", segment=V)),
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").reads(row("x", 1, key="k"), row("y", 2, key="k", segment=LEFT)),
    ),
    (
        "key in several segments",  # a later row of the key is in the parent, not in a child
        13,
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").reads(row("x", 1, key="k", segment=LEFT), row("y", 2, key="k")),
        H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").reads(row("x", 1, key="k"), row("y", 2, key="k", segment=RIGHT)),
    ),
    (
        "parent with child",
        13,
        H()
        .commits(1, 0)
        .add(Seal, 2, T, (S,), "split", 0)
        .open("0_3", 1)
        .register(3, "0_3", ("3-v", V))
        .decide("0_3", 3, 1)
        .polls(0, 0, 3, *both(1), at(3, "v")),
        H()
        .commits(1, 0)
        .add(Seal, 2, T, (S,), "split", 0)
        .open("0_3", 1)
        .register(3, "0_3", ("3-v", V))
        .decide("0_3", 3, 1)
        .polls(0, 0, 2, *both(1))
        .polls(1, 2, 3, at(3, "v")),
    ),
    # --- invariant 14, and violations that the recorder itself detected
    (
        "unbounded",
        14,
        H().add(Counts, "the end", {"/log/": 2}, {"/log/": 1}),
        H().add(Counts, "the end", {"/log/": 1}, {"/log/": 1}),
    ),
    ("complaint", 14, H().add(Complaint, "files are left", 14), H()),
]


# If a history has acks, the checker judges the polls of a subscription as deliveries to consumers, otherwise as those of a stream.
# `subscribed` adds an ack of another subscription, so the histories below are judged as deliveries.
FOREIGN = {"segment": V, "subscription": "y", "state": "acked", "ranges": (((1, 0), (1, 0)),)}


def subscribed() -> H:
    return H().add(Ack, **FOREIGN)


def single(state: str, txn: str | None, number: int, first: int, last: int) -> dict[str, Any]:
    """Return the fields of an `Ack` of the rows `first` to `last` in entry 0 of the ledger `number`."""
    ranges = (((number, 0, first), (number, 0, last)),)
    return {"segment": S, "subscription": "x", "state": state, "ranges": ranges, "txn": txn}


def entry(number: int, *names: str) -> H:
    """Return the history of a committed transaction that has one entry with these rows."""
    h = subscribed().open(f"0_{number}").register(number, f"0_{number}", *((name, S) for name in names))
    return h.decide(f"0_{number}", number)


# Further cases in the form of CASES. The checker judges their polls as deliveries.
DELIVERED: list[tuple[str, int, H, H]] = [
    (
        "aborted read",
        4,
        subscribed().open("0_1").register(1, "0_1", *rows(1)).drop("0_1").polls(0, 0, 1, at(1), subscription="x"),
        subscribed().open("0_1").register(1, "0_1", *rows(1)).decide("0_1", 1).polls(0, 0, 1, at(1), subscription="x"),
    ),
    (
        "precommitted read",
        4,
        subscribed().open("0_1").register(1, "0_1", *rows(1)).polls(0, 0, 1, at(1), subscription="x").decide("0_1", 1),
        subscribed().open("0_1").register(1, "0_1", *rows(1)).polls(0, 0, 1, subscription="x").decide("0_1", 1),
    ),
    (
        "unwritten read",
        4,
        subscribed().commits(1, 0).polls(0, 0, 1, at(1, entry=0), row("nobody's", 1, 1), subscription="x"),
        subscribed().commits(1, 0).polls(0, 0, 1, at(1), subscription="x"),
    ),
    (
        "duplicate",  # one poll has the row twice
        5,
        subscribed().commits(1, 0).polls(0, 0, 1, at(1), at(1), subscription="x", ordered=False),
        subscribed().commits(1, 0).polls(0, 0, 1, *both(1), subscription="x", ordered=False),
    ),
    (
        "duplicate",  # two polls of one consumer have the row
        5,
        subscribed().commits(1, 0).polls(0, 0, 1, at(1), subscription="x").polls(1, 0, 1, at(1), subscription="x"),
        subscribed()
        .commits(1, 0)
        .polls(0, 0, 1, at(1), subscription="x")
        .add(Poll, 5, "another", 1, (T,), (at(1),), 0, 1, subscription="x"),
    ),
    (
        "moved row",
        5,
        entry(1, "p", "q").polls(0, 0, 1, row("p", 1), subscription="x").reads(row("p", 1, 1), row("q", 1), ordered=False),
        entry(1, "p", "q").polls(0, 0, 1, row("p", 1), subscription="x").reads(row("p", 1), row("q", 1, 1), ordered=False),
    ),
    (
        "poll skip",  # row p is neither acknowledged nor delivered
        11,
        entry(1, "p", "q").polls(0, 0, 1, row("q", 1, 1), subscription="x").reads(row("p", 1), row("q", 1, 1)),
        entry(1, "p", "q").polls(0, 0, 1, row("p", 1), subscription="x").reads(row("p", 1), row("q", 1, 1)),
    ),
    (
        "poll skip",  # in the wrong history only another row of the entry is acknowledged
        11,
        entry(1, "p", "q", "r")
        .add(Ack, **single("acked", None, 1, 1, 1))
        .polls(0, 0, 1, row("r", 1, 2), subscription="x")
        .reads(row("p", 1), row("q", 1, 1), row("r", 1, 2)),
        entry(1, "p", "q", "r")
        .add(Ack, **single("acked", None, 1, 0, 1))
        .polls(0, 0, 1, row("r", 1, 2), subscription="x")
        .reads(row("p", 1), row("q", 1, 1), row("r", 1, 2)),
    ),
    (
        "poll skip",  # a transaction acknowledged the row, but was aborted before the poll
        11,
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .drop("0_9", 5)
        .polls(0, 0, 1, row("q", 1, 1), subscription="x")
        .reads(row("p", 1), row("q", 1, 1)),
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .drop("0_9", 5)
        .polls(0, 0, 1, row("p", 1), row("q", 1, 1), subscription="x")
        .reads(row("p", 1), row("q", 1, 1)),
    ),
    (
        # the subscription and its pending ack were deleted; only a poll that began before the deletion may skip the row
        "poll skip",
        11,
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .add(Ack, S, "x", "deleted", ())
        .decide("0_9", None, 5)
        .polls(0, 0, 1, row("q", 1, 1), subscription="x")
        .reads(row("p", 1), row("q", 1, 1)),
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .add(Ack, S, "x", "deleted", ())
        .decide("0_9", None, 5)
        .polls(0, 0, 1, row("q", 1, 1), began=len(entry(1, "p", "q").events) + 1, subscription="x")
        .reads(row("p", 1), row("q", 1, 1)),
    ),
    (
        "redelivered after ack",  # a seek has moved the cursor past the row
        11,
        entry(1, "p", "q").add(Ack, **acks("moved", None, 1, 1)).polls(0, 0, 1, row("p", 1), subscription="x"),
        entry(1, "p", "q").add(Ack, **acks("moved", None, 0, 0)).polls(0, 0, 1, row("p", 1), subscription="x"),
    ),
    (
        "redelivered after ack",  # the correct poll began before the seek, so it may have seen either cursor
        11,
        entry(1, "p", "q")
        .add(Ack, **acks("acked", None, 1, 1))
        .add(Ack, **acks("moved", None, 1, 1))
        .polls(0, 0, 1, row("p", 1), subscription="x"),
        entry(1, "p", "q")
        .add(Ack, **acks("acked", None, 1, 1))
        .add(Ack, **acks("moved", None, 0, 0))
        .polls(0, 0, 1, row("p", 1), subscription="x", began=5),
    ),
    (
        "poll skip",  # after a seek back the row must be delivered again, even to the consumer that received it before the seek
        11,
        entry(1, "p", "q")
        .polls(0, 0, 1, row("p", 1), subscription="x")
        .add(Ack, **acks("acked", None, 1, 1))
        .add(Ack, **acks("moved", None, 0, 0))
        .polls(1, 0, 1, row("q", 1, 1), subscription="x"),
        entry(1, "p", "q")
        .polls(0, 0, 1, row("p", 1), subscription="x")
        .add(Ack, **acks("acked", None, 1, 1))
        .add(Ack, **acks("moved", None, 0, 0))
        .polls(1, 0, 1, row("p", 1), row("q", 1, 1), subscription="x"),
    ),
    (
        "redelivered after ack",  # the row was acknowledged after the subscription was created again
        11,
        entry(1, "p", "q")
        .add(Ack, S, "x", "deleted", ())
        .add(Ack, **single("acked", None, 1, 0, 0))
        .polls(0, 0, 1, row("p", 1), subscription="x"),
        entry(1, "p", "q")
        .add(Ack, **single("acked", None, 1, 0, 0))
        .add(Ack, S, "x", "deleted", ())
        .polls(0, 0, 1, row("p", 1), subscription="x"),
    ),
    (
        # a seek moved the cursor past the row; a pending ack of the row is correct only if it is older than the seek
        "acked twice",
        11,
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **acks("moved", None, 1, 1))
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .decide("0_9", None, 5)
        .add(Ack, **single("acked", "0_9", 1, 0, 0)),
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .add(Ack, **acks("moved", None, 1, 1))
        .decide("0_9", None, 5)
        .add(Ack, **single("acked", "0_9", 1, 0, 0)),
    ),
    (
        "committed ack lost",  # the pending ack of an OPEN transaction was released
        11,
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .add(Ack, **single("released", "0_9", 1, 0, 0))
        .decide("0_9", None, 5),
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .add(Ack, S, "x", "deleted", ())
        .decide("0_9", None, 5),
    ),
    (
        "redelivered after ack",  # a single row of an entry is acknowledged
        11,
        entry(1, "p", "q").add(Ack, **single("acked", None, 1, 0, 0)).polls(0, 0, 1, row("p", 1), subscription="x"),
        entry(1, "p", "q").add(Ack, **single("acked", None, 1, 0, 0)).polls(0, 0, 1, row("q", 1, 1), subscription="x"),
    ),
    (
        "redelivered after ack",  # the transaction is committed, but not settled yet
        11,
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .decide("0_9", None, 5)
        .polls(0, 0, 1, row("p", 1), subscription="x"),
        entry(1, "p", "q")
        .open("0_9", 5)
        .add(Ack, **single("pending", "0_9", 1, 0, 0))
        .polls(0, 0, 1, row("p", 1), subscription="x", began=5)
        .decide("0_9", None, 5),
    ),
    (
        "acked twice",
        11,
        entry(1, "p", "q").add(Ack, **single("acked", None, 1, 0, 0)).add(Ack, **single("acked", None, 1, 0, 1)),
        entry(1, "p", "q").add(Ack, **single("acked", None, 1, 0, 0)).add(Ack, **single("acked", None, 1, 1, 1)),
    ),
]


@pytest.mark.parametrize(
    ("word", "invariant", "wrong", "right"),
    CASES + DELIVERED,
    ids=[f"{i}-{c[0].replace(' ', '-')}" for i, c in enumerate(CASES + DELIVERED)],
)
def test_each_damaged_history_is_found_and_its_correct_twin_passes(word: str, invariant: int, wrong: H, right: H) -> None:
    found = check(wrong.events)
    assert (word, invariant) in {(f.anomaly, f.invariant) for f in found}, list(map(str, found))
    assert all(f.events for f in found)
    assert list(map(str, check(right.events))) == []


def test_every_anomaly_and_every_invariant_has_an_example() -> None:
    assert {word for word, *_ in (*CASES, *IN_STREAM)} == set(WORDS)
    assert {invariant for _, invariant, *_ in CASES} == set(range(1, 15))
    assert {invariant for invariant, _ in WORDS.values()} <= set(range(15))


# --- histories of clients without the store --------------------------------------------------------------------------


def test_an_unanswered_call_may_hide_later_events_only() -> None:
    dead = H().writes("b", 0, 1, "x").asks("dead", 0, "z", app="dead").writes("c", 1, 3, "y")
    assert check(dead.events + H().events) == []
    assert not check([*dead.events, Read(9, 8, "r", (T,), (row("x", 1),))])
    assert [f.anomaly for f in check([*dead.events, Read(9, 8, "r", (T,), ())])] == ["lost write"]
    final = [*dead.events, Read(9, 8, "r", (T,), (row("x", 1),), final=True)]
    assert [f.anomaly for f in check(final)] == ["lost write"]
    assert not check([*final[:-1], Read(9, 8, "r", (T,), (row("x", 1), row("y", 3)), final=True)])
    assert not check([*final[:-1], Read(9, 8, "r", (T,), (row("x", 1), row("z", 2), row("y", 3)), final=True)])


def test_a_retry_of_a_version_with_the_same_rows_is_the_same_write() -> None:
    again = H().asks("c", 0, "x", "y").told("c", "unknown").asks("d", 0, "x", "y").told("d", "committed", "0_2", 2)
    good = [*again.events, Read(9, 8, "r", (T,), (row("x", 2), row("y", 2, 1)), final=True)]
    assert check(good) == []
    twice = [*again.events, Read(9, 8, "r", (T,), (row("x", 1), row("y", 1, 1), row("x", 2), row("y", 2, 1)), final=True)]
    assert "version committed twice" in {f.anomaly for f in check(twice)}


def test_incremental_reads_are_judged_as_whole_reads() -> None:
    events = H().writes("c", 0, 1, "x").writes("d", 1, 2, "y").events
    first = Read(4, 3, "r", (T,), (row("x", 1),), ordered=False)
    second = Read(6, 5, "r", (T,), (row("y", 2), row("x", 1)))
    short = shortened(first, second)
    assert short.more
    assert short.rows == (row("y", 2),)
    base = [*events[:2], first._replace(at=2, began=1.5), *(e._replace(at=e.at + 1) for e in events[2:])]
    assert check([*base, short]) == []
    assert [f.anomaly for f in check([*base, short._replace(more=False)])] == ["internal skip"]
    assert not shortened(first, second._replace(rows=(row("y", 2),))).more
    assert not shortened(first, second._replace(rows=(row("x", 1), row("x", 1)))).more


# --- files -----------------------------------------------------------------------------------------------------------


def test_every_event_comes_back_from_its_line() -> None:
    events = [e for case in CASES for history in case[2:] for e in history.events]
    events.append(Start(0, "tests", seed=7))
    for event in events:
        back = parse(line(event))
        assert back == event
        assert type(back) is type(event)
    assert {type(e) for e in events} >= {Ack, Counts, End, Layout, Poll, Read, Seal, Written} - {Written}


def test_a_recorded_file_is_judged_like_its_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    history = [Start(0, "tests"), *H().commits(1, 0).events]
    write(good, [*history, Read(9, 8, "r", (T,), tuple(both(1)), 0, 1)])
    write(bad, [*history, Read(9, 8, "r", (T,), (at(1),), 0, 1)])
    assert main(["--check", str(good)]) == 0
    assert "events: 5; commits: 1; reads: 1; with the store's records" in capsys.readouterr().out
    assert main(["--check", str(bad)]) == 1
    out = capsys.readouterr().out
    assert "invariant 9, torn read" in out
    assert '"event":"read"' in out
    assert main(["--check", str(tmp_path / "absent")]) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no history"),
        ('{"event":"read"}\n', "line 1"),
        ('{"event":"start","at":0,"recorder":"x","format":99}\n', "format 99"),
        ('{"event":"start","at":0,"recorder":"x"}\n{"event":"guess","at":1}\n', "line 2"),
        ('{"event":"start","at":0,"recorder":"x"}\n{"event":"told","at":1,"call":"c","said":"committed","more":1}\n', "line 2"),
        ('{"event":"start","at":0,"recorder":"x"}\n{"event":"told","at":1,"ca', "line 2"),
    ],
)
def test_unknown_events_and_versions_are_refused(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "h").write_text(text)
    with pytest.raises(FormatError, match=says):
        read(tmp_path / "h")


def test_a_recorder_that_was_killed_leaves_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "h"
    with Writer(path, Start(0, "tests")) as writer:
        writer.add(Told(1, "c", "committed"))
    whole = path.read_bytes()
    assert not repair(path)
    path.write_bytes(whole + b'{"event":"to')
    assert repair(path)
    assert read(path) == [Start(0, "tests"), Told(1, "c", "committed")]
    with Writer(path, Start(5, "tests")) as writer:  # this second writer appends to the same file
        writer.add(Told(6, "d", "committed"))
    assert len(read(path)) == 3


def test_histories_of_several_recorders_become_one() -> None:
    one: list[Event] = [Start(3, "a"), Told(7, "x", "unknown")]
    two: list[Event] = [Start(1, "b"), Told(5, "y", "unknown")]
    assert merge([one, two]) == [two[0], two[1], one[1]]
    assert verdict(merge([one, two])).events == 3
