"""Tests of pending-ack logs: pending acks, conflicts, markers, subscriptions that are created again (docs/in_stream.md, Pending
acks).
"""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.common.errors import AckConflict, SubscriptionExists, SubscriptionNotFound, TxnSegmentError
from metadata.instream.client import InStream
from metadata.records.row_ranges import end_of, parse_all, texts
from metadata.rules.acks import Ack, up_to
from tests.support.bench import PERSISTENT, At, Bench

T, U = PERSISTENT

S = (str(T), "s")


def acked(bench: Bench, where: tuple[str, str] = S) -> list[str]:
    cursor = bench.instream().coordinator.acks.read([where])[where]
    mark = [] if cursor.mark_delete is None else [f"..{cursor.mark_delete.ledger_id}"]
    return mark + texts(cursor.acked)


def ack(*rows: str, where: tuple[str, str] = S) -> Ack:
    return Ack(*where, parse_all(rows))


def begun(party: InStream) -> str:
    return party.coordinator.begin(subscriptions=[S])


def made() -> tuple[Bench, InStream]:
    bench = Bench(topics=PERSISTENT)
    party = bench.instream()
    party.coordinator.acks.create(*S)
    return bench, party


def test_the_first_use_of_a_subscription_reads_its_record_once_to_find_its_log() -> None:
    """The first use reads the subscription's record to find its log. It reads the record again together with the log, to see
    whether the subscription was deleted meanwhile.
    """
    bench, _ = made()
    read: list[str] = []

    def noted(kind: str, what: str) -> Fate:
        if kind == "get":
            read.append(what)
        return Fate.GO

    bench.instream(noted).coordinator.acks.read([S])
    assert [what.split("/")[2] for what in read] == ["subscriptions", "topics", "subscriptions"]


def test_claims_move_into_the_cursor_at_the_commit_and_are_free_after_an_abort() -> None:
    bench, party = made()
    one, two = begun(party), begun(party)
    party.coordinator.acknowledge(one, [ack("1:0:0..1:0:4")])
    party.coordinator.acknowledge(two, [ack("2")])
    assert acked(bench) == []
    party.coordinator.end(one, commit=True)
    party.coordinator.end(two, commit=False)
    assert acked(bench) == ["1:0:0..1:0:4"]
    with pytest.raises(AckConflict):
        bench.instream().coordinator.acks.acknowledge([ack("1:0:3")])
    bench.instream().coordinator.acks.acknowledge([ack("2")])
    assert acked(bench) == ["1:0:0..1:0:4", "2"]


def test_the_first_of_two_conflicting_acks_in_the_order_of_the_log_wins() -> None:
    bench, party = made()
    other = bench.instream()
    one, two = begun(party), begun(other)
    party.coordinator.acknowledge(one, [ack("3:1")])
    with pytest.raises(AckConflict, match="claims them"):
        other.coordinator.acknowledge(two, [ack("3")])
    with pytest.raises(AckConflict, match="claims them"):
        other.coordinator.acks.acknowledge([up_to(*S, end_of(5))])
    other.coordinator.acknowledge(two, [ack("3:0")])  # transaction `one` claims another entry of the ledger
    other.coordinator.end(two, commit=True)
    party.coordinator.end(one, commit=False)
    assert acked(bench) == ["3:0"]


def test_an_ack_after_the_end_of_its_transaction_is_void() -> None:
    bench, party = made()
    txn = begun(party)
    bench.instream().coordinator.end(txn, commit=False)
    with pytest.raises(AckConflict, match="has ended"):
        party.coordinator.acknowledge(txn, [ack("1")])
    assert acked(bench) == []


def test_a_pending_cumulative_ack_holds_every_row_that_it_covers() -> None:
    bench, party = made()
    txn = begun(party)
    party.coordinator.acknowledge(txn, [up_to(*S, end_of(4))])
    with pytest.raises(AckConflict):
        bench.instream().coordinator.acks.acknowledge([ack("2")])
    party.coordinator.end(txn, commit=True)
    assert acked(bench) == ["..4"]
    party.coordinator.acks.advance([up_to(*S, end_of(3))])  # number 3 is already below the mark-delete position
    party.coordinator.acks.advance([up_to(*S, end_of(6))])
    assert acked(bench) == ["..6"]
    party.coordinator.acks.seek({S: parse_all(["1"])})
    assert acked(bench) == ["1"]


def test_rows_and_acks_of_one_write_set_commit_together() -> None:
    bench, party = made()
    work = dataclasses.replace(bench.work(1, topics=[U]), acks=[ack("1"), ack("2")])
    party.coordinator.commit(work)
    assert acked(bench) == ["1..2"]
    assert bench.labels(U) == ["app.1"]
    with pytest.raises(AckConflict):
        party.coordinator.commit(dataclasses.replace(bench.work(2, topics=[U]), acks=[ack("2")]))
    assert bench.labels(U) == ["app.1"]
    assert bench.labels(T) == []


def test_a_pending_ack_of_a_dead_owner_blocks_others_until_its_timeout_only() -> None:
    bench, party = made()
    party.coordinator.acknowledge(begun(party), [ack("1")])
    with pytest.raises(AckConflict):
        bench.instream().coordinator.acks.acknowledge([ack("1")])
    bench.clock.now += 200_000
    bench.instream().coordinator.acks.acknowledge([ack("1")])
    assert acked(bench) == ["1"]


def test_a_recreated_subscription_keeps_no_earlier_acks() -> None:
    bench, party = made()
    late = bench.instream()
    late.coordinator.acks.acknowledge([ack("1")])
    sleeper = bench.instream()
    sleeper.coordinator.acks.acknowledge([ack("3")])
    with pytest.raises(SubscriptionExists):
        party.coordinator.acks.create(*S)
    party.coordinator.acks.delete(*S)
    with pytest.raises(SubscriptionNotFound):
        late.coordinator.acks.acknowledge([ack("2")])
    party.coordinator.acks.create(*S, parse_all(["7"]))
    assert acked(bench) == ["7"]
    late.coordinator.acks.acknowledge([ack("8")])
    sleeper.coordinator.acks.acknowledge([ack("3")])
    assert acked(bench) == ["3", "7..8"]
    assert list(party.coordinator.acks.list(str(T))) == ["s"]


def test_a_subscription_begins_at_the_requested_position() -> None:
    bench = Bench(topics=PERSISTENT)
    bench.instream().coordinator.acks.create(*S, parse_all(["0..5"]))
    assert acked(bench) == ["..5"]


def test_subscriptions_with_a_common_name_prefix_are_independent() -> None:
    bench, party = made()
    other = (str(T), "s1")
    party.coordinator.acks.create(*other)
    party.coordinator.acks.acknowledge([ack("1", where=other)])
    assert acked(bench) == []
    assert acked(bench, other) == ["1"]


def test_a_compacted_log_replays_to_the_same_state() -> None:
    bench, party = made()
    for i in range(1, 5):
        party.coordinator.acks.acknowledge([ack(str(i))])
    open_txn = begun(party)
    party.coordinator.acknowledge(open_txn, [ack("9")])
    other = bench.instream()
    assert acked(bench) == ["1..4"]
    assert other.coordinator.acks.compact(S) == 5
    assert acked(bench) == ["1..4"]
    with pytest.raises(AckConflict):
        bench.instream().coordinator.acks.acknowledge([ack("9")])
    party.coordinator.end(open_txn, commit=True)
    assert acked(bench) == ["1..4", "9"]


FATES = [fate for fate in Fate if fate not in (Fate.GO, Fate.LATE)]


@pytest.mark.parametrize("fate", FATES, ids=lambda fate: fate.name)
def test_every_step_of_a_commit_with_acks_fails_in_every_way(fate: Fate) -> None:
    """A committed transaction keeps its rows and acks. Any other transaction releases its acks. No row is acknowledged twice."""
    k = 0
    while True:
        bench, _ = made()
        gate = At(k, fate)
        work = dataclasses.replace(bench.work(1), acks=[ack("1"), ack("2")])
        run = partial(bench.instream(gate).coordinator.commit, work)
        try:
            run()
        except (Crashed, TxnSegmentError):
            assert gate.hit
        bench.late()
        bench.instream().coordinator.ending.timeouts()
        bench.instream().coordinator.ending.finish_all()
        seen = bench.labels(T)
        assert bench.labels(U) == seen, gate.hit
        assert acked(bench) == (["1..2"] if seen else []), gate.hit
        assert not bench.instream().coordinator.acks.read([S])[S].claims
        if not gate.hit:
            assert seen == ["app.1"]
            return
        k += 1
