"""The store in memory, for tests: `memory://name` is one state for all who open that name in this process.

Records live in shards by their partition key (a record without one by its path), as in a store that is spread over many
servers: a key that is named with another partition key is simply not there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from metadata.clock import Clock, SystemClock
from metadata.errors import BadVersion, SessionLost, Unavailable
from metadata.paths import Key, KeyRange, Prefix
from metadata.store.contract import (
    Append,
    Delete,
    IndexEntry,
    MetadataStore,
    Put,
    Record,
    View,
    Watch,
    Write,
    expected_version,
)
from metadata.store.limits import check_writes

SHARDS = 4


class Stored(NamedTuple):
    """A record as the state keeps it. `session` 0: it stays when sessions end."""

    value: bytes
    version: int
    indexes: tuple[IndexEntry, ...]
    session: int


class MemoryState:
    """Everything that a store in memory knows, as plain values. Each method is one atomic step; none of them waits or locks.

    `copy` and `fingerprint` serve whoever explores schedules: two states with one fingerprint behave alike.
    """

    def __init__(self, shards: int = SHARDS) -> None:
        self.shards: list[dict[Key, Stored]] = [{} for _ in range(shards)]
        self.numbers: dict[Prefix, int] = {}
        self.sessions = 0

    def copy(self) -> MemoryState:
        other = MemoryState(0)
        other.shards = [dict(shard) for shard in self.shards]
        other.numbers = dict(self.numbers)
        other.sessions = self.sessions
        return other

    def fingerprint(self) -> tuple[frozenset[tuple[Key, Stored]], frozenset[tuple[Prefix, int]]]:
        return frozenset(self._all()), frozenset(self.numbers.items())

    def begin_session(self) -> int:
        self.sessions += 1
        return self.sessions

    def end_session(self, session: int) -> list[Key]:
        """Remove the session's ephemeral records; says which."""
        gone = [key for key, stored in self._all() if stored.session == session]
        for key in gone:
            del self._shard(key)[key]
        return gone

    def get(self, key: Key) -> Record | None:
        stored = self._shard(key).get(key)
        return _record(key, stored) if stored else None

    def scan(self, within: KeyRange) -> list[Record]:
        """By path, over the range's partition, or over all shards if it names none."""
        found: Iterable[tuple[Key, Stored]] = self._all()
        if within.partition:
            shard = self.shards[_place(within.partition, len(self.shards))]
            found = ((key, stored) for key, stored in shard.items() if key.partition == within.partition)
        return [_record(key, stored) for key, stored in sorted(found) if within.first <= key.path <= within.last]

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        """By (index key, path), over all shards."""
        found = [
            (entry.key, key, stored)
            for key, stored in self._all()
            for entry in set(stored.indexes)
            if entry.name == index and first <= entry.key <= last
        ]
        return [_record(key, stored) for _, key, stored in sorted(found)]

    def apply(self, writes: Sequence[Write], session: int) -> list[Record | None]:
        """All of them, in order, or (BadVersion) none."""
        undo: list[Callable[[], None]] = []
        try:
            return [self._apply(write, session, undo) for write in writes]
        except BadVersion:
            for step in reversed(undo):
                step()
            raise

    def _apply(self, write: Write, session: int, undo: list[Callable[[], None]]) -> Record | None:
        if isinstance(write, Append):
            before = self.numbers.get(write.prefix, 0)
            number = before + 1
            while write.prefix.key(number) in self._shard(write.prefix.key(number)):
                number += 1
            self.numbers[write.prefix] = number
            undo.append(
                lambda: self.numbers.__setitem__(write.prefix, before) if before else self.numbers.__delitem__(write.prefix)
            )
            return self._place(write.prefix.key(number), Stored(write.value, 0, tuple(write.indexes), 0), undo)
        old = self._shard(write.key).get(write.key)
        expected = expected_version(write.expect)
        if expected is not None and expected != (old.version if old else -1):
            raise lost_race(write.key.path, expected, old.version if old else None)
        if isinstance(write, Delete):
            if old:
                del self._shard(write.key)[write.key]
                undo.append(lambda: self._shard(write.key).__setitem__(write.key, old))
            return None
        version = old.version + 1 if old else 0
        return self._place(write.key, Stored(write.value, version, tuple(write.indexes), session if write.ephemeral else 0), undo)

    def _place(self, key: Key, stored: Stored, undo: list[Callable[[], None]]) -> Record:
        shard, old = self._shard(key), self._shard(key).get(key)
        shard[key] = stored

        def back() -> None:
            if old:
                shard[key] = old
            else:
                del shard[key]

        undo.append(back)
        return _record(key, stored)

    def _shard(self, key: Key) -> dict[Key, Stored]:
        return self.shards[_place(key.partition or key.path, len(self.shards))]

    def _all(self) -> Iterator[tuple[Key, Stored]]:
        return (item for shard in self.shards for item in shard.items())


def lost_race(path: str, expected: int, found: int | None) -> BadVersion:
    """The error of a write that expected another version; -1 means "must not exist", None means "is not there"."""
    wanted = "should not exist" if expected == -1 else f"should have version {expected}"
    return BadVersion(f"{path} {wanted} but {'does not exist' if found is None else f'has version {found}'}.")


def _place(text: str, shards: int) -> int:
    return crc32(text.encode()) % shards


def _record(key: Key, stored: Stored) -> Record:
    return Record(key, stored.value, stored.version, stored.indexes)


class Shared:
    """One state with its lock and its watches, for all stores that have opened it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.state = MemoryState()
        self.watches: list[_MemoryWatch] = []

    def wake(self, changed: Sequence[Key]) -> None:
        """Call it without the lock: whoever is woken may look at once."""
        with self.lock:
            woken = [watch for watch in self.watches if any(watch.concerns(key) for key in changed)]
        for watch in woken:
            watch.wake()


_named: dict[str, Shared] = {}
_naming = threading.Lock()


class MemoryStore(MetadataStore):
    """A session on a state in memory."""

    def __init__(self, name: str | None = None, *, clock: Clock | None = None) -> None:
        """`name`: shared by all who give it in this process; None: a state of its own."""
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

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        self._check_open()
        watch = _MemoryWatch(self.shared, target, wake)
        with self.shared.lock:
            self.shared.watches.append(watch)
        return watch

    def lose_session(self) -> None:
        """End the session as a store does that has not heard from us: ephemeral records go, views raise SessionLost."""
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
        return [record.key.path for record in self.scan(within)]

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
