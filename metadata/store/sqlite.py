"""The embedded store: a SQLite database in WAL mode. Any number of threads and processes of one machine may use it.

Every write group is one SQLite transaction. The transaction begins with BEGIN IMMEDIATE, which takes the write lock. So a group
that finds the database busy has written nothing. The transaction is durable when the call returns (synchronous FULL), unless all
writes of the group have `durable=False`. A separate table keeps the last number of each sequence, so that no number is allocated
again after a delete.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence

from ledgers.json_text import read_json
from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import CorruptRecord, SessionLost, StoreError, Unavailable
from metadata.records.paths import Key, KeyRange, Prefix
from metadata.store.contract import (
    BUSY_SECONDS,
    Append,
    Delete,
    IndexEntry,
    MetadataStore,
    Record,
    View,
    Watch,
    Write,
    expected_version,
)
from metadata.store.limits import check_writes
from metadata.store.memory import lost_race
from metadata.store.reserve import trouble_at
from metadata.store.sqlite_database import Database

log = logging.getLogger(__name__)

LEASE_MS = 10_000
POLL_SECONDS = 0.02

_ROW = "r.path, r.partition, r.value, r.version, r.indexes"
_LIVE = "(r.session IS NULL OR EXISTS (SELECT 1 FROM sessions s WHERE s.id = r.session AND s.expires_ms > ?))"
_GET = f"SELECT {_ROW} FROM records r WHERE r.path = ? AND r.partition = ? AND {_LIVE}"
_IN_RANGE = f"r.path BETWEEN ? AND ? AND (? = '' OR r.partition = ?) AND {_LIVE} ORDER BY r.path, r.partition"
_SCAN = f"SELECT {_ROW} FROM records r WHERE {_IN_RANGE}"
_KEYS = f"SELECT r.path FROM records r WHERE {_IN_RANGE}"
_SCAN_INDEX = (
    f"SELECT {_ROW} FROM entries e JOIN records r ON r.path = e.path AND r.partition = e.partition"
    f" WHERE e.name = ? AND e.key BETWEEN ? AND ? AND {_LIVE} ORDER BY e.key, e.path, e.partition"
)


class SqliteStore(MetadataStore):
    """A store in the file `metadata.db` of a folder on a local disk."""

    def __init__(
        self,
        folder: str,
        *,
        clock: Clock | None = None,
        create: bool = True,
        busy_seconds: float = BUSY_SECONDS,
        lease_ms: int = LEASE_MS,
    ) -> None:
        """Open the store. `busy_seconds`: how long a write waits for the lock. `lease_ms`: how long ephemeral records outlive a
        killed process, measured by `clock`. Raises ConfigurationError, ClusterFormatError.
        """
        self.clock = clock or SystemClock()
        self.lease_ms = lease_ms
        self.database = Database(folder, clock=self.clock, create=create, busy_seconds=busy_seconds)
        self.lapses = 0
        self._closed = False
        self._begin_process()

    def _begin_process(self) -> None:
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._session: int | None = None
        self._poller: _Poller | None = None
        self._renewer: threading.Thread | None = None
        self._ended = threading.Event()

    def view(self) -> View:
        self._check_open()
        return SqliteView(self)

    def write(self, *writes: Write) -> list[Record | None]:
        check_writes(writes)
        self._check_open()
        session = self._session_now() if any(getattr(w, "ephemeral", False) for w in writes) else None
        with self.database.writing(durable=any(w.durable for w in writes)) as connection:
            self._purge(connection)
            if session is not None and not connection.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone():
                self._lapsed(session)
                raise Unavailable("The session of this store has lapsed; nothing was written.", advice="Try again.")
            return [_apply(connection, write, session) for write in writes]

    def skip(self, prefix: Prefix, to: int) -> None:
        self._check_open()
        with self.database.writing() as connection:
            connection.execute(
                "INSERT INTO sequences (path, partition, last) VALUES (?, ?, ?)"
                " ON CONFLICT (path, partition) DO UPDATE SET last = max(last, excluded.last)",
                (*prefix, to - 1),
            )

    def watch(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        self._check_open()
        with self._guard:
            if self._poller is None:
                self._poller = _Poller(self.database)
            return self._poller.add(target, wake)

    def make_room(self) -> bool:
        return trouble_at(self.database.path) is not None and self.database.reserve.give_up()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if os.getpid() == self._pid:
            self._ended.set()
            if self._poller:
                self._poller.stop()
            if self._renewer:
                self._renewer.join()
            if self._session is not None:
                with self.database.writing() as connection:
                    _end_sessions(connection, [self._session])
        self.database.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"The store in {self.database.path} was closed.", advice="Open it again.")
        if os.getpid() != self._pid:
            self._begin_process()  # threads do not survive a fork, and the session belongs to the parent

    # --- sessions: ephemeral records live as long as the lease of their session, which a thread renews ---

    def _session_now(self) -> int:
        with self._guard:
            if self._session is None:
                with self.database.writing() as connection:
                    made = connection.execute("INSERT INTO sessions (expires_ms) VALUES (?)", (self._expiry(),)).lastrowid
                assert made is not None
                self._session = made
            if self._renewer is None:
                self._renewer = threading.Thread(target=self._renew, name="txnsegment-lease", daemon=True)
                self._renewer.start()
            return self._session

    def _expiry(self) -> int:
        return self.clock.now_ms() + self.lease_ms

    def _renew(self) -> None:
        while not self._ended.wait(self.lease_ms / 3000):
            session = self._session
            if session is None:
                continue
            try:
                with self.database.writing() as connection:
                    renewed = connection.execute(
                        "UPDATE sessions SET expires_ms = ? WHERE id = ? AND expires_ms > ?",
                        (self._expiry(), session, self.clock.now_ms()),
                    ).rowcount
            except StoreError as error:
                # The lease may still be valid at the next renewal. If it has lapsed by then, that renewal notices it.
                log.warning("the lease of session %d was not renewed: %s", session, error)
                continue
            if not renewed:
                self._lapsed(session)

    def _lapsed(self, session: int) -> None:
        with self._guard:
            if self._session == session:
                self._session = None
                self.lapses += 1

    def _purge(self, connection: sqlite3.Connection) -> None:
        expired = connection.execute("SELECT id FROM sessions WHERE expires_ms <= ?", (self.clock.now_ms(),)).fetchall()
        if expired:
            _end_sessions(connection, [session for (session,) in expired])


class SqliteView(View):
    """A view of a SqliteStore. Each call reads the state that the database has when the call begins. So each call sees everything
    that was written before the view was made.
    """

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._lapses = store.lapses

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        now = self._check()
        with self._store.database.reading() as connection:
            rows = [connection.execute(_GET, (*key, now)).fetchone() for key in keys]
        return [_record(*row) if row else None for row in rows]

    def keys(self, within: KeyRange) -> list[str]:
        now = self._check()
        with self._store.database.reading() as connection:
            return [path for (path,) in connection.execute(_KEYS, (*within, within.partition, now))]

    def scan(self, within: KeyRange) -> list[Record]:
        now = self._check()
        with self._store.database.reading() as connection:
            return [_record(*row) for row in connection.execute(_SCAN, (*within, within.partition, now))]

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        now = self._check()
        with self._store.database.reading() as connection:
            return [_record(*row) for row in connection.execute(_SCAN_INDEX, (index, first, last, now))]

    def now_ms(self) -> int:
        return self._check()

    def _check(self) -> int:
        self._store._check_open()
        if self._store.lapses != self._lapses:
            raise SessionLost("The session of this view has lapsed.", advice="Start over with a new view.")
        return self._store.clock.now_ms()


class _Watch(Watch):
    def __init__(self, poller: _Poller, target: Key | Prefix, wake: Callable[[], None]) -> None:
        self._poller, self.target, self.wake = poller, target, wake
        self.seen: tuple[object, ...] | None = None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        self._poller.remove(self)


class _Poller:
    """One thread that polls `PRAGMA data_version` while there are watches. Every commit of another connection changes this version.

    A watch on a key is woken when the key's record has changed. A watch on a prefix is woken by any commit, because a check would
    cost more than a wake-up.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = threading.Condition()
        self._watches: list[_Watch] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="txnsegment-watch", daemon=True)
        self._thread.start()

    def add(self, target: Key | Prefix, wake: Callable[[], None]) -> Watch:
        watch = _Watch(self, target, wake)
        if isinstance(target, Key):
            with self._database.reading() as connection:
                watch.seen = _row_state(connection, target)
        with self._changed:
            self._watches.append(watch)
            self._changed.notify_all()
        return watch

    def remove(self, watch: _Watch) -> None:
        with self._changed:
            if watch in self._watches:
                self._watches.remove(watch)

    def _open(self) -> list[_Watch]:
        with self._changed:
            return list(self._watches)

    def stop(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        version: int | None = None
        while not self._stopped.is_set():
            with self._changed:
                if not self._watches and not self._stopped.is_set():
                    self._changed.wait()
            try:
                with self._database.reading() as connection:
                    (now,) = connection.execute("PRAGMA data_version").fetchone()
                    # The watches are listed after the version was read, so the list has every watch that existed at the read.
                    changed = [watch for watch in self._open() if _has_changed(connection, watch)] if now != version else []
                    version = now
            except StoreError:
                changed, version = self._open(), None  # each woken caller then reads, and its read raises the error
            for watch in changed:
                if not watch.closed:
                    watch.wake()
            self._stopped.wait(POLL_SECONDS)


def _has_changed(connection: sqlite3.Connection, watch: _Watch) -> bool:
    if isinstance(watch.target, Prefix):
        return True
    before, watch.seen = watch.seen, _row_state(connection, watch.target)
    return watch.seen != before


def _row_state(connection: sqlite3.Connection, key: Key) -> tuple[object, ...] | None:
    """Return version, value and index entries of a record. The version alone would hide some changes: a record that is deleted and
    created again starts again at version 0.
    """
    row: tuple[object, ...] | None = connection.execute(
        "SELECT version, value, indexes FROM records WHERE path = ? AND partition = ?", key
    ).fetchone()
    return row


def _apply(connection: sqlite3.Connection, write: Write, session: int | None) -> Record | None:
    """Apply one write inside the transaction of its group. Raises BadVersion, after which the caller rolls back the group."""
    if isinstance(write, Append):
        key = write.prefix.key(_next_number(connection, write.prefix))
        return _insert(connection, Record(key, write.value, 0, tuple(write.indexes)), None)
    row = connection.execute("SELECT version, indexes FROM records WHERE path = ? AND partition = ?", write.key).fetchone()
    found = None if row is None else int(row[0])
    expected = expected_version(write.expect)
    if expected is not None and expected != (-1 if found is None else found):
        raise lost_race(write.key.path, expected, found)
    if found is not None:
        _drop_entries(connection, write.key, _indexes(write.key.path, row[1]))
    if isinstance(write, Delete):
        if found is not None:
            connection.execute("DELETE FROM records WHERE path = ? AND partition = ?", write.key)
        return None
    owner = session if write.ephemeral else None
    record = Record(write.key, write.value, 0 if found is None else found + 1, tuple(write.indexes))
    if found is None:
        return _insert(connection, record, owner)
    connection.execute(
        "UPDATE records SET value = ?, version = ?, indexes = ?, session = ? WHERE path = ? AND partition = ?",
        (record.value, record.version, _text(record.indexes), owner, *record.key),
    )
    _add_entries(connection, record)
    return record


def _insert(connection: sqlite3.Connection, record: Record, session: int | None) -> Record:
    connection.execute(
        "INSERT INTO records (path, partition, value, version, indexes, session) VALUES (?, ?, ?, ?, ?, ?)",
        (*record.key, record.value, record.version, _text(record.indexes), session),
    )
    _add_entries(connection, record)
    return record


def _next_number(connection: sqlite3.Connection, prefix: Prefix) -> int:
    while True:
        (number,) = connection.execute(
            "INSERT INTO sequences (path, partition, last) VALUES (?, ?, 1)"
            " ON CONFLICT (path, partition) DO UPDATE SET last = last + 1 RETURNING last",
            prefix,
        ).fetchone()
        taken = connection.execute("SELECT 1 FROM records WHERE path = ? AND partition = ?", prefix.key(number)).fetchone()
        if not taken:  # a Put may have created a record with this number
            return int(number)


def _add_entries(connection: sqlite3.Connection, record: Record) -> None:
    if record.indexes:
        connection.executemany(
            "INSERT INTO entries (name, key, path, partition) VALUES (?, ?, ?, ?)",
            [(*entry, *record.key) for entry in dict.fromkeys(record.indexes)],
        )


def _drop_entries(connection: sqlite3.Connection, key: Key, indexes: tuple[IndexEntry, ...]) -> None:
    if indexes:
        connection.executemany(
            "DELETE FROM entries WHERE name = ? AND key = ? AND path = ? AND partition = ?", [(*entry, *key) for entry in indexes]
        )


def _end_sessions(connection: sqlite3.Connection, sessions: Sequence[int]) -> None:
    """Delete sessions with their ephemeral records."""
    for session in sessions:
        rows = connection.execute("SELECT path, partition, indexes FROM records WHERE session = ?", (session,)).fetchall()
        for path, partition, indexes in rows:
            _drop_entries(connection, Key(path, partition), _indexes(path, indexes))
        connection.execute("DELETE FROM records WHERE session = ?", (session,))
        connection.execute("DELETE FROM sessions WHERE id = ?", (session,))


def _record(path: str, partition: str, value: bytes, version: int, indexes: str | None) -> Record:
    return Record(Key(path, partition), value, version, _indexes(path, indexes))


def _text(indexes: tuple[IndexEntry, ...]) -> str | None:
    return json.dumps(indexes, ensure_ascii=False, separators=(",", ":")) if indexes else None


def _indexes(path: str, text: str | None) -> tuple[IndexEntry, ...]:
    if not text:
        return ()
    try:
        return tuple(IndexEntry(str(name), str(key)) for name, key in read_json(text))
    except (ValueError, TypeError) as error:
        raise CorruptRecord(f"{path}: its index entries are not readable: {text[:100]!r} ({error}).") from error
