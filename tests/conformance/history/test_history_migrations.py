"""Tests of the history checker with migrations. The checker judges reads of the successor by the rows of the persistent topic."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.history.checker import check
from conformance.history.format import (
    Ack,
    Application,
    Header,
    Layout,
    Plan,
    Poll,
    Read,
    Registration,
    Row,
    Seal,
    Segment,
    Written,
)
from tests.support.history_builder import Telling

OLD, OTHER, NEW = "persistent://p/d/p", "persistent://p/d/q", "topic://p/d/y"
CHILD = "segment://p/d/y/0000-ffff-1"
COORDINATOR = "persistent://pulsar/system/__transaction_log_0"
SEALED_AT = 10
"""The number of the seal in the cluster's log. The SEAL of OLD is entry 4 of OLD's log. The ledger n of OLD has the number
SEALED_AT - 1 - 4 + n in the cluster's log after the migration, so ledger 2 has the number 7.
"""


class H(Telling):
    """A builder of the history of one migration."""

    def old(self) -> H:
        """Add a plain message `a`, and a committed transaction with the row `b`, which is version 1 of an application."""
        self.entry(OLD, "DATA", rows=(Written("a", None, OLD),))
        self.entry(COORDINATOR, "NEW", "1000000_1", topics=(OLD,), app="app", topic=OLD, version=1)
        self.entry(OLD, "DATA", "1000000_1", rows=(Written("b", None, OLD),))
        self.entry(COORDINATOR, "STATUS", "1000000_1", state="COMMITTING").entry(OLD, "COMMIT", "1000000_1")
        return self.entry(COORDINATOR, "STATUS", "1000000_1", state="COMMITTED")

    def sealed(self) -> H:
        return self.entry(OLD, "SEAL", why="migrate")

    def shown(self) -> H:
        """Add the first layout of the successor, the seal in the cluster's log, and the layout with the new active segment."""
        self.add(Layout, NEW, 0, (Segment(OLD, 0, 0xFFFF, True),)).add(Seal, SEALED_AT, NEW, (OLD,), "migrate", 0)
        gone = Segment(OLD, 0, 0xFFFF, False, (), SEALED_AT)
        return self.add(Layout, NEW, 1, (gone, Segment(CHILD, 0, 0xFFFF, True, (OLD,))))

    def commits(self, number: int, *rows: str, version: int = 2) -> H:
        txn = f"0_{number}"
        self.add(Header, txn, "OPEN", "app", NEW, version)
        self.add(Registration, number, txn, None, tuple(Written(row, None, CHILD) for row in rows))
        return self.add(Header, txn, "COMMITTED", "app", NEW, version, None, number)

    def reads(self, *rows: Row, cut: int, **more: Any) -> H:
        return self.add(Read, more.pop("began", len(self.events)), "r", (NEW,), rows, 0, cut, cut, **more)

    def polls(self, batch: int, *rows: Row, start: int | None, end: int, log: str = "") -> H:
        return self.add(Poll, len(self.events), "s", batch, (log or NEW,), rows, start, end, log=log)


A, B = Row("a", OLD, (1, 0, 0)), Row("b", OLD, (2, 0, 0), None, "1000000_1")
C = Row("c", CHILD, (11, 0, 0), None, "0_11")


def migrated() -> H:
    return H().old().sealed().shown().commits(11, "c")


def acknowledged() -> H:
    return migrated().add(Ack, OLD, "sub", "acked", (((1, 0), (1, 0)),))


def delivered(history: H, *rows: Row) -> H:
    return history.add(Poll, len(history.events), "one life", 0, (NEW,), rows, subscription="sub", ordered=False)


GOOD = {
    "a read of all": migrated().reads(A, B, C, cut=11),
    "a micro-batch up to a number between": migrated().polls(0, A, start=0, end=6).polls(1, B, start=6, end=7),
    "a stream that goes on": migrated()
    .polls(0, A, start=0, end=1, log=OLD)
    .polls(1, B, start=1, end=4, log=OLD)
    .polls(2, C, start=None, end=11),
    "a stream of the new name": migrated().polls(0, A, B, start=0, end=10).polls(1, C, start=10, end=11),
    "what was acknowledged comes no more": delivered(acknowledged(), B, C),
    "a higher version": migrated().add(Application, "app", NEW, 2, None),
}
BAD = {
    "internal skip": migrated().reads(A, C, cut=11),
    "lost write": migrated().reads(A, B, cut=11),
    "duplicate": migrated().reads(A, B, B, C, cut=11),
    "outside its range": migrated().polls(0, A, B, start=0, end=6),
    "poll skip": migrated().polls(0, A, start=0, end=1, log=OLD).polls(1, C, start=10, end=11),
    "parent with child": migrated().polls(0, A, start=0, end=1, log=OLD).polls(1, B, C, start=None, end=11),
    "late registration": H().old().sealed().add(Read, 0, "r", (NEW,), (), 0, 9, 9).shown(),
    "stale read": migrated().reads(A, B, cut=7),
    "redelivered after ack": delivered(acknowledged(), A, B, C),
    "version committed twice": H().old().sealed().shown().commits(11, "c", version=1),
    "layout does not tile": H().old().shown().sealed(),
    "stands still": migrated().add(Plan, 20, "s", (NEW,), 6, 6, 6),
}


@pytest.mark.parametrize("what", GOOD)
def test_a_correct_migration_history_passes(what: str) -> None:
    assert check(GOOD[what].events) == []


@pytest.mark.parametrize("what", BAD)
def test_a_damaged_migration_history_is_found(what: str) -> None:
    assert what in {finding.anomaly for finding in check(BAD[what].events)}


def test_rows_of_two_topics_may_have_the_same_number() -> None:
    """After a migration, the ledgers of the old topic have numbers of the cluster's log that lie below the seal. A registration of
    another topic may have the same number. The checker accepts this.
    """
    history, other = H().old().sealed(), "segment://p/d/other/0000-ffff-0"
    history.add(Registration, 7, None, None, (Written("x", None, other),)).shown().commits(11, "c").reads(A, B, C, cut=11)
    assert check(history.events) == []


def aborted_late(*, topic: str, app_topic: str, claims: str = OLD, moved: bool = True) -> H:
    """Return a history in which the attempt `first` aborts a transaction of the attempt `second`. The transaction writes to `topic`
    and acknowledges rows of `claims`. `moved`: OLD was migrated before the abort.
    """
    history, txn = H().entry(OLD, "DATA"), "1000000_1"
    history.entry(COORDINATOR, "NEW", txn, topics=(topic,), app="app", topic=app_topic, version=1, attempt="second")
    history.add(Ack, claims, "sub", "pending", (((1, 0), (1, 0)),), txn)
    if moved:
        history.sealed()
    return history.entry(COORDINATOR, "STATUS", txn, state="ABORTING", by="first")


@pytest.mark.parametrize(
    "history",
    [aborted_late(topic=OTHER, app_topic=OTHER, claims=OTHER), aborted_late(topic=OLD, app_topic=OLD, moved=False)],
    ids=["another topic was migrated", "no topic was migrated"],
)
def test_a_late_abort_ends_no_other_transaction(history: H) -> None:
    assert [finding.anomaly for finding in check(history.events)] == ["ended another's transaction"]


@pytest.mark.parametrize("what", ["topic", "app_topic", "claims"])
def test_the_process_that_meets_a_seal_may_abort_blocking_transactions(what: str) -> None:
    history = aborted_late(**{"topic": OTHER, "app_topic": OTHER, "claims": OTHER, what: OLD})
    assert check(history.events) == []


def test_many_migrated_topics_may_share_numbers_with_others() -> None:
    """There are twenty migrated topics with two rows each. The second row of each has the same number as a row of another topic.
    The checker accepts this.
    """
    history, other = H(), "segment://p/d/other/0000-ffff-0"
    others = tuple(Row(f"x{i}", other, (20 + 2 * i, 0, 0)) for i in range(20))
    for i, row in enumerate(others):
        old, new, seal = f"{OLD}{i}", f"{NEW}{i}", 22 + 2 * i
        history.entry(old, "DATA", rows=(Written(f"a{i}", None, old),)).entry(old, "DATA", rows=(Written(f"b{i}", None, old),))
        history.entry(old, "SEAL", why="migrate").add(Registration, seal - 2, None, None, (Written(row.id, None, other),))
        history.add(Layout, new, 0, (Segment(old, 0, 0xFFFF, True),)).add(Seal, seal, new, (old,), "migrate", 0)
        gone, child = Segment(old, 0, 0xFFFF, False, (), seal), f"segment://p/d/y{i}/0000-ffff-1"
        history.add(Layout, new, 1, (gone, Segment(child, 0, 0xFFFF, True, (old,))))
    for i in range(20):
        rows = Row(f"a{i}", f"{OLD}{i}", (1, 0, 0)), Row(f"b{i}", f"{OLD}{i}", (2, 0, 0))
        history.add(Read, len(history.events), "r", (f"{NEW}{i}",), rows, 0, 60, 60)
        history.add(Poll, len(history.events), f"s{i}", 0, (f"{NEW}{i}",), rows[:1], 0, 19 + 2 * i)
        history.add(Poll, len(history.events), f"s{i}", 1, (f"{NEW}{i}",), rows[1:], 19 + 2 * i, 20 + 2 * i)
    history.add(Read, len(history.events), "r", ("topic://p/d/other",), others, 0, 60, 60)
    assert list(map(str, check(history.events))) == []
