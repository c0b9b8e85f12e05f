"""The in-memory store for tests. All stores of one `memory://name` in a process share one state.

A key is a path and a partition key. Two records may have the same path and different partition keys, as in a store that is
distributed over servers.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter

from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import BadVersion, SessionLost, Unavailable
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import (
    Append,
    Delete,
    MetadataStore,
    Put,
    Record,
    View,
    Watch,
    Write,
    expected_version,
)
from metadata.store.limits import check_writes


class MemoryState:
    """The state of an in-memory store as plain values. Each method is one atomic step without waits or locks.

    The simulator uses `copy` and `fingerprint` when it searches schedules. Two states with equal fingerprints behave alike. The
    time of a get does not depend on how many records there are. The time of a range scan depends on how many records are in the
    range.
    """

    def __init__(self) -> None:
        self.records: dict[Key, Record] = {}
        self.numbers: dict[Prefix, int] = {}
        self.sessions = 0
        self._order: list[Key] = []  # all keys, ascending
        self._indexes: dict[str, list[tuple[str, Key]]] = {}  # (index key, key) of each index, in ascending order
        self._ephemeral: dict[Key, int] = {}  # the owning session of each ephemeral record
        self._snapshot: MemoryState | None = None  # cached copy of the current state, dropped on each change

    def copy(self) -> MemoryState:
        other = MemoryState()
        other.records = self.records.copy()
        other.numbers = self.numbers.copy()
        other.sessions = self.sessions
        other._order = self._order.copy()
        other._indexes = {name: entries.copy() for name, entries in self._indexes.items()}
        other._ephemeral = self._ephemeral.copy()
        return other

    def snapshot(self) -> MemoryState:
        """Return a read-only copy of the current state. Calls between two changes return the same copy."""
        if self._snapshot is None:
            self._snapshot = self.copy()
        return self._snapshot

    def fingerprint(self) -> tuple[frozenset[Record], frozenset[tuple[Prefix, int]], frozenset[tuple[Key, int]]]:
        return frozenset(self.records.values()), frozenset(self.numbers.items()), frozenset(self._ephemeral.items())

    def begin_session(self) -> int:
        self._snapshot = None
        self.sessions += 1
        return self.sessions

    def end_session(self, session: int) -> list[Key]:
        """Delete the session's ephemeral records and return their keys."""
        gone = [key for key, owner in self._ephemeral.items() if owner == session]
        for key in gone:
            self._take(key)
        return gone

    def get(self, key: Key) -> Record | None:
        return self.records.get(key)

    def keys(self, within: KeyRange) -> list[Key]:
        """Return the keys in the range, ordered by path. A range without a partition key covers all partition keys."""
        first, last, partition = within
        start = bisect_left(self._order, (first, ""))
        found = self._order[start : bisect_right(self._order, last, start, key=_path)]
        return [key for key in found if key.partition == partition] if partition else found

    def scan(self, within: KeyRange) -> list[Record]:
        """Return the records in the range, in the order of their paths."""
        return [self.records[key] for key in self.keys(within)]

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        """Return the records in the index range, ordered by (index key, path)."""
        entries = self._indexes.get(index)
        if not entries:
            return []
        start = bisect_left(entries, (first,))
        return [self.records[key] for _, key in entries[start : bisect_right(entries, last, start, key=_index_key)]]

    def skip(self, prefix: Prefix, to: int) -> None:
        """Make all later numbers of the sequence at least `to`."""
        self._snapshot = None
        self.numbers[prefix] = max(self.numbers.get(prefix, 0), to - 1)

    def apply(self, writes: Sequence[Write], session: int) -> list[Record | None]:
        """Apply the writes in order. If one of them raises BadVersion, undo all of them and raise it."""
        undo: list[Callable[[], None]] = []
        try:
            return [self._apply(write, session, undo) for write in writes]
        except BadVersion:
            for step in reversed(undo):
                step()
            raise

    def _apply(self, write: Write, session: int, undo: list[Callable[[], None]]) -> Record | None:
        if isinstance(write, Append):
            return self._append(write, undo)
        old = self.records.get(write.key)
        expected = expected_version(write.expect)
        if expected is not None and expected != (old.version if old else -1):
            raise lost_race(write.key.path, expected, old.version if old else None)
        if old is not None:
            owner = self._ephemeral.get(write.key, 0)
            undo.append(lambda: self._place(old, owner))
        if isinstance(write, Delete):
            if old is not None:
                self._take(write.key)
            return None
        if old is None:
            undo.append(lambda: self._take(write.key))
        record = Record(write.key, write.value, old.version + 1 if old else 0, write.indexes)
        self._place(record, session if write.ephemeral else 0)
        return record

    def _append(self, write: Append, undo: list[Callable[[], None]]) -> Record:
        before = self.numbers.get(write.prefix)
        number = (before or 0) + 1
        while write.prefix.key(number) in self.records:
            number += 1
        self.numbers[write.prefix] = number
        record = Record(write.prefix.key(number), write.value, 0, write.indexes)
        self._place(record, 0)

        def back() -> None:
            self._take(record.key)
            if before is None:
                del self.numbers[write.prefix]
            else:
                self.numbers[write.prefix] = before

        undo.append(back)
        return record

    def _place(self, record: Record, session: int) -> None:
        """Insert or replace the record. With `session` 0 the record is not ephemeral."""
        self._snapshot = None
        key = record.key
        old = self.records.get(key)
        if old is None:
            insort(self._order, key)
        if old is None or old.indexes != record.indexes:
            if old is not None:
                self._unlist(old)
            if record.indexes:
                for name, entry in set(record.indexes):
                    insort(self._indexes.setdefault(name, []), (entry, key))
        self.records[key] = record
        if session:
            self._ephemeral[key] = session
        else:
            self._ephemeral.pop(key, None)

    def _take(self, key: Key) -> None:
        self._snapshot = None
        self._unlist(self.records.pop(key))
        del self._order[bisect_left(self._order, key)]
        self._ephemeral.pop(key, None)

    def _unlist(self, record: Record) -> None:
        if not record.indexes:
            return
        for name, entry in set(record.indexes):
            entries = self._indexes[name]
            del entries[bisect_left(entries, (entry, record.key))]


_path = attrgetter("path")
_index_key = itemgetter(0)


def lost_race(path: str, expected: int, found: int | None) -> BadVersion:
    """Build the BadVersion error of a write whose `expect` does not match. `expected` -1: the record should not exist. `found`
    None: the record does not exist.
    """
    wanted = "should not exist" if expected == -1 else f"should have version {expected}"
    return BadVersion(f"{path} {wanted} but {'does not exist' if found is None else f'has version {found}'}.")


class Shared:
    """The state of a memory store with its lock and its watches. All stores of one `memory://name` share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.state = MemoryState()
        self.watches: list[_MemoryWatch] = []

    def wake(self, changed: Sequence[Key]) -> None:
        """Wake the watches on the changed keys. The caller must not hold the lock, because a woken watch may read at once, and a
        read takes the lock.
        """
        with self.lock:
            woken = [watch for watch in self.watches if any(watch.concerns(key) for key in changed)]
        for watch in woken:
            watch.wake()


_named: dict[str, Shared] = {}
_naming = threading.Lock()


class MemoryStore(MetadataStore):
    """A store in memory, with a session of its own."""

    def __init__(self, name: str | None = None, *, clock: Clock | None = None) -> None:
        """Begin a session. All stores of the same `name` in the process share one state. With None the state is private."""
        with _naming:
            self.shared = Shared() if name is None else _named.setdefault(name, Shared())
        self.clock = clock or SystemClock()
        self.closed = False
        with self.shared.lock:
            self.session = self.shared.state.begin_session()

    def view(self) -> View:
        self._check_open()
        return MemoryView(self)

    def write(self, *writes: Write) -> list[Record | None]:
        check_writes(writes)
        self._check_open()
        with self.shared.lock:
            records = self.shared.state.apply(writes, self.session)
        self.shared.wake([_written(write, record) for write, record in zip(writes, records, strict=True)])
        return records

    def skip(self, prefix: Prefix, to: int) -> None:
        self._check_open()
        with self.shared.lock:
            self.shared.state.skip(prefix, to)

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        self._check_open()
        watch = _MemoryWatch(self.shared, target, wake)
        with self.shared.lock:
            self.shared.watches.append(watch)
        return watch

    def lose_session(self) -> None:
        """End the session as a server does after a timeout. Its ephemeral records are deleted, and its views raise SessionLost."""
        with self.shared.lock:
            gone = self.shared.state.end_session(self.session)
            self.session = self.shared.state.begin_session()
        self.shared.wake(gone)

    def close(self) -> None:
        if not self.closed:
            self.lose_session()
            self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise Unavailable("This memory store was closed.", advice="Open it again.")


class MemoryView(View):
    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._session = store.session

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        with self._store.shared.lock:
            state = self._checked_state()
            return [state.get(key) for key in keys]

    def keys(self, within: KeyRange) -> list[str]:
        with self._store.shared.lock:
            return [key.path for key in self._checked_state().keys(within)]

    def scan(self, within: KeyRange) -> list[Record]:
        with self._store.shared.lock:
            return self._checked_state().scan(within)

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        with self._store.shared.lock:
            return self._checked_state().scan_index(index, first, last)

    def now_ms(self) -> int:
        return self._store.clock.now_ms()

    def _checked_state(self) -> MemoryState:
        if self._store.session != self._session:
            raise SessionLost("The session of this view has ended.", advice="Start over with a new view.")
        return self._store.shared.state


class _MemoryWatch(Watch):
    def __init__(self, shared: Shared, target: Key | Prefix, wake: Callable[[], None]) -> None:
        self._shared, self._target, self.wake = shared, target, wake

    def concerns(self, key: Key) -> bool:
        if isinstance(self._target, Prefix):
            within = self._target.range()
            return within.first <= key.path <= within.last and key.partition == within.partition
        return key == self._target

    def close(self) -> None:
        with self._shared.lock:
            if self in self._shared.watches:
                self._shared.watches.remove(self)


def _written(write: Write, record: Record | None) -> Key:
    if record:
        return record.key
    assert isinstance(write, Put | Delete)
    return write.key
