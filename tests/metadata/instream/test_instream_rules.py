"""The pure rules of a topic's log. A replay from a snapshot's maxReadPosition gives the same state as a replay from the start."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.simulator.store.clock import SimulatedClock
from conformance.simulator.store.storage import Disk, GatedStorage
from metadata.instream import snapshots
from metadata.instream.rules import Counts, TopicState, first_ongoing, fold, low_water, max_read, trimmed, visible
from metadata.instream.txn_records import TxnEntry, TxnEntryKind, TxnState
from metadata.instream.txn_rules import TRANSITIONS, Effect, TxnLogState, compacted, restored
from metadata.instream.txn_rules import fold as fold_txn
from metadata.records.names import PersistentName
from metadata.records.persistent_records import EntryKind, LogEntry

NAME = PersistentName("public", "default", "t")
TXNS = [f"1000000_{n}" for n in range(1, 6)]


def data(txn: str | None, entry_id: str = "") -> LogEntry:
    return LogEntry(kind=EntryKind.DATA, id=entry_id or f"{txn}-x", publish_ms=0, txn=txn)


def marker(kind: EntryKind, txn: str, low: int | None = None) -> LogEntry:
    return LogEntry(kind=kind, id="m", publish_ms=0, txn=txn, low_water=low)


ENTRIES = st.lists(
    st.one_of(
        st.builds(data, st.sampled_from([None, *TXNS]), st.sampled_from(["a", "b", "c"])),
        st.builds(marker, st.sampled_from([EntryKind.COMMIT, EntryKind.ABORT]), st.sampled_from(TXNS)),
        st.builds(marker, st.sampled_from([EntryKind.COMMIT, EntryKind.ABORT]), st.sampled_from(TXNS), st.integers(0, 5)),
        st.builds(lambda why: LogEntry(kind=EntryKind.SEAL, id="s", publish_ms=0, why=why), st.just("migrate")),
    ),
    max_size=24,
)


def run(entries: list[LogEntry], state: TopicState | None = None, start: int = 0) -> TopicState:
    state = TopicState() if state is None else state
    for number, entry in enumerate(entries, 1):
        if number > start:
            fold(state, number, entry)
    return state


def shown(state: TopicState, entries: list[LogEntry]) -> list[int]:
    cut = max_read(state, len(entries))
    return [n for n, e in enumerate(entries, 1) if e.kind is EntryKind.DATA and n <= cut and visible(state, n, e.txn)]


@settings(max_examples=400)
@given(ENTRIES, st.data())
def test_a_snapshot_and_a_replay_from_its_max_read_position_equal_a_replay_of_all(
    entries: list[LogEntry], pick: st.DataObject
) -> None:
    whole = run(entries)
    made_at = pick.draw(st.integers(0, len(entries)))
    then = run(entries[:made_at])
    base = run(entries[: max_read(then, made_at)])
    storage = GatedStorage(Disk(SimulatedClock()))
    pointer = snapshots.pointer(storage, NAME, base, then.aborted, last_entry=0, now_ms=0, unique="u")
    _, tip = snapshots.load(storage, NAME, pointer)
    again = run(entries, tip, pointer.at)
    assert shown(again, entries) == shown(whole, entries)
    assert again == whole


@settings(max_examples=200)
@given(ENTRIES)
def test_visible_rows_only_grow_and_undecided_rows_stay_hidden(entries: list[LogEntry]) -> None:
    before: list[int] = []
    cut = 0
    for n in range(1, len(entries) + 1):
        state = run(entries[:n])
        now = shown(state, entries[:n])
        assert now[: len(before)] == before
        assert max_read(state, n) >= cut
        assert all(entries[i - 1].txn not in state.ongoing for i in now)
        before, cut = now, max_read(state, n)


@settings(max_examples=200)
@given(ENTRIES, st.data())
def test_trimming_changes_nothing_above_the_trimmed_position(entries: list[LogEntry], pick: st.DataObject) -> None:
    whole = run(entries)
    to = pick.draw(st.integers(0, max_read(whole, len(entries))))
    after = whole.copy()
    trimmed(after, to)
    assert [n for n in shown(after, entries) if n > to] == [n for n in shown(whole, entries) if n > to]


def test_an_aborted_transaction_is_kept_until_its_marker_is_trimmed() -> None:
    state = run([data("1000000_1", "a"), data(None), data("1000000_1", "b"), marker(EntryKind.ABORT, "1000000_1")])
    trimmed(state, 2)
    assert not visible(state, 3, "1000000_1")
    trimmed(state, 4)
    assert not state.aborted


def test_zombie_data_stays_void_when_its_transaction_expires() -> None:
    """A marker's low-water mark drops transaction 1 from the state. Data that transaction 1 appends later is void all the same."""
    entries = [
        data("1000000_1", "a"),
        marker(EntryKind.COMMIT, "1000000_1"),
        marker(EntryKind.COMMIT, "1000000_2", low=1),
        data("1000000_1", "b"),
        data(None),
    ]
    state = run(entries)
    assert state.ended == {"1000000_2": 3}
    assert shown(state, entries) == [1, 5]
    trimmed(state, 2)
    assert not visible(state, 4, "1000000_1")


def test_the_low_water_mark_aborts_transactions_that_never_registered() -> None:
    entries = [data("1000000_1"), data(None), marker(EntryKind.COMMIT, "1000000_3", low=2)]
    state = run(entries)
    assert first_ongoing(state) is None
    assert shown(state, entries) == [2]


def test_a_second_append_of_one_id_is_void() -> None:
    state = TopicState()
    assert fold(state, 1, data("1000000_1", "a")) is Counts.YES
    assert fold(state, 2, data("1000000_1", "a")) is Counts.VOID
    assert fold(state, 3, data("1000000_1", "b")) is Counts.YES


def test_a_migration_seal_never_cuts_through_a_transaction() -> None:
    seal = LogEntry(kind=EntryKind.SEAL, id="s", publish_ms=0, why="migrate")
    state = TopicState()
    fold(state, 1, data("1000000_1"))
    assert fold(state, 2, seal) is Counts.VOID
    fold(state, 3, marker(EntryKind.COMMIT, "1000000_1"))
    assert fold(state, 4, seal) is Counts.YES
    assert fold(state, 5, data(None)) is Counts.VOID
    assert not visible(state, 5, None)


def test_a_terminated_topic_takes_no_marker() -> None:
    state = TopicState()
    fold(state, 1, data("1000000_1"))
    assert fold(state, 2, LogEntry(kind=EntryKind.SEAL, id="s", publish_ms=0, why="terminate")) is Counts.YES
    assert fold(state, 3, marker(EntryKind.COMMIT, "1000000_1")) is Counts.VOID
    assert max_read(state, 3) == 0


def test_low_water() -> None:
    assert low_water([], 7) == 7
    assert low_water([5, 3], 7) == 2


def status(txn: int, state: TxnState) -> TxnEntry:
    return TxnEntry(kind=TxnEntryKind.STATUS, id="x", txn=txn, state=state, at_ms=0)


def new(app: str | None = None, version: int | None = None) -> TxnEntry:
    return TxnEntry(kind=TxnEntryKind.NEW, id="n", created_ms=0, timeout_ms=1, app=app, version=version)


@pytest.mark.parametrize("before", TxnState)
@pytest.mark.parametrize("after", TxnState)
def test_the_transitions_are_transaction_utils(before: TxnState, after: TxnState) -> None:
    path = {
        TxnState.OPEN: [],
        TxnState.COMMITTING: [TxnState.COMMITTING],
        TxnState.COMMITTED: [TxnState.COMMITTING, TxnState.COMMITTED],
        TxnState.ABORTING: [TxnState.ABORTING],
        TxnState.ABORTED: [TxnState.ABORTING, TxnState.ABORTED],
    }[before]
    state = TxnLogState()
    fold_txn(state, 1, new())
    for number, step in enumerate(path, 2):
        assert fold_txn(state, number, status(1, step)) is Effect.DONE
    allowed = after in TRANSITIONS[before]
    effect = fold_txn(state, 9, status(1, after))
    assert effect is ((Effect.SAME if after is before else Effect.DONE) if allowed else Effect.VOID)
    assert state.txns[1].state is (after if allowed else before)
    assert (1 in state.live) is (state.txns[1].state not in (TxnState.COMMITTED, TxnState.ABORTED))


def test_an_application_version_commits_once() -> None:
    state = TxnLogState()
    for number, entry in enumerate([new("a", 1), new("a", 1), new("a", 2), new("a", 1)], 1):
        fold_txn(state, number, entry)
    assert fold_txn(state, 5, status(2, TxnState.COMMITTING)) is Effect.DONE
    assert fold_txn(state, 6, status(1, TxnState.COMMITTING)) is Effect.VOID
    assert fold_txn(state, 7, status(3, TxnState.COMMITTING)) is Effect.DONE
    assert fold_txn(state, 8, status(4, TxnState.COMMITTING)) is Effect.VOID
    assert state.apps["a"].version == 2
    assert restored(compacted(state, 0, 0)) == state


def test_a_compaction_keeps_unfinished_transactions_and_committed_versions() -> None:
    state = TxnLogState()
    for number, entry in enumerate([new("a", 1), new()], 1):
        fold_txn(state, number, entry)
    fold_txn(state, 3, status(1, TxnState.COMMITTING))
    fold_txn(state, 4, status(1, TxnState.COMMITTED))
    kept = restored(compacted(state, 10, 5))
    assert set(kept.txns) == {2}
    assert kept.apps["a"].version == 1
    assert kept.low_water == 1
