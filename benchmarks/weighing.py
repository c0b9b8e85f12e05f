"""A metadata store that weighs what is written to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from metadata.records.paths import Key, Prefix
from metadata.store.contract import Delete, MetadataStore, Record, View, Watch, Write


class Weighed(NamedTuple):
    """Records written and deleted, and the bytes of the values written."""

    written: float = 0
    deleted: float = 0
    bytes: float = 0

    def since(self, before: Weighed) -> Weighed:
        return Weighed(*(now - then for now, then in zip(self, before, strict=True)))

    def each(self, count: int) -> Weighed:
        return Weighed(*(value / count for value in self))


class WeighingStore(MetadataStore):
    """Delegates to another store; `weighed`: everything written through it."""

    def __init__(self, inner: MetadataStore) -> None:
        self.inner = inner
        self.weighed = Weighed()

    def view(self) -> View:
        return self.inner.view()

    def write(self, *writes: Write) -> list[Record | None]:
        done = self.inner.write(*writes)
        values = [w.value for w in writes if not isinstance(w, Delete)]
        now = self.weighed
        self.weighed = Weighed(
            now.written + len(values), now.deleted + len(writes) - len(values), now.bytes + sum(map(len, values))
        )
        return done

    def skip(self, prefix: Prefix, to: int) -> None:
        self.inner.skip(prefix, to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        return self.inner.watch(target, wake)

    def close(self) -> None:
        self.inner.close()
