"""Tests of risks that only SQLite has: processes, crashes, foreign files, leases."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

import pytest

from metadata.common.errors import BadVersion, ClusterFormatError, ConfigurationError, SessionLost, Unavailable, UnknownOutcome
from metadata.records.paths import LOG, Key, KeyRange, Prefix
from metadata.store import open_store, sqlite_database
from metadata.store.contract import ABSENT, Append, IndexEntry, Put, Watch, decide
from metadata.store.sqlite import SqliteStore

A = Key("/a", "p")


class HandClock:
    """A clock that the test sets by hand. Its sleep takes real time."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )


KILLED = """
import os, signal, sys
from metadata.records.paths import LOG, Key
from metadata.store import sqlite
from metadata.store.contract import Append, Put
store = sqlite.SqliteStore(sys.argv[1])
apply = sqlite._apply
def apply_and_die(connection, write, session):
    record = apply(connection, write, session)
    if isinstance(write, Put):
        os.kill(os.getpid(), signal.SIGKILL)
    return record
sqlite._apply = apply_and_die
store.write(Append(LOG, b"x"), Put(Key("/a", "p"), b"2"))
"""


def test_a_process_that_is_killed_in_a_transaction_leaves_nothing(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path)) as store:
        before = store.put(A, b"1")
        process = python(KILLED, tmp_path)
        process.communicate(timeout=30)
        assert process.returncode == -9
        assert store.view().get(A) == before
        assert store.view().keys(LOG.range()) == []
        assert store.append(LOG, b"y").number == 1


def test_a_busy_database_means_not_done(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path), busy_seconds=0.1) as store:
        other = sqlite3.connect(tmp_path / "metadata.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="busy"):
            store.put(A, b"1")
        assert store.view().get(A) is None
        other.execute("ROLLBACK")
        store.put(A, b"1", expect=ABSENT)
        other.close()


def test_a_folder_that_was_copied_by_hard_links_is_refused(tmp_path: Path) -> None:
    SqliteStore(str(tmp_path / "a")).close()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "metadata.db").hardlink_to(tmp_path / "a" / "metadata.db")
    for folder in ("a", "b"):
        with pytest.raises(ConfigurationError, match=r"metadata\.db has 2 names \(hard links\).*cp metadata\.db copy"):
            SqliteStore(str(tmp_path / folder), create=False)
    (tmp_path / "b" / "metadata.db").unlink()
    SqliteStore(str(tmp_path / "a"), create=False).close()


def test_a_fork_gets_connections_of_its_own(tmp_path: Path) -> None:
    with SqliteStore(str(tmp_path)) as store:
        store.put(A, b"parent", expect=ABSENT)
        store.put(Key("/mine", ""), b"m", ephemeral=True)
        child = os.fork()
        if child == 0:
            try:
                store.put(A, b"child", expect=0)
                store.put(Key("/yours", ""), b"c", ephemeral=True)
                store.close()
                os._exit(0)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert store.put(A, b"parent", expect=1).version == 2
        assert store.view().get(Key("/mine", "")) is not None
        assert store.view().get(Key("/yours", "")) is None


class TestCommitErrors:
    """The outcome that a write reports when COMMIT itself fails."""

    def commit(self, monkeypatch: pytest.MonkeyPatch, store: SqliteStore, code: int, *, after: bool) -> None:
        """Make the next COMMIT of a write fail with this code, before or after it takes effect."""

        class Failing(sqlite_database._Connection):
            armed = True

            def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
                if sql == "COMMIT" and self.armed and self.total_changes:
                    self.armed = False
                    if after:
                        super().execute("COMMIT")
                    error = sqlite3.OperationalError("planted")
                    error.sqlite_errorcode = code
                    raise error
                return super().execute(sql, *parameters)

        store.database.close()
        monkeypatch.setattr(sqlite_database, "_Connection", Failing)

    def test_a_busy_commit_leaves_the_transaction_open_and_undone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with SqliteStore(str(tmp_path)) as store:
            self.commit(monkeypatch, store, sqlite3.SQLITE_BUSY, after=False)
            with pytest.raises(Unavailable):
                store.put(A, b"1")
            assert store.view().get(A) is None
            store.put(A, b"1", expect=ABSENT)

    def test_a_full_disk_is_undone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with SqliteStore(str(tmp_path)) as store:
            self.commit(monkeypatch, store, sqlite3.SQLITE_FULL, after=False)
            with pytest.raises(Unavailable, match="disk is full"):
                store.put(A, b"1")
            assert store.view().get(A) is None

    @pytest.mark.parametrize("after", [True, False])
    def test_an_io_error_is_unknown(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool) -> None:
        with SqliteStore(str(tmp_path)) as store:
            self.commit(monkeypatch, store, sqlite3.SQLITE_IOERR | 4 << 8, after=after)
            with pytest.raises(UnknownOutcome, match=r"metadata\.db"):
                store.put(A, b"1")
            assert (store.view().get(A) is not None) == after

    def test_the_write_after_an_io_error_is_known_not_to_be_done_while_the_disk_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each COMMIT fails. The outcome of the first write is unknown. The second write raises Unavailable, because it certainly
        changed nothing. If its outcome were unknown as well, the caller would read and retry without end.
        """
        fails = [True]

        class Failing(sqlite_database._Connection):
            def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
                if sql == "COMMIT" and fails:
                    error = sqlite3.OperationalError("planted")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | 4 << 8
                    raise error
                return super().execute(sql, *parameters)

        with SqliteStore(str(tmp_path)) as store:
            store.database.close()
            monkeypatch.setattr(sqlite_database, "_Connection", Failing)
            with pytest.raises(UnknownOutcome):
                store.put(A, b"1")
            with pytest.raises(Unavailable, match="nothing was changed"):
                store.put(A, b"1")
            fails.clear()
            store.put(A, b"1", expect=ABSENT)


def test_a_really_full_disk(tmp_path: Path) -> None:
    """The database may have only one page. SQLite treats this limit as a full disk."""
    with SqliteStore(str(tmp_path)) as store:
        store.database.connection().execute("PRAGMA max_page_count=1")
        with pytest.raises(Unavailable, match="full"):
            store.write(Append(LOG, b"x"), Put(A, b"x" * 700_000))
        assert store.view().keys(LOG.range()) == []
        store.database.connection().execute("PRAGMA max_page_count=100000")
        assert store.append(LOG, b"x").number == 1


class TestLeases:
    def test_records_of_a_lapsed_session_vanish_and_are_purged(self, tmp_path: Path) -> None:
        clock = HandClock()
        dead = SqliteStore(str(tmp_path), clock=clock, lease_ms=10_000)
        dead._ended.set()  # the thread that renews the lease ends, as in a killed process
        view = dead.view()
        dead.put(A, b"me", ephemeral=True, indexes=(IndexEntry("i", "k"),))
        store = SqliteStore(str(tmp_path), clock=clock)
        clock.ms += 9_999
        assert store.view().get(A) is not None
        clock.ms += 1
        assert store.view().get(A) is None
        assert store.view().scan_index("i", "", "z") == []
        assert store.view().keys(KeyRange("/", "/~", "")) == []
        assert store.put(A, b"you", expect=ABSENT, ephemeral=True).version == 0
        with pytest.raises(Unavailable, match="lapsed"):
            dead.put(Key("/b", ""), b"x", ephemeral=True)
        with pytest.raises(SessionLost):
            view.get(A)
        assert decide(dead, lambda v: v.get(A)) is not None
        dead.close()
        store.close()

    def test_a_living_session_is_renewed(self, tmp_path: Path) -> None:
        clock = HandClock()
        with SqliteStore(str(tmp_path), clock=clock, lease_ms=60) as leader, SqliteStore(str(tmp_path), clock=clock) as store:
            leader.put(A, b"me", ephemeral=True)
            (first,) = store.database.connection().execute("SELECT expires_ms FROM sessions").fetchone()
            clock.ms += 59
            renewed = threading.Event()
            look(lambda: store.database.connection().execute("SELECT expires_ms FROM sessions").fetchone()[0] > first, renewed)
            clock.ms += 59
            assert clock.ms > first
            assert store.view().get(A) is not None


def look(until: Callable[[], bool], patience: threading.Event) -> None:
    """Wait at most ten seconds until the condition is true. Another thread makes it true."""
    for _ in range(1000):
        if until():
            return
        patience.wait(0.01)
    raise AssertionError("the condition never became true")


class TestPlaces:
    def test_a_missing_store_is_not_made_unless_asked(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="txnsegment init"):
            open_store(f"file://{tmp_path}/none", create=False)
        assert not (tmp_path / "none").exists()

    def test_a_file_in_place_of_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("x")
        with pytest.raises(ConfigurationError, match="cannot be created"):
            open_store(f"file://{tmp_path}/f")

    def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        (tmp_path / "metadata.db").write_bytes(b"not a database, but long enough to look at" * 100)
        with pytest.raises(ClusterFormatError, match="not a SQLite database"):
            open_store(f"file://{tmp_path}")

    def test_a_database_of_another_program(self, tmp_path: Path) -> None:
        other = sqlite3.connect(tmp_path / "metadata.db")
        other.execute("CREATE TABLE t (x)")
        other.commit()
        other.close()
        before = (tmp_path / "metadata.db").read_bytes()
        with pytest.raises(ClusterFormatError, match="another program"):
            open_store(f"file://{tmp_path}")
        assert (tmp_path / "metadata.db").read_bytes() == before

    def test_a_newer_format(self, tmp_path: Path) -> None:
        open_store(f"file://{tmp_path}").close()
        other = sqlite3.connect(tmp_path / "metadata.db")
        other.execute("PRAGMA user_version=99")
        other.close()
        with pytest.raises(ClusterFormatError, match="format 99"):
            open_store(f"file://{tmp_path}")

    def test_a_network_file_system(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite_database, "file_system", lambda path: "nfs4")
        with pytest.raises(ConfigurationError, match=r"network file system \(nfs4\)"):
            open_store(f"file://{tmp_path}")

    def test_which_mount_holds_a_path(self) -> None:
        text = (
            "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
            "30 22 0:30 / /mnt/share rw - nfs4 host:/x rw\n"
            "31 22 0:31 / /mnt/with\\040space rw - fuse.sshfs host: rw\n"
        )
        kind = sqlite_database.file_system_in
        assert kind(text, "/mnt/share/a") == "nfs4"
        assert kind(text, "/mnt/shared") == "ext4"
        assert kind(text, "/mnt/with space") == "fuse.sshfs"

    def test_a_folder_that_cannot_be_written(self) -> None:
        """The child process gives up root's rights, because root may write to any folder."""
        with tempfile.TemporaryDirectory() as folder:
            open_store(f"file://{folder}").close()
            (Path(folder) / "metadata.db").chmod(0o444)
            Path(folder).chmod(0o555)
            child = os.fork()
            if child == 0:
                if os.getuid() == 0:
                    os.setuid(65534)
                try:
                    open_store(f"file://{folder}")
                except ConfigurationError as error:
                    os._exit(0 if "cannot be written" in str(error) else 2)
                os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            Path(folder).chmod(0o755)

    def test_a_store_that_is_closed_in_another_thread(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path))
        thread = threading.Thread(target=store.put, args=(A, b"x"))
        thread.start()
        thread.join()
        store.close()
        assert not list(tmp_path.glob("*-wal"))  # the last connection checkpoints the WAL into the file

    def test_a_lost_race_reports_the_version_found(self, tmp_path: Path) -> None:
        with SqliteStore(str(tmp_path)) as store, pytest.raises(BadVersion, match="/a should have version 3 but does not exist"):
            store.put(A, b"x", expect=3)


@pytest.mark.parametrize(("durable", "level"), [((True,), 2), ((False,), 1), ((False, True), 2)])
def test_a_group_is_as_durable_as_its_most_durable_write(tmp_path: Path, durable: tuple[bool, ...], level: int) -> None:
    """Registrations and decisions are synced to disk (level 2, FULL). Other writes are not (level 1, NORMAL): a crash may lose them
    together with all later writes.
    """
    with SqliteStore(tmp_path) as store:
        store.write(*(Put(Key(f"/{i}", "p"), b"x", durable=d) for i, d in enumerate(durable)))
        assert store.database.connection().execute("PRAGMA synchronous").fetchone() == (level,)


@pytest.mark.parametrize("after", ["BEGIN", "BEGIN IMMEDIATE"])
def test_an_interrupt_right_after_begin_leaves_no_transaction_open(
    after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C arrives right after BEGIN, before the code that would end the transaction at an error. The transaction is ended all
    the same, so that no later write runs inside it.
    """
    store = SqliteStore(str(tmp_path))
    other = SqliteStore(str(tmp_path), busy_seconds=0.1)

    class Interrupted(sqlite_database._Connection):
        armed = False

        def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
            cursor = super().execute(sql, *arguments)
            if self.armed and sql == after:
                raise KeyboardInterrupt
            return cursor

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_database, "_Connection", Interrupted)
        interrupted = SqliteStore(str(tmp_path))
        Interrupted.armed = True
        with pytest.raises(KeyboardInterrupt):
            interrupted.put(A, b"1") if after == "BEGIN IMMEDIATE" else interrupted.view().get(A)
        Interrupted.armed = False
        assert not interrupted.database.connection().in_transaction
    other.put(A, b"2")
    for each in (interrupted, other, store):
        each.close()


def test_many_first_uses_at_once(tmp_path: Path) -> None:
    """Six threads open a new store at once. No thread may regard the file that another thread is creating as a foreign file."""
    together = threading.Barrier(6)

    def use(folder: Path) -> None:
        together.wait()
        SqliteStore(folder).close()

    with ThreadPoolExecutor(6) as pool:
        for turn in range(40):
            list(pool.map(use, [tmp_path / str(turn)] * 6))


class TestWatches:
    """Watches of a store, while other threads write between two steps of the thread that looks for changes."""

    LOOK, COMPARE = "PRAGMA data_version", "SELECT version, value, indexes FROM records"

    def stepped(self, monkeypatch: pytest.MonkeyPatch, acts: dict[tuple[str, str], Callable[[], object]]) -> None:
        """Call each act once. The key of an act says when: "before" or "after" the watching thread runs this SQL text."""

        class Stepped(sqlite_database._Connection):
            def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
                self.step("before", sql)
                cursor = super().execute(sql, *arguments)
                self.step("after", sql)
                return cursor

            def step(self, when: str, sql: str) -> None:
                moment = (when, sql.partition(" WHERE")[0])
                if threading.current_thread().name == "txnsegment-watch" and moment in acts:
                    other = threading.Thread(target=acts.pop(moment))
                    other.start()
                    other.join()

        monkeypatch.setattr(sqlite_database, "_Connection", Stepped)

    @pytest.mark.parametrize("target", [A, LOG], ids=["key", "prefix"])
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_watch_added_during_a_poll_is_woken(
        self, when: str, target: Key | Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        closed, added = threading.Event(), threading.Event()
        first: SimpleQueue[Watch] = SimpleQueue()

        def act() -> None:
            first.get().close()
            store.watch(target, added.set)
            other.write(Put(A, b"x"), Append(LOG, b"x"))

        self.stepped(monkeypatch, {(when, self.LOOK): act})
        with SqliteStore(str(tmp_path)) as other, SqliteStore(str(tmp_path)) as store:
            first.put(store.watch(A, closed.set))
            assert added.wait(10)
            assert not closed.is_set()

    def test_a_watch_of_a_record_recreated_between_two_polls_is_woken(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        woken = threading.Event()

        def again() -> None:
            other.delete(A)
            other.put(A, b"another")

        self.stepped(monkeypatch, {("before", self.LOOK): again})
        with SqliteStore(str(tmp_path)) as other, SqliteStore(str(tmp_path)) as store:
            other.put(A, b"one")
            store.watch(A, woken.set)
            assert woken.wait(10)

    def test_a_watch_closed_after_its_change_was_found_stays_silent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        woken, watches = list[int](), list[Watch]()
        last = threading.Event()

        def change() -> None:
            watches.extend(store.watch(A, lambda n=n: woken.append(n)) for n in range(3))
            store.watch(A, last.set)
            other.put(A, b"x")

        self.stepped(monkeypatch, {("before", self.LOOK): change, ("after", self.COMPARE): lambda: watches[1].close()})
        with SqliteStore(str(tmp_path)) as other, SqliteStore(str(tmp_path)) as store:
            store.watch(Key("/b", ""), lambda: None)
            assert last.wait(10)
            assert woken == [0, 2]
