"""Room that is kept on the disk for the day when it is full (docs/operations.md, Sweeping).

SQLite needs room to open a database (its shared index and its log) and to write, and a sweep writes before it deletes. So each
database has some small files beside it that hold nothing. On a full disk an opening that fails, or a sweep, gives one up and uses
its room; the next opening with room to spare lays it down again.
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
"""Of one: SQLite's shared index takes 32 KiB, and a write of a sweep about four pages of 4 KiB in the log."""
SPARE: Final = 64 * 2**20
"""Only where so much is free it is laid down: it must not be what fills a disk."""
PROBED: Final = 64 * 1024
MOST_PROBED: Final = 8 * 2**20
"""To find out what is wrong with a disk a file is written: so much, and as much as SQLite's log has, at most so much of that."""


class Reserve:
    """The reserve of the database in a folder. Several processes may lay it down and give it up at once."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder.absolute() / f"metadata.reserve-{i}" for i in range(1, FILES + 1)]
        self._lock = threading.Lock()

    def lay(self) -> None:
        """Lay down what is missing, if there is room to spare."""
        missing = [file for file in self._files if not _is_whole(file)]
        if not missing or _free(missing[0].parent) < SPARE:
            return
        for file in missing:
            unlink(disk(), file)  # half of one, from a process or a machine that stopped meanwhile
            try:
                with disk().create(file, mode=0o600) as out:
                    out.write(os.urandom(BYTES))  # zeros take no room where the file system packs them
            except FileExistsError:
                continue  # another process does the same
            except OSError:
                unlink(disk(), file)  # there was no room to spare
                return

    def give_up(self) -> bool:
        """Free a part of it; whether there was any."""
        with self._lock:
            for file in self._files:
                try:
                    disk().unlink(file)
                except FileNotFoundError:
                    continue
                return True
        return False


def trouble_at(database: Path) -> StorageError | None:
    """What keeps a file beside a database from being as long as SQLite's log and a bit more, as the system says it. (SQLite does
    not tell why it could not write.)
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
