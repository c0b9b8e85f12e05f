"""Reserved disk space, used when the disk is full (docs/operations.md, Sweeping).

SQLite needs free space to open a database (for its shared index and its log) and to write. A sweep also needs space, because it
writes before it deletes. So each database has a few small reserve files in its folder. If the disk is full, a process that fails to
open the database, or that sweeps, deletes one reserve file to free its space. The next process that opens the database with enough
free space creates the file again.
"""

from __future__ import annotations

import os
import threading
import uuid
from pathlib import Path
from typing import Final

from ledgers.disk import disk
from ledgers.errors import StorageError
from ledgers.io_errors import explain
from ledgers.local_files import unlink

FILES: Final = 4
BYTES: Final = 256 * 1024
"""Size of one reserve file. SQLite's shared index takes 32 KiB, and one write of a sweep takes about four pages of 4 KiB in
SQLite's log.
"""
SPARE: Final = 64 * 2**20
"""Reserve files are created only if this many bytes are free, so that the reserve itself does not fill the disk."""
PROBED: Final = 64 * 1024
MOST_PROBED: Final = 8 * 2**20
"""`trouble_at` writes a probe file of PROBED bytes plus the size of SQLite's log, or plus MOST_PROBED if the log is larger."""


class Reserve:
    """The reserve files of the database in a folder. When the disk is full, deleting one of them frees space. Several processes may
    create and delete these files at the same time.
    """

    def __init__(self, folder: Path) -> None:
        self._files = [folder.absolute() / f"metadata.reserve-{i}" for i in range(1, FILES + 1)]
        self._lock = threading.Lock()

    def lay(self) -> None:
        """Create missing and incomplete reserve files if the disk has enough free space."""
        missing = [file for file in self._files if not _is_whole(file)]
        if not missing or _free(missing[0].parent) < SPARE:
            return
        for file in missing:
            unlink(disk(), file)  # a crash may have left an incomplete file
            try:
                with disk().create(file, mode=0o600) as out:
                    out.write(os.urandom(BYTES))  # random bytes, because some file systems compress zeros
            except FileExistsError:
                continue  # another process creates the same file
            except OSError:
                unlink(disk(), file)  # the disk is full
                return

    def give_up(self) -> bool:
        """Delete one reserve file. Return whether there was one."""
        with self._lock:
            for file in self._files:
                try:
                    disk().unlink(file)
                except FileNotFoundError:
                    continue
                return True
        return False


def trouble_at(database: Path) -> StorageError | None:
    """Write a probe file beside the database. Return the error of the operating system, or None if the write succeeds.

    SQLite itself does not report why a write failed. The probe file is somewhat larger than SQLite's log, so that it needs at least
    as much space as SQLite's write. If the log is larger than MOST_PROBED, the probe file is smaller than the log.
    """
    log = database.with_name(f"{database.name}-wal")
    probe = database.with_name(f".{database.name}.{uuid.uuid4().hex}.probe").absolute()
    try:
        size = log.stat().st_size if log.exists() else 0
        with disk().create(probe, mode=0o600) as out:
            out.write(os.urandom(min(size, MOST_PROBED) + PROBED))
    except OSError as error:
        return explain(error, "write", str(database))
    finally:
        unlink(disk(), probe)
    return None


def _is_whole(file: Path) -> bool:
    try:
        return file.stat().st_size == BYTES
    except FileNotFoundError:
        return False


def _free(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
