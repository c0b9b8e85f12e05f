"""A log of the marker-based model: entries in the order of their appends (docs/in_stream.md, Records).

Entries never change, so a process need not read an entry twice. The oldest entries leave the log first. Only void entries above a
SEAL leave it out of order (`metadata.instream.remains`).
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
"""Maximum number of cached entries of one log."""


class ManagedLog(Generic[E]):
    """One log with this process's cache. Safe for several threads."""

    def __init__(self, store: MetadataStore, prefix: Prefix, kind: type[E]) -> None:
        self._store, self.prefix, self._kind = store, prefix, kind
        self._known: OrderedDict[int, E] = OrderedDict()
        self._top = 0
        self._lock = threading.Lock()

    def numbers(self, view: View, after: int = 0) -> list[int]:
        """Return the numbers of the entries above `after`, ascending. If an entry is in the result, all earlier entries above
        `after` that are still in the log are in the result, too.
        """
        return [sequence_number(path) for path in view.keys(self.prefix.range(after + 1))]

    def entries(self, view: View, numbers: Sequence[int], then: Sequence[Key] = ()) -> tuple[dict[int, E], list[Record | None]]:
        """Return the entries of these numbers, by number. Entries that have left the log since it was listed are missing. Return
        also the records with the keys `then`, which the same request to the store reads after the entries.
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
        """Cache entries that were just read or written."""
        with self._lock:
            self._known.update(fresh)
            self._top = max(self._top, *fresh, 0)
            while len(self._known) > KEPT:
                self._known.popitem(last=False)

    @property
    def top(self) -> int:
        """The highest number of this log that this process has seen. Its next append to this log gets a higher number."""
        return self._top

    def append(self, entry: E) -> int:
        """Append the entry and return its number. After a lost reply this method looks for the entry by its id.

        Raises UnknownOutcome if the entry is not found; it may still appear. Raises ValueTooLarge or Unavailable if nothing was
        appended.
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
        """Append an entry of which a second copy does not count, and return its number. If the reply is lost and the entry is not
        found, append it again. So the log may have several copies. Raises Unavailable after `attempts` appends without a reply.
        """
        for _ in range(attempts):
            try:
                return self.append(entry)
            except UnknownOutcome:
                continue
        raise Unavailable(
            f"None of {attempts} appends to {self.prefix.path} got a reply.",
            advice="The entry counts at most once: try again.",
        )

    def find(self, view: View, entry_id: str, after: int = 0) -> int | None:
        """Return the number of the first entry above `after` that has this id; None if there is no such entry."""
        entries, _ = self.entries(view, self.numbers(view, after))
        return next((n for n, entry in entries.items() if entry.id == entry_id), None)

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete the entries `numbers` from the log, and drop all entries up to the highest of `numbers` from the cache. Raises
        StoreError. After an error some entries may be deleted, and the call may be repeated.
        """
        for some in in_groups(numbers):
            self._store.write(*(Delete(self.prefix.key(n), durable=False) for n in some))
        self.forget(max(numbers, default=0))

    def forget(self, to: int) -> None:
        """Drop the cached entries up to the number `to`."""
        with self._lock:
            for number in [n for n in self._known if n <= to]:
                del self._known[number]


def append_to_all(store: MetadataStore, appends: Iterable[tuple[ManagedLog[E], E]]) -> list[int]:
    """Append an entry to each log, many in one round trip, and return the numbers of the entries. A second copy of an entry must
    not count, because an append may be repeated.

    Raises Unavailable. After this error some entries may be appended, and the whole call may be repeated.
    """
    found = []
    for some in _groups((log, entry, entry.to_bytes()) for log, entry in appends):
        tops = [log.top for log, _, _ in some]
        try:
            records = store.write(*(Append(log.prefix, body) for log, _, body in some))
        except UnknownOutcome:  # some entries may be appended: look for each, and append the missing ones one by one
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
    """Split the appends into groups that are small enough for every backend (one ZooKeeper multi holds 1 MB)."""
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
