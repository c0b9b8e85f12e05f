"""Counts the round trips to a metadata store."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from conformance.harness.faulty_store import Call
from metadata.store.zookeeper import ZooKeeperStore

TRIPS = {"get": 1, "keys": 1, "index": 1, "write": 1, "scan": 2}
"""Kind of a call -> how many round trips it makes, one after the other. A scan lists the records, and then gets them."""


class Trips:
    """Counts round trips separately for each thread, so that a caller's count does not include those of background work."""

    def __init__(self) -> None:
        self._by_thread: Counter[int] = Counter()

    def add(self) -> None:
        self._by_thread[threading.get_ident()] += 1

    @property
    def mine(self) -> int:
        """The number of round trips of the calling thread."""
        return self._by_thread[threading.get_ident()]


def count_flights(store: ZooKeeperStore) -> Trips:
    """Start to count the round trips to this store. Return the counter. A round trip is a multi (an atomic group of writes) or a
    flight (a group of reads that are sent together). The reads that the store makes before a write are counted, too.
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
    """The policy of a `FaultyStore` that counts the round trips of its calls (`TRIPS`). `trips`: the round trips of all threads
    since `reset`. A sync is sent together with a read, so it counts no round trip.
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
        """The number of round trips of the calling thread since this object was made; `reset` does not change it."""
        return self._threads.mine

    def reset(self) -> None:
        self.trips = 0
