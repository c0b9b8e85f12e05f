"""The SQLite file of the embedded store: the checks of its folder, the creation of its schema, one connection for each thread."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgers.disk import disk
from ledgers.local_files import make_folders
from metadata.common.clock import Clock
from metadata.common.errors import ClusterFormatError, ConfigurationError, StoreError, Unavailable, UnknownOutcome
from metadata.store.reserve import Reserve, trouble_at

FILE = "metadata.db"
APPLICATION_ID = 0x54785367  # "TxSg"
FORMAT = 1
OF_THE_DISK = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
"""The result codes that SQLite gives for failures of the disk. They do not tell the cause."""
TURN_SECONDS = 0.001
"""How long a write waits between two tries to take the lock."""

SCHEMA = (
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY, partition TEXT NOT NULL, path TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL,
        indexes TEXT, session INTEGER, UNIQUE (path, partition))""",
    """CREATE TABLE entries (
        name TEXT NOT NULL, key TEXT NOT NULL, path TEXT NOT NULL, partition TEXT NOT NULL,
        PRIMARY KEY (name, key, path, partition)) WITHOUT ROWID""",
    """CREATE TABLE sequences (
        path TEXT NOT NULL, partition TEXT NOT NULL, last INTEGER NOT NULL,
        PRIMARY KEY (path, partition)) WITHOUT ROWID""",
    "CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, expires_ms INTEGER NOT NULL)",
    "CREATE INDEX records_by_session ON records (session) WHERE session IS NOT NULL",
)

NETWORK = {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "ncpfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"}
"""File systems whose locks and shared memory do not suffice for SQLite's WAL (sqlite.org/wal.html)."""
FUSE_LOCAL = {"fuseblk", "fuse.overlayfs", "fuse.fuse-overlayfs", "fuse.ext2fs", "fuse.fuse-ext2", "fuse.ntfs", "fuse.ntfs-3g"}

# In a forked child this list has the connections of the parent. The child neither uses nor closes them, because closing would drop
# the parent's locks.
_inherited: list[sqlite3.Connection] = []


class _Connection(sqlite3.Connection):
    """A connection that can be in a WeakSet. A plain `sqlite3.Connection` allows no weak references."""


class Database:
    """The database file and its connections. An SQLite error in a read or write becomes Unavailable (nothing was changed) or
    UnknownOutcome (the write may have happened).
    """

    def __init__(self, folder: str, *, clock: Clock, create: bool, busy_seconds: float) -> None:
        self.path = Path(folder) / FILE
        self.reserve = Reserve(Path(folder))
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._failed = False
        """True after the disk failed in a COMMIT, until a later COMMIT succeeds."""
        self._pid = os.getpid()
        self._forget_connections()
        self._check_place(create)
        self._open_first()

    # --- opening ---

    def _check_place(self, create: bool) -> None:
        folder = self.path.parent
        if not create and not self.path.is_file():
            raise ConfigurationError(f"There is no metadata store in {folder}.", advice=f"Run: txnsegment init file://{folder}")
        if not self.path.exists():
            # `make_folders` also syncs a folder that exists already. A later process that finds the file does not sync the folder,
            # so the folder must survive a power failure from now on.
            try:
                make_folders(disk(), folder.absolute(), mode=0o700)
            except OSError as error:
                raise ConfigurationError(
                    f"The folder {folder} does not exist and cannot be created: {error.strerror}.",
                    advice="Name a folder on a local disk that this user may write to.",
                ) from error
        kind = file_system(folder)
        if kind in NETWORK or (kind.startswith("fuse.") and kind not in FUSE_LOCAL):
            raise ConfigurationError(
                f"{folder} lies on a network file system ({kind}), where SQLite cannot lock safely.",
                advice="Keep file:// stores on a local disk; for several machines use ZooKeeper (zk://host:port/chroot).",
            )
        if not os.access(self.path if self.path.exists() else folder, os.W_OK) or not os.access(folder, os.W_OK):
            raise ConfigurationError(
                f"{self.path} cannot be written by this user.",
                advice="Change the owner or mode of the folder, or name another one.",
            )
        if not self.path.exists():
            self._make_file()
        if (names := self.path.stat().st_nlink) > 1:
            raise ConfigurationError(
                f"{self.path} has {names} names (hard links): it was copied as cp -l does. Opened under two names, "
                "SQLite would damage it for both.",
                advice="Decide which folder keeps the store. In the others delete metadata.db, or give it a file of its own while "
                "no process has the store open: cp metadata.db copy && mv copy metadata.db",
            )

    def _make_file(self) -> None:
        """Create an empty file, which is an empty database for SQLite. Its mode is 0600, because the file will contain the names of
        topics and readers. SQLite gives the files beside it (-wal, -shm) the same mode.
        """
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be created: {error.strerror}.", advice="Check the folder's owner, mode and free space."
            ) from error

    def _open_first(self) -> None:
        """Check that the file is a store, or create the schema in an empty file. Several processes may call this at once. BEGIN
        IMMEDIATE lets only one of them create the schema.
        """
        deadline = self._clock.monotonic() + self._busy_seconds
        while True:
            try:
                self._prepare(self.connection())
                self.reserve.lay()
                return
            except sqlite3.Error as error:
                self._drop_connection()
                code = _code(error)
                if code in OF_THE_DISK and self.reserve.give_up():
                    continue  # on a full disk SQLite has no room for its files beside the database
                if code == sqlite3.SQLITE_NOTADB:
                    raise ClusterFormatError(
                        f"{self.path} is not a SQLite database.", advice="Name another folder, or move that file away."
                    ) from error
                if code != sqlite3.SQLITE_BUSY or self._clock.monotonic() > deadline:
                    trouble = trouble_at(self.path) if code in OF_THE_DISK else None
                    said, advice = f"{self.path} cannot be opened: {error}.", "Check the folder's owner, mode and free space."
                    if trouble is not None:
                        said, advice = f"{said} {trouble.message}", trouble.advice
                    raise ConfigurationError(said, advice=advice) from error
                self._clock.sleep(0.01)  # while another process switches to WAL, switching fails with "busy" at once

    def _prepare(self, connection: sqlite3.Connection) -> None:
        with self._snapshot(connection):
            if self._is_ours(connection):
                return
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            if not self._is_ours(connection):
                for statement in SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _snapshot(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Run all reads of the block in one snapshot, because another process may be creating the schema."""
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _is_ours(self, connection: sqlite3.Connection) -> bool:
        """Return whether the database is a store (True) or empty (False). Raises ClusterFormatError if it belongs to another
        program, or to a version of txnsegment with another format.
        """
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application == APPLICATION_ID:
            if version != FORMAT:
                raise ClusterFormatError(
                    f"{self.path} has format {version}; this version of txnsegment knows format {FORMAT}.",
                    advice="Upgrade txnsegment on this machine.",
                )
            return True
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application or version or tables:
            raise ClusterFormatError(
                f"{self.path} is a SQLite database of another program.", advice="Name another folder, or move that file away."
            )
        return False

    # --- connections ---

    def connection(self) -> sqlite3.Connection:
        """Return this thread's connection. A forked child opens a new one, as SQLite forbids using a connection across a fork."""
        if os.getpid() != self._pid:
            _inherited.extend(self._open)
            self._pid = os.getpid()
            self._forget_connections()
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        return found if found is not None else self._connect()

    def _connect(self) -> sqlite3.Connection:
        # With `mode=rw` a missing file is an error. Otherwise SQLite would create an empty file that every user can read.
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            factory=_Connection,
        )
        self._local.connection = connection
        with self._listing:
            self._open.add(connection)
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def _drop_connection(self) -> None:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is not None:
            del self._local.connection
            connection.close()

    def _forget_connections(self) -> None:
        self._local = threading.local()
        self._listing = threading.Lock()
        self._open: weakref.WeakSet[sqlite3.Connection] = weakref.WeakSet()
        # Threads of one process wait for each other at this lock, and not by polling SQLite's lock.
        self._writing = threading.Lock()

    def close(self) -> None:
        """Close the connections of all threads."""
        if os.getpid() != self._pid:
            return
        with self._listing:
            for connection in list(self._open):
                connection.close()
        self._local = threading.local()

    # --- transactions ---

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Run all statements of the block on one snapshot. Raises Unavailable, after which the read may be repeated."""
        connection = self._usable()
        try:
            try:
                connection.execute("BEGIN")
                yield connection
            finally:
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo(connection)
            raise self._not_done(error, "read") from error

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """Run the block in one write transaction, which is rolled back if the block raises.

        `durable`: with True the transaction is on the disk when the block ends. With False a power failure may undo the
        transaction, together with every later transaction that is not durable. The next durable transaction syncs all earlier ones.

        Raises Unavailable (nothing was written) or UnknownOutcome (the disk failed in the COMMIT).
        """
        connection = self._usable()
        if not self._writing.acquire(timeout=self._busy_seconds):
            raise self._busy()
        try:
            try:
                if self._failed:
                    self._make_sure(connection)
                self._begin_write(connection, durable)
                try:
                    yield connection
                except sqlite3.Error as error:
                    raise self._not_done(error, "write") from error
                self._commit(connection)
            except BaseException:  # after an interrupt, too, the next write of this thread must find no open transaction
                self._undo(connection)
                raise
        finally:
            self._writing.release()

    def _make_sure(self, connection: sqlite3.Connection) -> None:
        """Test the disk after a failed COMMIT, by a write that changes no data.

        Raises Unavailable if the test fails: the caller's write was then not tried. Without the test each write to a broken disk
        would raise UnknownOutcome. Callers would then repeat the write up to a hundred times, as after lost races
        (`contract.until`).
        """
        try:
            self._begin(connection)
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._undo(connection)
            raise (self._busy() if _code(error) == sqlite3.SQLITE_BUSY else self._not_done(error, "write")) from error
        self._failed = False

    def _begin_write(self, connection: sqlite3.Connection, durable: bool) -> None:
        try:
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._begin(connection)
        except sqlite3.Error as error:
            raise (self._busy() if _code(error) == sqlite3.SQLITE_BUSY else self._not_done(error, "write")) from error

    def _begin(self, connection: sqlite3.Connection) -> None:
        """Begin a transaction with the write lock. Raises sqlite3.OperationalError (busy) after `busy_seconds`.

        This method polls at a fixed interval. SQLite's busy handler sleeps longer and longer, up to 100 ms, so the writer that has
        waited longest polls least often. The fixed interval shortens the longest waits and costs some throughput. Both ways were
        measured with 8 writers on 2 busy cores (medians of 6 alternating runs). With SQLite's handler the longest commit of a run
        took 1,133 ms, with this method 380 ms. The 99th percentile was 517 ms against 260 ms, the median 20 ms against 35 ms, and
        the commits a second 100 against 70.
        """
        deadline = self._clock.monotonic() + self._busy_seconds
        connection.execute("PRAGMA busy_timeout=0")
        try:
            while True:
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    return
                except sqlite3.OperationalError as error:
                    if _code(error) != sqlite3.SQLITE_BUSY or self._clock.monotonic() > deadline:
                        raise
                    self._clock.sleep(TURN_SECONDS)
        finally:
            connection.execute(f"PRAGMA busy_timeout={int(self._busy_seconds * 1000)}")

    def _commit(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            still_open = connection.in_transaction
            self._undo(connection)
            # After a failed write or fsync of SQLite's log, the commit frame may be on the disk, and then recovery applies the
            # transaction. On a full disk the COMMIT fails before the frame is complete. A transaction that is still open was not
            # committed.
            if _code(error) != sqlite3.SQLITE_FULL and (_code(error) == sqlite3.SQLITE_IOERR or not still_open):
                self._failed = True
                trouble = trouble_at(self.path)
                raise UnknownOutcome(
                    f"{self.path}: the disk failed while a write was committed: {error}."
                    + (f" {trouble.message}" if trouble is not None else ""),
                    advice="Check the disk. Callers read the records again before they repeat the write.",
                ) from error
            raise self._not_done(error, "write") from error

    def _undo(self, connection: sqlite3.Connection) -> None:
        """Roll back the open transaction, if any. A connection that fails to roll back is closed, which has the same effect."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._drop_connection()

    def _usable(self) -> sqlite3.Connection:
        try:
            return self.connection()
        except sqlite3.Error as error:
            raise self._not_done(error, "open") from error

    def _busy(self) -> StoreError:
        return Unavailable(
            f"{self.path} was busy for {self._busy_seconds:g} s; nothing was written.",
            advice="Look for a process that holds a transaction on that file.",
        )

    def _not_done(self, error: sqlite3.Error, what: str) -> StoreError:
        advice = {
            sqlite3.SQLITE_FULL: "The disk is full: free some space.",
            sqlite3.SQLITE_READONLY: "The file or its folder has become read-only.",
            sqlite3.SQLITE_CORRUPT: "The file is damaged: restore it from a backup.",
            sqlite3.SQLITE_NOTADB: "The file was overwritten: restore it from a backup.",
            sqlite3.SQLITE_CANTOPEN: "The file or its folder is gone.",
        }.get(_code(error), "Check the disk and the folder.")
        trouble = trouble_at(self.path) if _code(error) in OF_THE_DISK else None
        if trouble is not None:
            said = f"{self.path}: cannot {what}: {error}; nothing was changed. {trouble.message}"
            return Unavailable(said, advice=trouble.advice)
        return Unavailable(f"{self.path}: cannot {what}: {error}; nothing was changed.", advice=advice)


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code, which is the low byte of the extended code. Return 0 for an error that Python raised
    itself, e.g. for a closed connection.
    """
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def file_system(path: Path) -> str:
    """Return the type of the file system that holds a path, e.g. `ext4` or `nfs4`, or an empty text if unknown (not on Linux)."""
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return file_system_in(text, os.path.realpath(path))


def file_system_in(mountinfo: str, path: str) -> str:
    """Return the type of the file system that a path is on. `mountinfo`: the text of /proc/self/mountinfo (proc(5)). Of all mount
    points above the path the longest counts. If several lines have this mount point, the last of these lines counts.
    """
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode().decode("unicode_escape")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind
