"""A log of the older model: entries in the order of their appends, which is the store's (docs/in_stream.md, Records).

Entries never change, so whoever has read one need not read it again. They only leave, from the head.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from metadata.common.errors import Unavailable, UnknownOutcome
from metadata.records.paths import Key, Prefix, sequence_number
from metadata.records.persistent_records import Identified
from metadata.store.contract import Append, Delete, MetadataStore, Record, View, decide, in_groups

E = TypeVar("E", bound=Identified)
GROUP, GROUP_BYTES = 256, 512 * 1024
KEPT = 50_000
"""Entries that a process keeps of one log."""


class ManagedLog(Generic[E]):
    """One log as this process knows it. Safe for several threads."""

    def __init__(self, store: MetadataStore, prefix: Prefix, kind: type[E]) -> None:
        self._store, self.prefix, self._kind = store, prefix, kind
        self._known: OrderedDict[int, E] = OrderedDict()
        self._top = 0
        self._lock = threading.Lock()

    def numbers(self, view: View, after: int = 0) -> list[int]:
        """The numbers of the entries above `after`, ascending: a consistent prefix of the append order."""
        return [sequence_number(path) for path in view.keys(self.prefix.range(after + 1))]

    def entries(self, view: View, numbers: Sequence[int], then: Sequence[Key] = ()) -> tuple[dict[int, E], list[Record | None]]:
        """The entries of these numbers, without those that have left the log since they were listed; and the records asked for
        besides, read after them in the same flight.
        """
        with self._lock:
            known = {n: self._known[n] for n in numbers if n in self._known}
        missing = [n for n in numbers if n not in known]
        records = view.get_many([self.prefix.key(n) for n in missing] + list(then)) if missing or then else []
        fresh = {n: self._kind.of(r) for n, r in zip(missing, records, strict=False) if r is not None}
        self.keep(fresh)
        found = known | fresh
        return {n: found[n] for n in numbers if n in found}, records[len(missing) :]

    def keep(self, fresh: Mapping[int, E]) -> None:
        """Remember entries that were just read or written."""
        with self._lock:
            self._known.update(fresh)
            self._top = max(self._top, *fresh, 0)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)

    @property
    def top(self) -> int:
        """The highest number that this process has seen: whatever it appends from now on gets one above."""
        return self._top

    def append(self, entry: E) -> int:
        """Append the entry; its number. A lost reply is resolved by looking for its id above what was known before.

        Raises UnknownOutcome if it is not there (it may still turn up), ValueTooLarge and Unavailable (known: not done).
        """
        after = self.top
        try:
            record = self._store.append(self.prefix, entry.to_bytes())
        except UnknownOutcome:
            number = decide(self._store, lambda view: self.find(view, entry.id, after))
            if number is None:
                raise
            return number
        self.keep({record.number: entry})
        return record.number

    def append_again(self, entry: E, *, attempts: int = 10) -> int:
        """The same for an entry that counts at most once however often it is appended: until one is known to be there."""
        for _ in range(attempts):
            try:
                return self.append(entry)
            except UnknownOutcome:
                continue
        raise Unavailable(
            f"None of {attempts} appends to {self.prefix.path} was answered.",
            advice="What was appended counts at most once: try again.",
        )

    def find(self, view: View, entry_id: str, after: int = 0) -> int | None:
        """The number of the first entry with this id above `after`."""
        entries, _ = self.entries(view, self.numbers(view, after))
        return next((n for n, entry in entries.items() if entry.id == entry_id), None)

    def delete(self, numbers: Sequence[int]) -> None:
        """Take entries out of the log, and forget all up to the last of them: what goes lies at the head. Raises what the store
        raises: perhaps some are gone; doing it again is safe.
        """
        for some in in_groups(numbers):
            self._store.write(*(Delete(self.prefix.key(n), durable=False) for n in some))
        self.forget(max(numbers, default=0))

    def forget(self, to: int) -> None:
        """Drop what is kept of entries up to `to`."""
        with self._lock:
            for number in [n for n in self._known if n <= to]:
                del self._known[number]


def append_to_all(store: MetadataStore, appends: Iterable[tuple[ManagedLog[E], E]]) -> list[int]:
    """Append an entry to each log, many of them in one round trip; their numbers. Of entries that count at most once.

    Raises Unavailable: perhaps some were appended; doing it all again is safe.
    """
    found = []
    for some in _groups((log, entry, entry.to_bytes()) for log, entry in appends):
        tops = [log.top for log, _, _ in some]
        try:
            records = store.write(*(Append(log.prefix, body) for log, _, body in some))
        except UnknownOutcome:  # some may be there, also from a store without groups: one by one
            found += [_append_missing(store, log, entry, top) for (log, entry, _), top in zip(some, tops, strict=True)]
            continue
        for (log, entry, _), record in zip(some, records, strict=True):
            assert record is not None
            log.keep({record.number: entry})
            found.append(record.number)
    return found


def _append_missing(store: MetadataStore, log: ManagedLog[E], entry: E, after: int) -> int:
    number = decide(store, lambda view: log.find(view, entry.id, after))
    return log.append_again(entry) if number is None else number


def _groups(appends: Iterable[tuple[ManagedLog[E], E, bytes]]) -> Iterator[list[tuple[ManagedLog[E], E, bytes]]]:
    """Groups that every backend takes (one ZooKeeper multi holds 1 MB)."""
    group: list[tuple[ManagedLog[E], E, bytes]] = []
    size = 0
    for one in appends:
        if group and (size + len(one[2]) > GROUP_BYTES or len(group) == GROUP):
            yield group
            group, size = [], 0
        group.append(one)
        size += len(one[2])
    if group:
        yield group
