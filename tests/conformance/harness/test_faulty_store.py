"""Tests of FaultyStore. Unless the policy interferes, each call works as in the plain store. The policy sees each call, and can let
the call fail, answer it, or do other work first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.harness.faulty_store import Call, FaultyStore
from conformance.store.run import run
from metadata.common.errors import UnknownOutcome
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store import open_store
from metadata.store.contract import ABSENT, Append, Put
from metadata.store.memory import MemoryStore

K = Key("/a/k", "")


def passing(call: Call, go: Callable[[], Any]) -> Any:
    return go()


def test_a_policy_that_passes_everything_breaks_no_rule_of_the_store() -> None:
    found = run("memory://passing", 1, only="*", opener=lambda url: FaultyStore(open_store(url), passing))
    assert len(found) > 10
    assert all(result.ok for result in found)


def test_a_policy_sees_each_call_in_order() -> None:
    seen: list[Call] = []

    def listening(call: Call, go: Callable[[], Any]) -> Any:
        seen.append(call)
        return go()

    store = FaultyStore(MemoryStore(), listening)
    view = store.view()
    store.write(Put(K, b"1"), Append(Prefix("/log", ""), b"2"))
    view.get(K)
    view.keys(KeyRange("/a/", "/a/~", ""))
    view.scan(KeyRange("/a/", "/a/~", ""))
    view.scan_index("i", "a", "b")
    view.now_ms()
    store.watch(K, lambda: None).close()
    store.skip(Prefix("/log", ""), 7)
    said = ["view", "write Put Append /log", "get /a/k", "keys /a/", "scan /a/", "index i", "time", "watch", "write skip /log"]
    assert [str(call) for call in seen] == said
    assert [len(call.writes) for call in seen] == [0, 2, 0, 0, 0, 0, 0, 0, 0]


def test_a_lost_reply_is_a_write_that_happened() -> None:
    def lose(call: Call, go: Callable[[], Any]) -> Any:
        answer = go()
        if call.kind == "write":
            raise UnknownOutcome("Lost.")
        return answer

    store = FaultyStore(MemoryStore(), lose)
    with pytest.raises(UnknownOutcome):
        store.put(K, b"1", expect=ABSENT)
    found = store.view().get(K)
    assert found is not None
    assert found.value == b"1"


def test_other_work_runs_before_the_call_it_interrupts() -> None:
    inner = MemoryStore()

    def interrupted(call: Call, go: Callable[[], Any]) -> Any:
        if call.kind == "get":
            inner.put(K, b"theirs")
        return go()

    found = FaultyStore(inner, interrupted).view().get(K)
    assert found is not None
    assert found.value == b"theirs"
