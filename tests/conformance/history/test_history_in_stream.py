"""Tests of the history checker with histories of the marker-based model, and of both models."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.history.checker import check, verdict
from conformance.history.files import line, parse
from conformance.history.format import Ack, Commit, Entry, Event, Horizon, Plan, Poll, Read, Row, Told, Trim, Written
from tests.support.history_builder import Telling

P, Q, T = "persistent://p/d/p", "persistent://p/d/q", "topic://p/d/t"
SEGMENT = "segment://p/d/t/0000-ffff-0"
COORDINATOR = "persistent://pulsar/system/__transaction_log_0"


class H(Telling):
    """A builder of histories of the marker-based model. The id of a transaction is 1000000_<number of its NEW entry>."""

    def begins(self, txn: int, *topics: str, **more: Any) -> H:
        self._last[COORDINATOR] = txn - 1
        return self.entry(COORDINATOR, "NEW", txn, topics=topics, **more)

    def status(self, txn: int, *states: str) -> H:
        for state in states:
            self.entry(COORDINATOR, "STATUS", txn, state=state)
        return self

    def data(self, topic: str, row: str, txn: int | None = None, **more: Any) -> H:
        return self.entry(topic, "DATA", txn, rows=(Written(row, None, topic),), **more)

    def marks(self, topic: str, kind: str, txn: int, **more: Any) -> H:
        return self.entry(topic, kind, txn, **more)

    def whole(self, txn: int, *rows: str, topic: str = P, commit: bool = True) -> H:
        """Add all events of a transaction in one topic, from its beginning to its end."""
        self.begins(txn, topic)
        for row in rows:
            self.data(topic, row, txn)
        self.status(txn, "COMMITTING" if commit else "ABORTING").marks(topic, "COMMIT" if commit else "ABORT", txn)
        return self.status(txn, "COMMITTED" if commit else "ABORTED")

    def reads(self, *rows: tuple[int, str], cut: int, topic: str = P, **more: Any) -> H:
        seen = tuple(Row(row, topic, (number, 0, 0)) for number, row in rows)
        return self.add(Read, more.pop("began", len(self.events)), "r", (topic,), seen, 0, cut, cut, log=topic, **more)


def committed() -> H:
    return H().whole(1, "a")


def forgotten(*, trimmed: bool) -> H:
    """Return a history in which a committed transaction appends again, and this late entry gets an ABORT marker. `trimmed`: whether
    retention removed the transaction's COMMIT marker before the late append.
    """
    history = H().whole(1)
    if trimmed:
        history.add(Trim, len(history.events), P, 1)
    return history.data(P, "late", 1).marks(P, "ABORT", 1).reads(cut=3)


def passed_over(*, trimmed: bool) -> H:
    """Return a history in which an aborted transaction releases its ack of row `a`, and the subscription then delivers only a later
    row. `trimmed`: retention removed row `a` meanwhile.
    """
    claimed = {"segment": P, "subscription": "s", "ranges": (((1, 0), (1, 0, 0)),), "txn": "1000000_9"}
    history = committed().data(P, "b").begins(9).add(Ack, **claimed, state="pending")
    if trimmed:
        history.add(Trim, len(history.events), P, 1)
    history.status(9, "ABORTING").add(Ack, **claimed, state="released").status(9, "ABORTED")
    began = len(history.events)
    return history.add(Poll, began, "c", 0, (P,), (Row("b", P, (3, 0, 0)),), subscription="s", ordered=False, log=P)


# Each case: the anomaly, its invariant, a wrong history, and a similar correct one. A comment that does not say to which history it
# belongs describes the wrong one, or both.
CASES: list[tuple[str, int, H, H]] = [
    ("aborted read", 4, H().whole(1, "a", commit=False).reads((1, "a"), cut=2), H().whole(1, "a", commit=False).reads(cut=2)),
    (
        "precommitted read",
        4,
        H().begins(1, P).data(P, "a", 1).reads((1, "a"), cut=1).status(1, "COMMITTING").marks(P, "COMMIT", 1),
        H().begins(1, P).data(P, "a", 1).reads(cut=0).status(1, "COMMITTING").marks(P, "COMMIT", 1),
    ),
    ("stale read", 9, committed().reads(cut=0), committed().reads((1, "a"), cut=2)),
    ("lost write", 5, committed().reads(cut=2), committed().data(P, "b").reads((1, "a"), (3, "b"), cut=3)),
    (
        "aborted read",  # the row was appended after the marker of its transaction
        4,
        committed().data(P, "late", 1).reads((1, "a"), (3, "late"), cut=3),
        committed().data(P, "late", 1).reads((1, "a"), cut=3),
    ),
    (
        "aborted read",  # the row was appended a second time with the same id
        4,
        H().begins(1, P).data(P, "a", 1, id="x").data(P, "a", 1, id="x").status(1, "COMMITTING").marks(P, "COMMIT", 1)
        .reads((1, "a"), (2, "a"), cut=3),
        H().begins(1, P).data(P, "a", 1, id="x").data(P, "a", 1, id="x").status(1, "COMMITTING").marks(P, "COMMIT", 1)
        .reads((1, "a"), cut=3),
    ),
    (
        "aborted read",  # Transaction 1 appends after a marker whose low-water mark is 1, which says that transaction 1 has ended.
        4,
        H().whole(1).begins(9, P).status(9, "ABORTING").marks(P, "ABORT", 9, low_water=1).data(P, "z", 1).reads((3, "z"), cut=3),
        H().whole(1).begins(9, P).status(9, "ABORTING").marks(P, "ABORT", 9, low_water=1).data(P, "z", 1).reads(cut=3),
    ),
    (
        "unwritten read",
        4,
        committed().reads((1, "a"), (2, "b"), cut=2),
        committed().reads((1, "a"), cut=2),
    ),
    (
        "beyond an open transaction",
        6,
        H().begins(1, P).data(P, "a", 1).reads(cut=1),
        H().begins(1, P).data(P, "a", 1).reads(cut=0),
    ),
    (
        "horizon went back",
        6,
        committed().reads((1, "a"), cut=2).reads((1, "a"), cut=1),
        committed().reads((1, "a"), cut=2).reads((1, "a"), cut=2),
    ),
    (
        "trimmed rows came back",
        5,
        committed().add(Trim, 5, P, 2).reads((1, "a"), cut=2),
        committed().add(Trim, 5, P, 2).reads(cut=2),
    ),
    (
        "late registration",
        7,
        committed().add(Entry, P, 1, "DATA", "again"),
        committed().add(Entry, P, 3, "DATA", "again"),
    ),
    ("marker without a decision", 4, H().begins(1, P).data(P, "a", 1).marks(P, "COMMIT", 1), committed()),
    ("marker without a decision", 4, H().begins(1, P).status(1, "COMMITTING").marks(P, "ABORT", 1), committed()),
    (
        # Both transactions have the same version. Transaction 1 is COMMITTING first, so the COMMITTING of transaction 2 does not
        # count.
        "marker without a decision",
        4,
        H().begins(1, P, app="q", version=1).begins(2, P, app="q", version=1).status(1, "COMMITTING").status(2, "COMMITTING")
        .marks(P, "COMMIT", 2),
        H().begins(1, P, app="q", version=1).begins(2, P, app="q", version=1).status(1, "COMMITTING").status(2, "COMMITTING")
        .marks(P, "COMMIT", 1),
    ),
    (
        "participant left out",
        9,
        H().begins(1, P, Q).data(P, "a", 1).data(Q, "b", 1).status(1, "COMMITTING").marks(P, "COMMIT", 1)
        .reads(cut=0, topic=Q, final=True),
        H().begins(1, P, Q).data(P, "a", 1).data(Q, "b", 1).status(1, "COMMITTING").marks(P, "COMMIT", 1).marks(Q, "COMMIT", 1)
        .reads((1, "b"), cut=2, topic=Q, final=True),
    ),
    (
        "ended before its markers",
        9,
        H().begins(1, P).data(P, "a", 1).status(1, "COMMITTING", "COMMITTED").marks(P, "COMMIT", 1),
        committed(),
    ),
    (
        # A sealed log takes no marker. In the correct history the transaction has no rows in the log, so no marker is missing.
        "ended before its markers",
        9,
        H().begins(1, P).data(P, "a", 1).entry(P, "SEAL", why="terminate").status(1, "COMMITTING", "COMMITTED"),
        H().begins(1, P).data(P, "a").entry(P, "SEAL", why="terminate").status(1, "COMMITTING", "COMMITTED"),
    ),
    (
        "low-water mark too high",
        4,
        H().begins(1, Q).begins(3, P).status(3, "COMMITTING").marks(P, "COMMIT", 3, low_water=1),
        H().begins(1, Q).begins(3, P).status(3, "COMMITTING").marks(P, "COMMIT", 3, low_water=0),
    ),
    (
        "replay differs",
        5,
        committed().data(P, "b").add(Poll, 9, "s", 0, (P,), (Row("a", P, (1, 0, 0)),), 0, 2, log=P)
        .add(Poll, 9, "s", 0, (P,), (), 0, 2, log=P),
        committed().data(P, "b").add(Poll, 9, "s", 0, (P,), (Row("a", P, (1, 0, 0)),), 0, 2, log=P)
        .add(Poll, 9, "s", 1, (P,), (Row("b", P, (3, 0, 0)),), 2, 3, log=P),
    ),
    ("not redelivered", 11, passed_over(trimmed=False), passed_over(trimmed=True)),
    (
        "stands still",
        9,
        committed().add(Plan, 6, "s", (P,), 0, 0, 2, log=P),
        committed().add(Plan, 6, "s", (P,), 0, 2, 2, log=P),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "invariant", "wrong", "right"), CASES, ids=[f"{i}-{c[0].replace(' ', '-')}" for i, c in enumerate(CASES)]
)
def test_each_damaged_history_is_found_and_its_correct_twin_passes(word: str, invariant: int, wrong: H, right: H) -> None:
    found = check(wrong.events)
    assert (word, invariant) in {(f.anomaly, f.invariant) for f in found}, list(map(str, found))
    assert list(map(str, check(right.events))) == []


def test_numbers_of_one_log_say_nothing_of_another() -> None:
    history = H().whole(1, "a").data(Q, "b").data(Q, "c").reads((1, "a"), cut=2).reads((1, "b"), (2, "c"), cut=2, topic=Q)
    assert list(map(str, check(history.events))) == []
    assert verdict(history.events).commits == 3
    history.add(Horizon, len(history.events), "r", (Q,), 1, ((Q, (1, 0)),), log=Q)
    assert {f.anomaly for f in check(history.events)} == {"stale read", "horizon went back"}


def test_a_history_of_clients_over_both_models_is_judged_log_by_log() -> None:
    def history(*seen: Row) -> list[Event]:
        rows = (Written("a", None, P), Written("b", None, Q))
        made = H().add(Commit, "c1", "w", "app", "", 1, rows).add(Told, "c1", "committed", "1000000_1")
        made.add(Commit, "c2", "w", "other", T, 1, (Written("c"),)).add(Told, "c2", "committed", "0_1", 7)
        return made.add(Read, 4, "r", (P, Q, T), seen, ordered=False, final=True).events

    a, b, c = Row("a", P, (5, 0, 0)), Row("b", Q, (900, 0, 0)), Row("c", SEGMENT, (7, 0, 0))
    assert list(map(str, check(history(a, b, c)))) == []
    assert verdict(history(a, b, c)).commits == 3
    assert {f.anomaly for f in check(history(a, c))} == {"lost write"}
    assert {f.anomaly for f in check(history(a, b))} == {"lost write"}
    assert {f.anomaly for f in check(history(a, a, b, c))} >= {"duplicate"}


def test_an_entry_is_a_line_like_any_other_event() -> None:
    entry = Entry(1.0, COORDINATOR, 1, "NEW", "x", "1000000_1", topics=(P,), app="q", version=0, deadline=5)
    assert parse(line(entry)) == entry
    read = Read(2.0, 1.0, "r", (P,), (Row("a", P, (1, 0, 0)),), 0, 2, 2, log=P)
    assert parse(line(read)) == read


def test_late_data_of_an_expired_transaction_is_aborted() -> None:
    assert check(forgotten(trimmed=True).events) == []
    assert [found.anomaly for found in check(forgotten(trimmed=False).events)] == ["marker without a decision"]
