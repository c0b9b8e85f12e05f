"""A store that is a part of another store: every path, partition key and index name gets a prefix.

On a backend whose URLs the suite cannot extend, such a store is the empty area of a case. The prefix changes neither the order nor
the ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import Append, Delete, IndexEntry, MetadataStore, Record, View, Watch, Write, in_groups


class PrefixedStore(MetadataStore):
    """The records of another store below `prefix` (`/a/b`, without a slash at the end). Its `close` closes the other store."""

    def __init__(self, store: MetadataStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def view(self) -> View:
        return _PrefixedView(self._store.view(), self._prefix)

    def write(self, *writes: Write) -> list[Record | None]:
        return [record and _inner(record, self._prefix) for record in self._store.write(*(self._outer(w) for w in writes))]

    def skip(self, prefix: Prefix, to: int) -> None:
        self._store.skip(_prefix(prefix, self._prefix), to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        where: Key | Prefix = Key(*_below(target, self._prefix)) if isinstance(target, Key) else _prefix(target, self._prefix)
        return self._store.watch(where, wake)

    def close(self) -> None:
        self._store.close()

    def _outer(self, write: Write) -> Write:
        if isinstance(write, Append):
            return write._replace(prefix=_prefix(write.prefix, self._prefix), indexes=self._entries(write.indexes))
        if not write.key.path.startswith("/"):
            return write  # the key is invalid, and the store refuses it
        key = Key(*_below(write.key, self._prefix))
        expect = self._outer_record(write.expect) if isinstance(write.expect, Record) else write.expect
        if isinstance(write, Delete):
            return write._replace(key=key, expect=expect)
        return write._replace(key=key, expect=expect, indexes=self._entries(write.indexes))

    def _outer_record(self, record: Record) -> Record:
        return record._replace(key=Key(*_below(record.key, self._prefix)), indexes=self._entries(record.indexes))

    def _entries(self, entries: tuple[IndexEntry, ...]) -> tuple[IndexEntry, ...]:
        return tuple(IndexEntry(self._prefix + entry.name, entry.key) for entry in entries)


class _PrefixedView(View):
    def __init__(self, view: View, prefix: str) -> None:
        self._view = view
        self._prefix = prefix

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        found = self._view.get_many([Key(*_below(key, self._prefix)) for key in keys])
        return [record and _inner(record, self._prefix) for record in found]

    def keys(self, within: KeyRange) -> list[str]:
        return [path.removeprefix(self._prefix) for path in self._view.keys(self._range(within))]

    def scan(self, within: KeyRange) -> list[Record]:
        return [_inner(record, self._prefix) for record in self._view.scan(self._range(within))]

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        return [_inner(record, self._prefix) for record in self._view.scan_index(self._prefix + index, first, last)]

    def now_ms(self) -> int:
        return self._view.now_ms()

    def _range(self, within: KeyRange) -> KeyRange:
        return KeyRange(
            self._prefix + within.first, self._prefix + within.last, within.partition and self._prefix + within.partition
        )


def delete_all(store: MetadataStore, prefix: str) -> None:
    """Delete all records below a prefix."""
    for group in in_groups(store.view().scan(KeyRange(f"{prefix}/", f"{prefix}/\U0010ffff", "")), 100):
        store.write(*(Delete(record.key) for record in group))


def _below(key: Key | Prefix, prefix: str) -> tuple[str, str]:
    return prefix + key.path, key.partition and prefix + key.partition


def _prefix(where: Prefix, prefix: str) -> Prefix:
    return Prefix(*_below(where, prefix))


def _inner(record: Record, prefix: str) -> Record:
    key = Key(record.key.path.removeprefix(prefix), record.key.partition.removeprefix(prefix))
    return record._replace(key=key, indexes=tuple(IndexEntry(e.name.removeprefix(prefix), e.key) for e in record.indexes))
