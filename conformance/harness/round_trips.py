"""Counts the round trips to a metadata store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from conformance.harness.faulty_store import Call
from metadata.store.zookeeper import ZooKeeperStore

TRIPS = {"get": 1, "keys": 1, "index": 1, "write": 1, "scan": 2}
"""The number of sequential round trips of each kind of call. A scan lists the records and then gets the listed records."""


class Trips:
    """Counts sequential round trips by thread, so that background work is counted apart."""

    def __init__(self) -> None:
        self._by_thread: Counter[int] = Counter()

    def add(self) -> None:
        self._by_thread[threading.get_ident()] += 1

    @property
    def mine(self) -> int:
        """The number of round trips of the calling thread."""
        return self._by_thread[threading.get_ident()]


def count_flights(store: ZooKeeperStore) -> Trips:
    """Start to count the round trips of this store, and return the counter. A round trip is a multi or a flight. A flight is a
    group of reads that are sent together. The reads that precede a write are counted, too.
    """
    session, trips = store._session, Trips()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def one(*arguments: Any) -> Any:
            trips.add()
            return call(*arguments)

        return one

    for name in ("flight", "multi"):
        setattr(session, name, counted(getattr(session, name)))
    return trips


class Counting:
    """The policy of a `FaultyStore` that counts its sequential round trips. `trips`: the number of round trips since `reset`. A
    sync is sent together with a read, so it is no round trip of its own.
    """

    def __init__(self) -> None:
        self.trips = 0
        self._threads = Trips()

    def __call__(self, call: Call, go: Callable[[], Any]) -> Any:
        for _ in range(TRIPS.get(call.kind, 0)):
            self.trips += 1
            self._threads.add()
        return go()

    @property
    def mine(self) -> int:
        """The number of round trips of the calling thread, since the beginning."""
        return self._threads.mine

    def reset(self) -> None:
        self.trips = 0
