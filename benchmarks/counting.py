"""A metadata store that counts the round trips of whoever uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metadata.paths import Key, KeyRange, Prefix
from metadata.store.contract import MetadataStore, Record, View, Watch, Write


class CountingStore(MetadataStore):
    """Delegates to another store; `trips` is the number of sequential round trips since `reset` (a sync rides with a read)."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner
        self.trips = 0

    def reset(self) -> None:
        self.trips = 0

    def view(self) -> View:
        return _CountingView(self, self.inner.view())

    def write(self, *writes: Write) -> list[Record | None]:
        self.trips += 1
        return self.inner.write(*writes)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self.inner.watch(target, wake)

    def close(self) -> None:
        self.inner.close()


class _CountingView(View):
    def __init__(self, store: CountingStore, inner: View) -> None:
        self._store, self._inner = store, inner

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        self._store.trips += 1
        return self._inner.get_many(keys)

    def keys(self, within: KeyRange) -> list[str]:
        self._store.trips += 1
        return self._inner.keys(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        self._store.trips += 1
        return self._inner.scan_index(index, first, last)

    def now_ms(self) -> int:
        return self._inner.now_ms()
