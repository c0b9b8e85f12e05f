"""The state of the memory store as a plain value: what the simulator builds on."""

from __future__ import annotations

import threading

import pytest

from metadata.errors import BadVersion, SessionLost
from metadata.paths import LOG, Key, KeyRange
from metadata.store.contract import ABSENT, Append, Delete, IndexEntry, Put, Write, decide
from metadata.store.memory import SHARDS, MemoryState, MemoryStore

A = Key("/a", "p")


def test_a_copy_lives_its_own_life() -> None:
    state = MemoryState()
    state.apply([Put(A, b"1"), Append(LOG, b"x")], 0)
    other = state.copy()
    assert other.fingerprint() == state.fingerprint()
    assert hash(other.fingerprint()) == hash(state.fingerprint())
    other.apply([Put(A, b"2")], 0)
    assert other.fingerprint() != state.fingerprint()
    assert state.get(A).value == b"1"  # type: ignore[union-attr]


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


def test_records_lie_in_many_shards_and_a_wrong_partition_finds_nothing() -> None:
    store = MemoryStore()
    for n in range(40):
        store.put(Key(f"/k/{n:02d}", f"p{n}"), b"x", indexes=(IndexEntry("i", f"{n:02d}"),))
    assert all(store.shared.state.shards)
    assert len(store.shared.state.shards) == SHARDS
    view = store.view()
    assert [view.get(Key("/k/00", f"p{n}")) is None for n in range(40)] == [False] + [True] * 39
    assert len(view.scan(KeyRange("/k/", "/k/~", ""))) == 40
    assert len(view.scan(KeyRange("/k/", "/k/~", "p7"))) == 1
    assert [r.key.path for r in view.scan_index("i", "10", "12")] == ["/k/10", "/k/11", "/k/12"]


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
