"""Tests of the state of the memory store. The state is a plain value, which the simulator copies and compares."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from metadata.common.errors import BadVersion, SessionLost
from metadata.records.paths import LOG, Key, KeyRange, Prefix
from metadata.store.contract import ABSENT, Append, Delete, IndexEntry, Put, Write, decide
from metadata.store.memory import MemoryState, MemoryStore

A = Key("/a", "p")


def test_a_copy_is_independent_of_its_original() -> None:
    state = MemoryState()
    state.apply([Put(A, b"1"), Append(LOG, b"x")], 0)
    other = state.copy()
    assert other.fingerprint() == state.fingerprint()
    assert hash(other.fingerprint()) == hash(state.fingerprint())
    other.apply([Put(A, b"2")], 0)
    assert other.fingerprint() != state.fingerprint()
    assert state.get(A).value == b"1"


@pytest.mark.parametrize(
    "change",
    [lambda state: state.skip(LOG, 50), lambda state: state.begin_session(), lambda state: state.apply([Append(LOG, b"x")], 0)],
)
def test_a_snapshot_after_a_change_shows_it(change: Callable[[MemoryState], object]) -> None:
    """The power suite continues from the snapshot, and a store that forgot a skip would allocate a number twice."""
    state = MemoryState()
    state.apply([Append(LOG, b"x")], 0)
    before = state.snapshot()
    assert state.snapshot() is before
    change(state)
    after = state.snapshot()
    assert (after.numbers, after.sessions, after.fingerprint()) == (state.numbers, state.sessions, state.fingerprint())
    assert (after.numbers, after.sessions) != (before.numbers, before.sessions)


def test_a_group_that_fails_leaves_the_state_as_it_was() -> None:
    state = MemoryState()
    state.apply([Put(A, b"1", indexes=(IndexEntry("i", "k"),))], 0)
    before = state.copy().fingerprint()
    group: list[Write] = [
        Put(A, b"2", 0),
        Delete(A, 1),
        Put(A, b"3", ABSENT),
        Append(LOG, b"x"),
        Append(LOG, b"y"),
        Delete(Key("/no", ""), 0),
    ]
    with pytest.raises(BadVersion, match="/no"):
        state.apply(group, 0)
    assert state.fingerprint() == before


def test_a_wrong_partition_finds_nothing() -> None:
    store = MemoryStore()
    for n in range(40):
        store.put(Key(f"/k/{n:02d}", f"p{n}"), b"x", indexes=(IndexEntry("i", f"{n:02d}"),))
    view = store.view()
    assert [view.get(Key("/k/00", f"p{n}")) is None for n in range(40)] == [False] + [True] * 39
    assert len(view.scan(KeyRange("/k/", "/k/~", ""))) == 40
    assert len(view.scan(KeyRange("/k/", "/k/~", "p7"))) == 1
    assert [r.key.path for r in view.scan_index("i", "10", "12")] == ["/k/10", "/k/11", "/k/12"]


def test_ranges_are_exact_after_undone_writes() -> None:
    """Groups of writes succeed or are undone. After each group, a scan of a range of keys or of an index returns the same records
    as a search in all records.
    """
    state, rng = MemoryState(), random.Random(7)
    for _ in range(600):
        try:
            state.apply([_some_write(rng) for _ in range(rng.choice((1, 1, 3)))], rng.randrange(3))
        except BadVersion:
            pass
        else:
            if rng.random() < 0.05:
                state.end_session(rng.randrange(3))
        within = KeyRange(f"/k/{rng.randrange(8)}", f"/k/{rng.randrange(8)}", rng.choice(("", "p0", "p1")))
        records = sorted(state.records.values(), key=lambda r: r.key)
        assert state.scan(within) == [
            r for r in records if within.first <= r.key.path <= within.last and within.partition in ("", r.key.partition)
        ]
        low, high = f"{rng.randrange(6)}", f"{rng.randrange(6)}"
        entries = sorted((e.key, r.key) for r in records for e in set(r.indexes) if e.name == "i" and low <= e.key <= high)
        assert [r.key for r in state.scan_index("i", low, high)] == [key for _, key in entries]


def _some_write(rng: random.Random) -> Write:
    key = Key(f"/k/{rng.randrange(10)}", f"p{rng.randrange(2)}")
    expect = rng.choice((None, None, ABSENT, 0, 1))
    indexes = tuple(IndexEntry(rng.choice("ij"), f"{rng.randrange(6)}") for _ in range(rng.randrange(3)))
    if rng.random() < 0.3:
        return Delete(key, expect)
    if rng.random() < 0.2:
        return Append(Prefix("/k/s", "p0"), b"x", indexes)
    return Put(key, b"x", expect, indexes, ephemeral=rng.random() < 0.3)


def test_a_lost_session() -> None:
    store = MemoryStore()
    woken = threading.Event()
    store.put(A, b"x", ephemeral=True)
    store.watch(A, woken.set)
    view = store.view()
    store.lose_session()
    assert woken.is_set()
    with pytest.raises(SessionLost):
        view.get(A)
    assert decide(store, lambda v: v.get(A)) is None
