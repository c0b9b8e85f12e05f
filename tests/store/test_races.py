"""Many threads and sessions at once, on every backend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from metadata.errors import BadVersion
from metadata.paths import LOG, Key
from metadata.store.contract import ABSENT, Append, IndexEntry, MetadataStore, Put

A, B = Key("/race/a", "a"), Key("/race/b", "b")
ACTORS = 6


def at_once(backend: Any, act: Callable[[MetadataStore, int], Any]) -> list[Any]:
    """Run `act(store, n)` in several threads, half of them on one session, the others on sessions of their own."""
    shared = backend.open()
    stores = [shared if n % 2 else backend.open() for n in range(ACTORS)]
    gate = threading.Barrier(ACTORS)

    def run(n: int) -> Any:
        gate.wait()
        return act(stores[n], n)

    with ThreadPoolExecutor(ACTORS) as pool:
        return list(pool.map(run, range(ACTORS)))


def won(write: Callable[[], Any]) -> bool:
    try:
        write()
    except BadVersion:
        return False
    return True


def test_exactly_one_creates(backend: Any) -> None:
    keys = [Key(f"/race/{n}", str(n)) for n in range(10)]
    winners = at_once(backend, lambda store, n: [won(partial(store.put, key, b"%d" % n, expect=ABSENT)) for key in keys])
    assert [sum(each) for each in zip(*winners, strict=True)] == [1] * len(keys)


def test_no_increment_is_lost(backend: Any) -> None:
    backend.open().put(A, b"0")

    def add(store: MetadataStore, _: int) -> None:
        for _ in range(10):
            while True:
                old = store.view().get(A)
                assert old is not None
                more = Put(A, b"%d" % (int(old.value) + 1), old, (IndexEntry("i", str(old.version)),))
                if won(partial(store.write, more)):
                    break

    at_once(backend, add)
    store = backend.open()
    (found,) = store.view().scan_index("i", "", "9")
    assert found.value == b"%d" % (ACTORS * 10)
    assert found.version == ACTORS * 10


def test_unconditional_puts_all_win(backend: Any) -> None:
    at_once(backend, lambda store, n: [store.put(A, b"x", indexes=(IndexEntry("i", f"{n}"),)) for _ in range(10)])
    (found,) = backend.open().view().scan_index("i", "", "9")
    assert found.version == ACTORS * 10 - 1


def test_a_group_is_seen_whole(backend: Any) -> None:
    """Both records of a group always have one value: whoever reads a then b may see b newer, never older."""
    store = backend.open()
    a, b = store.write(Put(A, b"0"), Put(B, b"0"))
    stop = threading.Event()

    def look() -> int:
        reader, looks = backend.open(), 0
        while not stop.is_set():
            first, second = reader.view().get_many([A, B])
            assert int(first.value) <= int(second.value)
            looks += 1
        return looks

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(look) for _ in range(2)]
        try:
            for n in range(1, 60):
                a, b = store.write(Put(A, b"%d" % n, a), Put(B, b"%d" % n, b))
        finally:
            stop.set()
        assert all(reader.result() for reader in readers)


def test_whoever_sees_a_number_sees_all_below(backend: Any) -> None:
    """Appends of many sessions, now and then one that opens a new era on ZooKeeper; a reader lists all the time."""
    stop = threading.Event()
    listed: list[list[str]] = []

    def look() -> None:
        reader = backend.open()
        while not stop.is_set():
            listed.append(reader.view().keys(LOG.range()))

    def append(store: MetadataStore, n: int) -> list[Any]:
        plain = Append(LOG, b"x")
        indexed = Append(LOG, b"x", (IndexEntry("i", str(n)),))
        return [store.write(indexed if n == 0 and i % 7 == 6 else plain)[0] for i in range(25)]

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(look)
        try:
            made = [record for records in at_once(backend, append) for record in records]
        finally:
            stop.set()
        reader.result()
    final = backend.open().view().keys(LOG.range())
    assert final == sorted(record.key.path for record in made)
    assert len(set(final)) == ACTORS * 25
    for seen in listed:
        assert seen == final[: len(seen)]


def test_each_writer_sees_its_numbers_rise(backend: Any) -> None:
    for records in at_once(backend, lambda store, n: [store.append(LOG, b"%d" % n) for _ in range(20)]):
        numbers = [record.number for record in records]
        assert numbers == sorted(set(numbers))
