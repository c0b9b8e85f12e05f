"""The rules of the log of acknowledgements."""

from __future__ import annotations

import pytest

from metadata.records.row_ranges import Row, before, rows
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import LogDamaged
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.log_records import Outcome
from txnsegment.pulsar.ack_records import (
    WHOLE,
    Aborted,
    Acked,
    Begin,
    Checkpoint,
    Deleted,
    Done,
    Moved,
    Record,
    Recovery,
    State,
    Take,
    after,
    beginning,
    decode,
    encode,
)

T = TxnId(1, 7)
A, B = {"s": rows([(Row(0, 0, 0), Row(4, 0, 2))])}, {"s": rows([(Row(4, 1, 0), Row(4, 1, 1))])}


def state_of(*records: Record, t: Outcome | None = None) -> State:
    recovery = Recovery(())
    for record in records:
        recovery.read(record)
    recovery.ended({T: t})
    return recovery.finish()


@pytest.mark.parametrize(
    "record",
    [
        Take("c"),
        Moved({**A, "t": before(WHOLE)}, {"log": Position(3, 4)}),
        Acked(B),
        Begin(T),
        Done(T, A),
        Aborted((T, TxnId(0, 0))),
        Deleted(),
        Checkpoint(State(True, A, {"log": Position(3, -1)}, "c")),
        Checkpoint(State(owner="c")),
    ],
)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize("data", [b"", b"{}", b'{"v":1,"kind":"x"}', b'{"v":1,"kind":"acked","rows":{"s":["q"]}}'])
def test_a_damaged_record_is_an_error(data: bytes) -> None:
    with pytest.raises(LogDamaged, match="cannot be read"):
        decode(data)


def test_a_newer_format_is_an_error() -> None:
    with pytest.raises(LogDamaged, match="format 2"):
        decode(b'{"v":2,"kind":"take"}')


def test_acknowledgements_add_up() -> None:
    found = state_of(Take("c"), Moved(A, {}), Acked(B))
    assert found.exists
    assert found.rows == {"s": (*A["s"], *B["s"])}


def test_a_move_replaces_all_acknowledgements_before_it() -> None:
    assert state_of(Moved(A, {}), Acked(B), Moved({}, {}), Acked(B)).rows == B


def test_the_acknowledgements_of_a_committed_transaction_count() -> None:
    assert state_of(Moved(A, {}), Begin(T), Done(T, B), t="committed").rows["s"][-1:] == B["s"]


def test_the_acknowledgements_of_an_aborted_transaction_do_not_count_although_the_broker_delivers_them() -> None:
    """The broker 5.0.0-M1 can deliver a row of a transaction that was open when the broker was killed, and aborted later."""
    assert state_of(Moved(A, {}), Begin(T), Done(T, B), t="aborted").rows == A


def test_the_acknowledgements_of_a_transaction_that_the_coordinator_has_forgotten_count() -> None:
    assert state_of(Moved(A, {}), Begin(T), Done(T, B), t=None).rows["s"][-1:] == B["s"]
    assert state_of(Moved(A, {}), Begin(T), t=None).rows == A


def test_a_transaction_of_which_the_log_says_that_it_was_aborted_does_not_count_when_the_coordinator_has_forgotten_it() -> None:
    assert state_of(Moved(A, {}), Begin(T), Done(T, B), Take("c"), Aborted((T,)), t=None).rows == A


def test_the_outcome_of_each_begun_transaction_is_asked_for_also_if_its_done_is_there() -> None:
    recovery = Recovery(())
    recovery.read(Begin(T))
    assert recovery.leftovers() == [T]
    recovery.read(Done(T, A))
    assert recovery.leftovers() == [T]


def test_the_own_transaction_is_no_leftover() -> None:
    recovery = Recovery({T})
    recovery.read(Begin(T))
    assert recovery.leftovers() == []


def test_a_transaction_that_is_committed_without_its_done_is_damage() -> None:
    with pytest.raises(LogDamaged, match="1_7"):
        state_of(Moved(A, {}), Begin(T), t="committed")


def test_a_checkpoint_counts_only_at_the_beginning() -> None:
    checkpoint = Checkpoint(State(True, A, {}, "c"))
    assert state_of(checkpoint, Acked(B)).rows["s"] == (*A["s"], *B["s"])
    assert state_of(Moved({}, {}), Acked(B), checkpoint).rows == B


def test_the_consumer_before_the_last_take_is_known() -> None:
    recovery = Recovery(())
    for record in (Checkpoint(State(True, A, {}, "one")), Acked(B), Take("two")):
        recovery.read(record)
    assert (recovery.owner_before(), recovery.finish().owner) == ("one", "two")


def test_records_since_the_checkpoint_are_counted() -> None:
    state = State()
    for record in (Checkpoint(State(True, A)), Acked(B), Acked(B)):
        state = after(state, record)
    assert state.records == 2


def test_the_beginning_is_what_is_acknowledged_without_a_gap() -> None:
    assert beginning(A["s"]) == Row(4, 0, 2)
    assert beginning(B["s"]) == Row(0, 0, 0)


def test_nothing_before_a_deletion_counts() -> None:
    recovery = Recovery(())
    for record in (Take("one"), Moved(A), Acked(B), Deleted(), Take("two")):
        recovery.read(record)
    found = recovery.finish()
    assert (found.exists, dict(found.rows), found.owner) == (False, {}, "two")
    recovery.read(Moved(B))
    assert recovery.finish().exists
    assert dict(recovery.finish().rows) == dict(B)
