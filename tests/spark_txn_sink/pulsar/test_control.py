"""Tests of the rules of the control topic: what a run aborts, which versions are committed, and when another driver took over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import LogDamaged
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.control import (
    RUNS,
    Begin,
    Checkpoint,
    Done,
    Record,
    Recovery,
    State,
    Take,
    TakenOver,
    VersionRefused,
    after,
    decide,
    decode,
    encode,
)

TOPIC = "topic://public/default/t"
A, B, C = TxnId(0, 1), TxnId(1, 2), TxnId(0, 3)


def begin(txn: TxnId, version: int, run: str = "r1") -> Begin:
    return Begin(txn, version, run)


def done(txn: TxnId, version: int, run: str = "r1") -> Done:
    return Done(txn, version, run, TOPIC, {"segment://public/default/t/0000-ffff-0": (Position(3, 0), Position(3, 7))}, 8)


def state_of(*records: Record) -> State:
    found = State()
    for record in records:
        found = after(found, record)
    return found


def recovered(run: str, own: TxnId, *records: Record) -> Recovery:
    """Return the recovery of a run that has read these records."""
    recovery = Recovery(run, own)
    for record in records:
        recovery.read(record)
    return recovery


def judged(state: State, run: str, version: int, *, streaming: bool = True, accepts_loss: bool = False, rows: int = 8) -> str:
    return decide(state, run, version, rows, what="app to t", streaming=streaming, accepts_loss=accepts_loss)


# --- leftovers ---


def test_a_begin_without_done_is_aborted() -> None:
    recovery = recovered("r2", C, Take("r1"), begin(A, 0), done(A, 0), begin(B, 1), Take("r2"))
    assert recovery.leftovers() == [B]
    recovery.ended({B: "aborted"})
    assert recovery.finish().open == {}
    assert judged(recovery.state, "r2", 1) == "commit"


def test_a_leftover_is_known_before_the_own_take_is_read() -> None:
    """The `done` of an open transaction hides all later records. So the caller must learn of the leftover from its `begin`."""
    assert recovered("r2", C, Take("r1"), begin(A, 0)).leftovers() == [A]


def test_the_own_transaction_is_no_leftover() -> None:
    recovery = recovered("r1", A, Take("r1"), begin(A, 0), Take("r1"))
    assert recovery.leftovers() == []
    assert A in recovery.finish().open


def test_a_leftover_that_was_committed_makes_its_version_done() -> None:
    recovery = recovered("r2", C, Take("r1"), begin(A, 4), done(A, 4), Take("r2"))
    recovery.ended({A: "committed"})
    assert recovery.missing == []
    assert judged(recovery.finish(), "r2", 4) == "skip"


def test_a_leftover_that_was_committed_without_done_is_an_error() -> None:
    recovery = recovered("r2", C, Take("r1"), begin(A, 4), Take("r2"))
    recovery.ended({A: "committed"})
    assert recovery.missing == [A]
    with pytest.raises(LogDamaged, match="0_1"):
        recovery.finish()


# --- other rows of a committed version ---


def test_a_committed_version_of_a_stream_with_another_number_of_rows_is_refused() -> None:
    """The checkpoint is an old copy, and rows have come since. They would be lost if the version were skipped."""
    found = state_of(Take("r1"), begin(A, 4), done(A, 4))
    assert judged(found, "r1", 4) == "skip"
    for rows in (0, 7, 9):
        with pytest.raises(
            VersionRefused, match=f"committed with 8 rows, and this micro-batch of the same version has {rows}"
        ) as raised:
            judged(found, "r1", 4, rows=rows)
        assert "old copy" in raised.value.advice
        assert "afterRestore=continue" in raised.value.advice
        assert judged(found, "r1", 4, rows=rows, accepts_loss=True) == "skip"
        assert judged(found, "r1", 4, rows=rows, streaming=False) == "skip"


# --- other drivers ---


def test_a_driver_that_was_replaced_gets_an_error_and_aborts_nothing() -> None:
    recovery = recovered("r1", C, Take("r1"), begin(A, 0), done(A, 0), Take("r2"), begin(B, 1, "r2"), Take("r1"))
    assert recovery.replaced
    assert recovery.leftovers() == []
    with pytest.raises(TakenOver, match="version 1") as raised:
        judged(recovery.state, "r1", 1)
    assert "Stop the one" in raised.value.advice


def test_the_take_of_a_replaced_driver_does_not_replace_its_successor() -> None:
    found = state_of(Take("r1"), Take("r2"), Take("r1"))
    assert not found.replaced("r2")
    assert found.replaced("r1")


def test_the_state_remembers_a_bounded_number_of_runs() -> None:
    found = state_of(*(Take(f"r{number}") for number in range(RUNS + 5)))
    assert len(found.runs) == RUNS
    assert found.runs[-1] == f"r{RUNS + 4}"


# --- versions ---


@pytest.mark.parametrize("version", [0, 7])
def test_the_first_version_is_any(version: int) -> None:
    assert judged(State(), "r1", version) == "commit"


def test_versions_follow_each_other_and_the_last_one_is_skipped() -> None:
    found = state_of(Take("r1"), begin(A, 4), done(A, 4))
    assert judged(found, "r1", 4) == "skip"
    assert judged(found, "r1", 5) == "commit"
    with pytest.raises(VersionRefused, match="below the committed version 4"):
        judged(found, "r1", 3)
    with pytest.raises(VersionRefused, match="are missing"):
        judged(found, "r1", 6)
    assert judged(found, "r1", 6, accepts_loss=True) == "commit"
    assert judged(found, "r1", 6, streaming=False) == "commit"


def test_two_transactions_of_one_version_are_an_error() -> None:
    with pytest.raises(LogDamaged, match="0_1 and 1_2"):
        state_of(done(A, 1), done(B, 1))


def test_a_done_that_comes_twice_counts_once() -> None:
    assert state_of(begin(A, 1), done(A, 1), done(A, 1)).last == done(A, 1)


# --- records ---

txns = st.builds(TxnId, st.integers(0, 3), st.integers(0, 2**63 - 1))
texts = st.text(max_size=8)
positions = st.builds(Position, st.integers(-1, 2**62), st.integers(-1, 2**62))
begins = st.builds(Begin, txns, st.integers(0, 2**62), texts)
dones = st.builds(
    Done, txns, st.integers(0, 2**62), texts, texts, st.dictionaries(texts, st.tuples(positions, positions)), st.integers(0, 2**40)
)


@st.composite
def states(draw: st.DrawFn) -> State:
    opened = draw(st.lists(begins, max_size=3))
    return State(tuple(draw(st.lists(texts, max_size=4))), draw(st.none() | dones), {one.txn: one for one in opened})


@given(st.builds(Take, texts) | begins | dones | st.builds(Checkpoint, states()))
def test_records_keep_their_values(record: Record) -> None:
    assert decode(encode(record)) == record


def test_the_bytes_of_records_are_a_promise() -> None:
    assert encode(Take("r1")) == b'{"v":1,"kind":"take","run":"r1"}'
    assert encode(begin(A, 3)) == b'{"v":1,"kind":"begin","txn":"0_1","version":3,"run":"r1"}'
    assert encode(done(A, 3)) == (
        b'{"v":1,"kind":"done","txn":"0_1","version":3,"run":"r1","topic":"topic://public/default/t",'
        b'"segments":{"segment://public/default/t/0000-ffff-0":["3:0","3:7"]},"rows":8}'
    )
    assert encode(Checkpoint(state_of(Take("r1"), begin(A, 3)))) == (
        b'{"v":1,"kind":"checkpoint","runs":["r1"],"last":null,"open":[{"kind":"begin","txn":"0_1","version":3,"run":"r1"}]}'
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        b'{"v":1}',
        b'{"v":1,"kind":"x"}',
        b'{"v":1,"kind":"begin"}',
        b'{"v":2,"kind":"take"}',
        b"\xff",
        b'{"v":1,"kind":"checkpoint","runs":[],"last":3,"open":[]}',
    ],
)
def test_other_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(LogDamaged):
        decode(data)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=12), st.integers(0, 12))
def test_a_read_from_a_checkpoint_gives_the_state_of_a_read_from_the_start(steps: list[tuple[int, int]], at: int) -> None:
    """The log has the records of a few runs, whose versions follow one another, and a checkpoint at any place."""
    records: list[Record] = []
    version = 0
    for number, (kind, run) in enumerate(steps):
        txn = TxnId(0, number)
        records.append(Take(f"r{run}") if kind == 0 else begin(txn, version, f"r{run}"))
        if kind == 2:
            records.append(done(txn, version, f"r{run}"))
            version += 1
    before, rest = records[:at], records[at:]
    whole = state_of(*records)
    from_checkpoint = state_of(Checkpoint(state_of(*before)), *rest)
    assert state_of(*before, Checkpoint(State(("other",))), *rest).last == state_of(*records).last or not before
    assert (from_checkpoint.runs, from_checkpoint.last, from_checkpoint.open) == (whole.runs, whole.last, whole.open)
