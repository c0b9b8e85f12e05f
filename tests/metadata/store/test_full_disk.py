"""A full disk under the embedded store. The error of a commit names the disk, and the cluster can still be opened and swept."""

from __future__ import annotations

import errno
import io
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from ledgers.disk import LocalDisk, in_place_of_the_disk
from metadata.common.errors import ConfigurationError, StorageError, SweepIncomplete, Unavailable
from metadata.store import reserve, sqlite, sqlite_database
from metadata.store.reserve import BYTES, FILES
from txnsegment import connect

COMMIT_AT_THE_LIMIT = """
import os, resource, sys
import pyarrow as pa
from metadata.common.errors import Unavailable
from txnsegment import connect
folder = sys.argv[1]
with connect(f"file://{folder}") as cluster:
    cluster.topics.create("t", schema="n bigint")
    txn = cluster.begin()
    txn.append("t", pa.table({"n": [1]}))
    limit = os.path.getsize(f"{folder}/metadata.db-wal") + int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        txn.commit()
    except Unavailable as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with connect(f"file://{folder}") as cluster:
    with cluster.begin() as txn:
        txn.append("t", pa.table({"n": [2]}))
        txn.commit()
    print("and it goes on")
"""


@pytest.mark.parametrize("more", [0, 2_000, 6_000])
def test_a_full_disk_during_a_commit_is_an_error_that_names_it(tmp_path: Path, more: int) -> None:
    """SQLite's log may grow only by `more` bytes: by none, by less than a page, or by a little more than a page. The commit raises
    an error that names the database file. When there is room again, the next commit succeeds.
    """
    done = subprocess.run(
        [sys.executable, "-c", COMMIT_AT_THE_LIMIT, str(tmp_path), str(more)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, after = done.stdout.splitlines()
    assert f"{tmp_path}/metadata.db" in said
    assert "larger than this process may write" in said
    assert "100 times" not in said
    assert after == "and it goes on"


# --- opening and sweeping ---------------------------------------------------------------------------------------------


class Disk:
    """A disk that gives the store's folder a limited number of bytes. SQLite's own files count with their real size."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.size = folder, 10**12

    def free(self) -> int:
        return self.size - sum(file.stat().st_size for file in self.folder.glob("metadata.*"))

    def fill(self) -> None:
        self.size -= self.free()


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Return a simulated disk. When it is full, SQLite fails as on a real full disk: it cannot create the file of its shared index
    when a store is opened, and cannot extend its log at a COMMIT.
    """
    disk = Disk(tmp_path / "c")

    class Crowded(sqlite_database._Connection):
        opened = writes = False

        def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
            if not self.opened and not (disk.folder / "metadata.db-shm").exists() and disk.free() < 40_000:
                raise failed(sqlite3.SQLITE_IOERR | 19 << 8)  # SQLITE_IOERR_SHMSIZE
            self.opened = True
            if sql.startswith("BEGIN"):
                self.writes = sql == "BEGIN IMMEDIATE"
            if sql == "COMMIT" and self.writes and disk.free() < 8_192:
                raise failed(sqlite3.SQLITE_FULL)
            return super().execute(sql, *parameters)

    def failed(code: int) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError("planted")
        error.sqlite_errorcode = code
        return error

    def trouble(path: Path) -> StorageError | None:
        return StorageError("No space left.") if disk.free() < 70_000 else None

    monkeypatch.setattr(sqlite_database, "_Connection", Crowded)
    monkeypatch.setattr(sqlite, "trouble_at", trouble)
    return disk


def reserves(folder: Path) -> int:
    return len(list(folder.glob("metadata.reserve-*")))


def test_a_cluster_on_a_full_disk_is_opened_and_swept(full: Disk) -> None:
    url = f"file://{full.folder}"
    with connect(url) as cluster:
        cluster.topics.create("t", schema="n bigint")
        with cluster.begin() as txn:
            txn.append("t", pa.table({"n": [1]}))
            txn.commit()
    (part,) = (full.folder / "ledgers").rglob("*.parquet")
    orphan = part.with_name("0123.parquet")
    orphan.write_bytes(b"x")
    os.utime(orphan, (1, 1))
    full.fill()
    with connect(url) as cluster, suppress(SweepIncomplete, Unavailable):  # the reserve may be too small for all steps of the sweep
        cluster.sweep()
    assert not orphan.exists()
    assert part.exists()
    assert reserves(full.folder) < FILES


def test_a_running_sweeper_still_deletes_once_the_disk_is_full(full: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(f"file://{full.folder}") as cluster:
        cluster.topics.create("t", schema="n bigint")
        with cluster.begin() as txn:
            txn.append("t", pa.table({"n": [1]}))
            txn.commit()
        cluster.client.finish()
        (part,) = (full.folder / "ledgers").rglob("*.parquet")
        orphan = part.with_name("0123.parquet")
        orphan.write_bytes(b"x")
        os.utime(orphan, (1, 1))
        full.fill()
        with monkeypatch.context() as patched:
            patched.setattr(sqlite, "trouble_at", lambda path: None)  # the product's check of the disk finds no fault
            with pytest.raises((SweepIncomplete, Unavailable), match="planted"):
                cluster.sweep()
        assert orphan.exists()
        assert reserves(full.folder) == FILES
        with pytest.raises((SweepIncomplete, Unavailable), match="planted"):
            cluster.sweep()  # the first steps of this sweep fail for lack of room
        assert not orphan.exists()
        cluster.sweep()


class FullVolume(LocalDisk):
    """A full volume. It accepts no bytes and no new folders, but it accepts new names in existing folders."""

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, path: Path, mode: int = 0o644) -> pa.NativeFile:
        super().create(path, mode).close()
        return pa.PythonFile(Full(), mode="w")


class Full(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return 0


def test_a_full_volume_of_ledgers_is_swept(tmp_path: Path) -> None:
    """The volume of the ledgers is full. The store lies on another volume, which has room. A sweep deletes the orphans."""
    url = f"file://{tmp_path}/c"
    with connect(url, ledgers=f"file://{tmp_path}/ledgers") as cluster:
        cluster.topics.create("t", schema="n bigint")
        with cluster.begin() as txn:
            txn.append("t", pa.table({"n": [1]}))
            txn.commit()
        cluster.sweep()
    (part,) = (tmp_path / "ledgers").rglob("*.parquet")
    orphan = part.with_name("0123.parquet")
    orphan.write_bytes(b"x")
    os.utime(orphan, (1, 1))
    with in_place_of_the_disk(FullVolume()), connect(url) as cluster:
        cluster.sweep()
    assert not orphan.exists()
    assert part.exists()
    assert not list((tmp_path / "ledgers").glob("sweep/deleting-*"))


def test_a_full_disk_without_a_reserve_is_an_error_that_names_it(full: Disk) -> None:
    """A cluster of an older version has no reserve, so a full disk raises an error that names the disk."""
    connect(f"file://{full.folder}").close()
    for file in full.folder.glob("metadata.reserve-*"):
        file.unlink()
    full.fill()
    with pytest.raises(ConfigurationError, match=r"metadata\.db cannot be opened.*free space"):
        connect(f"file://{full.folder}")


def test_the_reserve_is_created_where_the_disk_has_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve, "_free", lambda folder: reserve.SPARE - 1)
    connect(f"file://{tmp_path}/c").close()
    assert reserves(tmp_path / "c") == 0
    monkeypatch.undo()
    connect(f"file://{tmp_path}/c").close()
    files = list((tmp_path / "c").glob("metadata.reserve-*"))
    assert [(file.stat().st_size, file.stat().st_mode & 0o077) for file in files] == [(BYTES, 0)] * FILES


def test_a_reserve_file_truncated_by_a_crash_is_recreated(tmp_path: Path) -> None:
    """An empty reserve file would free no room when it is deleted, so it is written again."""
    (tmp_path / "metadata.reserve-2").touch()
    reserve.Reserve(tmp_path).lay()
    assert [file.stat().st_size for file in tmp_path.iterdir()] == [BYTES] * FILES


def test_a_disk_filled_during_the_reservation_leaves_no_partial_reserve(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = reserve.Reserve(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES // 2, limit[1]))
    try:
        kept.lay()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert not list(tmp_path.iterdir())
    assert not kept.give_up()
