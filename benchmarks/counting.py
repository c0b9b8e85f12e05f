"""A metadata store that counts the round trips of whoever uses it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import MetadataStore, Record, View, Watch, Write
from metadata.store.zookeeper import ZooKeeperStore


class Trips:
    """Sequential round trips by the thread that waits for them, so that what runs in the background is not counted with it."""

    def __init__(self) -> None:
        self._by_thread: Counter[int] = Counter()

    def add(self) -> None:
        self._by_thread[threading.get_ident()] += 1

    @property
    def mine(self) -> int:
        """Those of the calling thread."""
        return self._by_thread[threading.get_ident()]


def count_flights(store: ZooKeeperStore) -> Trips:
    """From now on count what this store sends and waits for: flights of reads, also those that a write needs first, and multis."""
    session, trips = store._session, Trips()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def one(*arguments: Any) -> Any:
            trips.add()
            return call(*arguments)

        return one

    for name in ("flight", "multi"):
        setattr(session, name, counted(getattr(session, name)))
    return trips


class CountingStore(MetadataStore):
    """Delegates to another store; `trips` is the number of sequential round trips since `reset` (a sync rides with a read)."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner
        self.trips = 0
        self._threads = Trips()

    @property
    def mine(self) -> int:
        """Those of the calling thread, since the beginning."""
        return self._threads.mine

    def count(self) -> None:
        self.trips += 1
        self._threads.add()

    def reset(self) -> None:
        self.trips = 0

    def view(self) -> View:
        return _CountingView(self, self.inner.view())

    def write(self, *writes: Write) -> list[Record | None]:
        self.count()
        return self.inner.write(*writes)

    def skip(self, prefix: Prefix, to: int) -> None:
        self.inner.skip(prefix, to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self.inner.watch(target, wake)

    def close(self) -> None:
        self.inner.close()


class _CountingView(View):
    def __init__(self, store: CountingStore, inner: View) -> None:
        self._store, self._inner = store, inner

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        self._store.count()
        return self._inner.get_many(keys)

    def keys(self, within: KeyRange) -> list[str]:
        self._store.count()
        return self._inner.keys(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        self._store.count()
        return self._inner.scan_index(index, first, last)

    def now_ms(self) -> int:
        return self._inner.now_ms()
