"""Tests of acknowledgements in transactions: pending acks and how they are settled, under every fault (protocol.md section 7,
Acks).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count, takewhile

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.client import Client
from metadata.common.errors import (
    AckConflict,
    BadVersion,
    Fenced,
    OutcomeUnknown,
    SubscriptionExists,
    SubscriptionNotFound,
    TxnConflict,
    Unavailable,
    UnknownOutcome,
)
from metadata.maintenance.remains import collect_remains
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.records.records import Cursor, Op, OpKind, State
from metadata.records.row_ranges import NONE, Rows, end_of, parse_all, texts, through_ledger
from metadata.rules import acks
from metadata.rules.acks import Ack, up_to
from metadata.topics.subscriptions import Subscriptions
from metadata.write.write_set import WriteSet
from tests.support.bench import At, Bench, T, U, each_step

NAME = topic_name(T)
SUB = "etl"
FAULTS = [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_REPLY, Fate.LATE]
GIVEN_UP = (Crashed, UnknownOutcome, OutcomeUnknown, Unavailable, TxnConflict)


def subscriptions(party: Client) -> Subscriptions:
    return Subscriptions(party.cluster, party.coordinator.acks)


def subscribed(*names: str) -> tuple[Bench, str, str, int]:
    """Make a topic with a row in each of two segments, and the subscriptions `names` (SUB if none is given). Return the bench, both
    segments, and the log number of the rows.
    """
    bench = Bench()
    party = bench.party()
    for name in names or (SUB,):
        subscriptions(party).create(NAME, name, at=0)
    number = party.coordinator.commit(bench.work(0, topics=(T,), app="setup")).number
    assert number is not None
    first, second = party.topics.get(NAME).segments()
    return bench, first, second, number


def stored(bench: Bench, segment: str, name: str = SUB) -> Cursor:
    record = bench.state.records[paths.cursor(segment, name)]
    return Cursor.from_bytes(record.value)


def done(bench: Bench, segment: str, name: str = SUB) -> list[str]:
    return texts(acks.done(stored(bench, segment, name)))


def acking(bench: Bench, *wanted: Ack, version: int = 1, topics: tuple[str, ...] = (), app: str = "app") -> WriteSet:
    return dataclasses.replace(bench.work(version, topics=topics, app=app), acks=wanted)


def one(segment: str, number: int, name: str = SUB) -> Ack:
    return Ack(segment, name, parse_all([f"{number}:0"]))


@dataclass
class Before:
    """A gate that calls `meanwhile` once, before the first write of a record whose path contains `path`. `fate`: the fate of this
    write. `hit`: whether the write has come.
    """

    path: str
    meanwhile: Callable[[], object] = lambda: None
    fate: Fate = Fate.GO
    hit: bool = False

    def __call__(self, kind: str, what: str) -> Fate:
        if kind == "write" and self.path in what and not self.hit:
            self.hit = True
            self.meanwhile()
            return self.fate
        # later steps fail as well after a crash, because a dead process does not clean up
        return Fate.CRASH_BEFORE if self.hit and self.fate is Fate.CRASH_BEFORE else Fate.GO


# --- one transaction ----------------------------------------------------------------------------------------------


def test_only_acks_register_nothing() -> None:
    bench, first, second, number = subscribed()
    party = bench.party()
    before = bench.kept("/log/")
    made = party.coordinator.commit(acking(bench, one(first, number), one(second, number)))
    assert made.number is None
    assert made.txn_id is not None
    assert bench.kept("/log/") == before
    assert bench.headers()[made.txn_id] is State.COMMITTED
    assert done(bench, first) == done(bench, second) == [f"{number}:0"]
    assert not bench.kept("/txn/op/")
    bench.finish()


def test_rows_and_acks_are_decided_together() -> None:
    bench, first, _, number = subscribed()
    party = bench.party()
    made = party.coordinator.commit(acking(bench, up_to(first, SUB, end_of(number)), topics=(U,)))
    assert made.number is not None
    assert done(bench, first) == [f"0..{number}"]
    assert stored(bench, first).mark_delete is not None
    bench.finish()


def test_an_ack_of_acked_rows_is_refused_and_leaves_no_record() -> None:
    bench, first, second, number = subscribed()
    party = bench.party()
    party.coordinator.acks.acknowledge([one(first, number)])
    before = (bench.kept("/txn/op/"), stored(bench, second))
    with pytest.raises(AckConflict, match=rf"Rows {number}:0 of {first} .*acknowledged already"):
        party.coordinator.commit(acking(bench, one(second, number), one(first, number), topics=(U,)))
    assert (bench.kept("/txn/op/"), stored(bench, second)) == before
    assert not bench.committed(1)
    with pytest.raises(AckConflict, match="already"):
        party.coordinator.acks.acknowledge([one(first, number)])
    bench.finish()


def test_one_of_two_transactions_that_ack_a_message_wins() -> None:
    """Transaction `other` finds the pending ack of the first transaction, which is OPEN, and fails. The pending acks of `other` in
    other segments are released at once.
    """
    bench, first, second, number = subscribed()
    lost: list[BaseException] = []

    def meanwhile() -> None:
        with pytest.raises(AckConflict) as found:
            bench.party().coordinator.commit(acking(bench, one(first, number), one(second, number), app="other"))
        lost.append(found.value)

    gate = Before("/txn/op/", meanwhile)  # the op record, which is written after the pending ack
    bench.party(gate).coordinator.commit(acking(bench, one(second, number)))
    assert gate.hit
    assert len(lost) == 1
    assert "claims them" in str(lost[0])
    assert done(bench, first) == []
    assert not stored(bench, first).claims
    assert done(bench, second) == [f"{number}:0"]
    bench.finish()


def test_a_pending_ack_made_between_read_and_write_is_seen() -> None:
    """A second process acknowledges between the transaction's read and its write of the cursor. The write then fails, and the
    transaction sees the other ack. Guards against failure A33 (protocol.md section 9).
    """
    bench, first, _, number = subscribed()

    def meanwhile() -> None:
        bench.party().coordinator.acks.acknowledge([one(first, number)])

    gate = Before("/cursors/", meanwhile)
    with pytest.raises(AckConflict, match="already"):
        bench.party(gate).coordinator.commit(acking(bench, one(first, number)))
    assert gate.hit
    assert done(bench, first) == [f"{number}:0"]
    assert not bench.committed(1)
    bench.finish()


def test_one_of_two_plain_acks_of_a_row_wins() -> None:
    """Both consumers write the same cursor value. The second consumer recognizes that another process stored this value, and gets
    AckConflict.
    """
    bench, first, second, number = subscribed()

    def meanwhile() -> None:
        bench.party().coordinator.acks.acknowledge([one(first, number), one(second, number)])

    gate = Before("/cursors/", meanwhile)
    with pytest.raises(AckConflict, match="already"):
        bench.party(gate).coordinator.acks.acknowledge([one(first, number), one(second, number)])
    assert gate.hit
    bench.finish()


def test_a_plain_ack_that_arrives_late_counts_for_its_sender() -> None:
    """The first request is delayed, and arrives while the sender repeats it. The sender recognizes the stored ack as its own."""
    bench, first, _, number = subscribed()
    late: list[Callable[[], None]] = []
    writes: list[str] = []

    def gate(kind: str, what: str) -> Fate:
        if kind != "write":
            return Fate.GO
        writes.append(what)
        if len(writes) == 2:
            late.pop()()
        return Fate.LATE if len(writes) == 1 else Fate.GO

    bench.party(gate, late=late.append).coordinator.acks.acknowledge([one(first, number)])
    assert len(writes) == 2
    assert done(bench, first) == [f"{number}:0"]
    bench.finish()


def test_subscriptions_with_a_common_name_prefix_are_independent() -> None:
    bench, first, _, number = subscribed("s", "s1", "s10")
    party = bench.party()
    party.coordinator.commit(acking(bench, one(first, number, "s1")))
    assert [done(bench, first, name) for name in ("s", "s1", "s10")] == [[], [f"{number}:0"], []]
    subscriptions(party).delete(NAME, "s1")
    assert subscriptions(party).list() == [(NAME, "s"), (NAME, "s10")]
    bench.finish()


# --- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", FAULTS)
@pytest.mark.parametrize("topics", [(), (U,)], ids=["acks", "rows and acks"])
def test_a_commit_with_acks_is_atomic_at_every_step(fate: Fate, topics: tuple[str, ...]) -> None:
    """The acks of a committed transaction are stored in the cursor. The acks of any other transaction are released. Guards against
    failures A22 and A23 (protocol.md section 9).
    """
    worlds: list[Bench] = []

    def run(gate: At) -> None:
        bench, first, second, number = subscribed()
        worlds.append(bench)
        work = acking(bench, one(first, number), up_to(second, SUB, end_of(number)), topics=topics)
        told = False
        try:
            told = bench.party(gate).coordinator.commit(work).txn_id is not None
        except GIVEN_UP:
            told = False
        bench.finish()
        committed = bench.committed(1)
        assert committed or not told
        assert done(bench, first) == ([f"{number}:0"] if committed else [])
        assert done(bench, second) == ([f"0..{number}"] if committed else [])
        if committed:
            assert not any(stored(bench, segment).claims for segment in (first, second))
        bench.party().coordinator.commit(acking(bench, version=2)) if committed else bench.party().coordinator.commit(
            acking(bench, one(first, number), one(second, number), version=2)
        )
        assert done(bench, first) == [f"{number}:0"]
        bench.finish()

    hits = [gate.hit for gate in each_step(run, lambda k: At(k, fate))]
    assert any("/cursors/" in hit for hit in hits)
    assert any("/txn/op/" in hit for hit in hits)
    assert len(worlds) == len(hits) + 1


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LOSE_REPLY, Fate.LATE])
def test_a_sweeper_that_stops_anywhere_applies_each_ack_once(fate: Fate) -> None:
    def run(gate: At) -> None:
        bench, first, second, number = subscribed()
        party = bench.party()
        party.coordinator.background = lambda job: None
        party.coordinator.commit(acking(bench, one(first, number), one(second, number), topics=(U,)))
        assert len(bench.kept("/txn/op/")) == 3
        try:
            bench.party(gate).sweeper.sweep()
        except GIVEN_UP:
            assert gate.hit
        bench.finish()
        assert done(bench, first) == done(bench, second) == [f"{number}:0"]

    store = ("write", "get", "keys", "index")
    assert list(each_step(run, lambda k: At(k, fate, kinds=store)))


def test_a_reader_applies_a_committed_pending_ack_before_settling() -> None:
    bench, first, second, number = subscribed()
    party = bench.party()
    party.coordinator.background = lambda job: None
    party.coordinator.commit(acking(bench, one(first, number)))
    assert stored(bench, first).claims
    found = subscriptions(bench.party()).cursors(bench.party().topics.get(NAME), SUB)
    assert texts(acks.done(found[first])) == [f"{number}:0"]
    assert texts(acks.done(found[second])) == []


def test_a_pending_ack_past_its_deadline_is_ended_by_the_next_acknowledger() -> None:
    bench, first, _, number = subscribed()

    gate = Before("/txn/op/", fate=Fate.CRASH_BEFORE)
    with pytest.raises(Crashed):
        bench.party(gate).coordinator.commit(acking(bench, one(first, number), topics=(U,)))
    assert stored(bench, first).claims
    with pytest.raises(AckConflict, match="claims them"):
        bench.party().coordinator.acks.acknowledge([one(first, number)])
    bench.late()
    bench.history.acking = lambda: True
    bench.party().coordinator.acks.acknowledge([one(first, number)])
    assert done(bench, first) == [f"{number}:0"]
    bench.finish()


@pytest.mark.parametrize("fate", [*FAULTS, Fate.GO])
def test_a_plain_ack_is_applied_once_despite_lost_replies(fate: Fate) -> None:
    def run(gate: At) -> None:
        bench, first, second, number = subscribed()
        told = True
        try:
            bench.party(gate).coordinator.acks.acknowledge([one(first, number), one(second, number)])
        except GIVEN_UP:
            told = False
        found = [done(bench, segment) for segment in (first, second)]
        if told:
            assert found == [[f"{number}:0"]] * 2
        bench.finish()

    assert fate is Fate.GO or list(each_step(run, lambda k: At(k, fate)))
    if fate is Fate.GO:
        run(At(-1))


# --- subscriptions ------------------------------------------------------------------------------------------------


def test_create_list_seek_delete() -> None:
    bench, first, second, number = subscribed()
    party = bench.party()
    here = subscriptions(party)
    with pytest.raises(SubscriptionExists, match="etl"):
        here.create(NAME, SUB, at=0)
    here.create(NAME, "late", at=number)
    assert here.list(NAME) == [(NAME, SUB), (NAME, "late")]
    assert done(bench, first, "late") == [f"0..{number}"]
    here.seek(NAME, SUB, to=number)
    assert done(bench, second) == [f"0..{number}"]
    here.seek(NAME, SUB, to=0)
    assert done(bench, second) == []
    here.delete(NAME, SUB)
    assert here.list() == [(NAME, "late")]
    with pytest.raises(SubscriptionNotFound, match="subscriptions create"):
        party.coordinator.acks.acknowledge([one(first, number)])
    with pytest.raises(SubscriptionNotFound):
        here.delete(NAME, SUB)
    here.create(NAME, SUB, at=number)
    assert done(bench, first) == [f"0..{number}"]


def test_a_tombstone_is_deleted_after_the_grace_period() -> None:
    bench, _, _, _ = subscribed("a", "b")
    subscriptions(bench.party()).delete(NAME, "a")
    assert len(bench.kept("/cursors/")) == 4
    bench.clock.now += bench.settings.grace_period_ms + 1
    bench.party().sweeper.sweep()
    assert len(bench.kept("/cursors/")) == 2
    bench.party().topics.delete(NAME)
    bench.clock.now += bench.settings.grace_period_ms + 1
    bench.party().topics.forget_deleted()
    bench.party().sweeper.sweep()
    assert not bench.kept("/cursors/")


def test_acks_of_a_deleted_subscription_block_no_commit() -> None:
    bench, first, _, number = subscribed()
    party = bench.party()
    party.coordinator.background = lambda job: None
    party.coordinator.commit(acking(bench, one(first, number)))
    subscriptions(bench.party()).delete(NAME, SUB)
    bench.finish()


# --- splits and merges --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fate", FAULTS)
@pytest.mark.parametrize("act", [lambda t: t.split(NAME, 0), lambda t: t.merge(NAME, 0, 1)], ids=["split", "merge"])
def test_children_have_their_cursors_when_the_layout_shows_them(fate: Fate, act: Callable[..., object]) -> None:
    def run(gate: At) -> None:
        bench, first, _, number = subscribed("a", "b")
        try:
            act(bench.party(gate).topics)
        except GIVEN_UP:
            assert gate.hit
        before = bench.party().topics.get(NAME)
        for segment in before.segments():
            assert paths.cursor(segment, "a") in bench.state.records, segment
        party = bench.party()
        party.sweeper.sweep()
        topic = party.topics.get(NAME)
        for name in ("a", "b"):
            assert set(subscriptions(party).cursors(topic, name)) == set(topic.segments())
            assert all(paths.cursor(s, name) in bench.state.records for s in topic.segments())
        party.coordinator.acks.acknowledge([one(first, number, "a")])
        bench.finish()

    assert list(each_step(run, lambda k: At(k, fate, kinds=("write",))))


def test_a_sweep_spares_the_cursors_of_children_that_no_layout_shows_yet() -> None:
    """A split has created the cursors of the children, but has not yet written the layout that shows the children. At this moment a
    sweep looks for cursors without a segment. The sweep must not delete the cursors of the children.
    """
    bench, _, _, _ = subscribed()
    sweeper, interrupted = bench.party(), list[bool]()

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith("Put /topics/") and not interrupted:
            interrupted.append(True)
            collect_remains(sweeper.cluster.store, bench.settings.grace_period_ms)
        return Fate.GO

    topic = bench.party(gate).topics.split(NAME, 0)
    assert interrupted
    assert all(paths.cursor(segment, SUB) in bench.state.records for segment in topic.segments())
    assert set(subscriptions(bench.party()).cursors(topic, SUB)) == set(topic.segments())


def test_a_subscription_made_or_deleted_while_a_segment_splits_is_whole() -> None:
    """At each step of the split another process creates one subscription and deletes another. Afterwards the created one has a
    cursor in every segment, and the deleted one has none.
    """

    def run(gate: At) -> None:
        bench, _, _, _ = subscribed("old")
        here = subscriptions(bench.party())

        def meanwhile() -> None:
            here.create(NAME, "new", at=0)
            here.delete(NAME, "old")

        gate.meanwhile = meanwhile
        bench.party(gate).topics.split(NAME, 0)
        if gate.hit:
            topic = bench.party().topics.get(NAME)
            assert set(here.cursors(topic, "new")) == set(topic.segments())
            assert here.list() == [(NAME, "new")]
            bench.party().coordinator.acks.acknowledge([one(s, 9, "new") for s in topic.segments()])
            with pytest.raises(SubscriptionNotFound):
                here.cursors(topic, "old")
        bench.finish()

    assert list(each_step(run, At))


@dataclass
class DeletedMeanwhile:
    """A gate that deletes the subscription before the first write of a child's cursor. `fate`: the fate of the second such
    write.
    """

    fate: Fate
    delete: Callable[[], object]
    writes: int = 0

    def __call__(self, kind: str, what: str) -> Fate:
        if kind != "write" or "/cursors/" not in what:
            return Fate.CRASH_BEFORE if self.fate is Fate.CRASH_BEFORE and self.writes > 1 else Fate.GO
        self.writes += 1
        if self.writes == 1:
            self.delete()
        return self.fate if self.writes == 2 or (self.fate is Fate.CRASH_BEFORE and self.writes > 1) else Fate.GO


@pytest.mark.parametrize("fate", FAULTS)
def test_a_deleted_subscription_leaves_no_cursor_on_a_child(fate: Fate) -> None:
    """The deletion may list the cursors before the split creates the child's cursor. The split then deletes the child's cursor,
    even after a lost reply or a crash.
    """
    bench, _, _, _ = subscribed("old")
    here = subscriptions(bench.party())
    gate = DeletedMeanwhile(fate, lambda: here.delete(NAME, "old"))
    try:
        bench.party(gate).topics.split(NAME, 0)
    except Crashed:
        bench.party().topics.finish_seals()  # any process that finds the seal finishes the split
    assert gate.writes > 1
    assert here.list() == []
    left = [path for path in bench.kept("/cursors/") if stored(bench, *paths.cursor_of(path)).deleted_ms is None]
    assert not left
    bench.finish()


def test_a_split_whose_cursor_writes_are_all_lost_raises_an_error() -> None:
    """The store loses every write of a cursor, so the split raises an error. A later process finishes the split."""
    bench, _, _, _ = subscribed()

    def gate(kind: str, what: str) -> Fate:
        return Fate.LOSE_REQUEST if kind == "write" and "/cursors/" in what else Fate.GO

    with pytest.raises(BadVersion, match="100 times in a row"):
        bench.party(gate).topics.split(NAME, 0)
    bench.party().topics.finish_seals()
    topic = bench.party().topics.get(NAME)
    assert all(paths.cursor(segment, SUB) in bench.state.records for segment in topic.segments())
    bench.finish()


def test_acks_count_once_over_a_split() -> None:
    """The segment of the staged rows is split before the commit. The commit reroutes the rows, and its acks take effect once."""
    bench, first, second, number = subscribed()
    party = bench.party()
    party.coordinator.rewrite = lambda part, segment, key, to: [(target.segment, part) for target in to]
    work = acking(bench, one(first, number), topics=(T,))
    bench.party().topics.split(NAME, 0)
    assert party.coordinator.commit(work).number is not None
    assert done(bench, first) == [f"{number}:0"]
    assert done(bench, second) == []
    bench.finish()


# --- costs --------------------------------------------------------------------------------------------------------


def test_op_records_of_acks_name_the_acked_rows() -> None:
    bench, first, _, number = subscribed()
    party = bench.party()
    party.coordinator.background = lambda job: None
    party.coordinator.commit(acking(bench, one(first, number), topics=(U,)))
    ops = [Op.from_bytes(bench.state.records[key].value) for key in bench.state.records if key.path.startswith("/txn/op/")]
    assert [(op.kind, op.segment, op.subscription, op.ledger_id, op.entry_id) for op in ops if op.kind is OpKind.ACK] == [
        (OpKind.ACK, first, SUB, number, 0)
    ]


def test_empty_acks_are_an_empty_batch() -> None:
    bench, first, _, _ = subscribed()
    rows: Rows = NONE
    made = bench.party().coordinator.commit(acking(bench, Ack(first, SUB, rows)))
    assert (made.txn_id, made.number) == (None, None)
    assert bench.committed(1)


def test_fenced_acks_are_dropped() -> None:
    bench, first, _, number = subscribed()

    def meanwhile() -> None:
        bench.party().coordinator.commit(acking(bench, version=1))

    gate = Before("/cursors/", meanwhile)
    with pytest.raises((Fenced, TxnConflict)):
        bench.party(gate).coordinator.commit(acking(bench, one(first, number)))
    assert gate.hit
    assert done(bench, first) == []
    bench.finish()


@pytest.mark.parametrize("fate", [f for f in FAULTS if f is not Fate.CRASH_BEFORE and f is not Fate.CRASH_AFTER])
@pytest.mark.parametrize("at", [0, 3])
def test_a_created_subscription_exists_whole_once_its_creator_is_answered(fate: Fate, at: int) -> None:
    """A lost request or reply delays the creation, but the cursors start at the given number in every segment."""

    def run(gate: At) -> None:
        bench, _, _, _ = subscribed("other")
        party = bench.party(gate)
        subscriptions(party).create(NAME, SUB, at=at)
        for segment in party.topics.get(NAME).segments():
            assert acks.done(stored(bench, segment)) == through_ledger(at)
        bench.finish()

    assert list(each_step(run, lambda k: At(k, fate, kinds=("write",))))


def test_a_subscription_recreated_while_a_segment_splits_is_whole() -> None:
    """The subscription is deleted at one step of the split and created again at a later one. The split deletes no cursor of the new
    subscription.
    """

    def run(first: int, later: int) -> int:
        """Delete the subscription at step `first` of a split, create it again at step `later`, and return the number of steps."""
        bench, _, _, _ = subscribed("old")
        bench.history.moving = lambda: (0,)  # the bench's history checker requires new cursors to start at this number
        here = subscriptions(bench.party())
        happens = {first: lambda: here.delete(NAME, "old"), later: lambda: here.create(NAME, "old", at=0)}
        steps = count()

        def gate(kind: str, what: str) -> Fate:
            happens.get(next(steps), lambda: None)()
            return Fate.GO

        bench.party(gate).topics.split(NAME, 0)
        had = next(steps)
        if had > later:
            topic = bench.party().topics.get(NAME)
            assert set(here.cursors(topic, "old")) == set(topic.segments()), (first, later)
        bench.finish()
        return had

    firsts = takewhile(lambda first: run(first, first + 1) > first + 1, count())
    assert (
        sum(1 for first in firsts for _ in takewhile(partial(lambda f, later: run(f, later) > later, first), count(first + 1))) > 50
    )


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_the_end_of_a_transaction_is_an_event_of_what_it_wrote_and_of_what_it_acknowledged(commit: bool) -> None:
    """It writes to the topic U and acknowledges a row of T. An abort publishes the same events as a commit: none for the segment of
    T, and one for the subscription.
    """
    bench, first, _, number = subscribed()
    work = dataclasses.replace(bench.work(1, topics=(U,)), acks=(Ack(first, SUB, parse_all([f"{number}:0"])),))
    if commit:
        txn = bench.party().coordinator.commit(work).txn_id
    else:
        before = set(bench.state.records)
        headers = count()

        def gate(kind: str, what: str) -> Fate:
            decides = kind == "write" and what.startswith("Put /txn/id/") and next(headers) == 1
            return Fate.CRASH_BEFORE if decides else Fate.GO

        with pytest.raises(Crashed):
            bench.party(gate).coordinator.commit(work)
        (txn,) = (
            key.path.rpartition("/")[2] for key in bench.state.records if key.path.startswith("/txn/id/") and key not in before
        )
        bench.party().coordinator.abort(txn)
    found = {
        key.path[:-21]
        for key, record in bench.state.records.items()
        if "-events/" in key.path and txn.encode() in record.value  # type: ignore[operator]
    }
    (written,) = work.parts
    assert found == {paths.segment_events(written).path, paths.subscription_events(first, SUB).path}
