"""The interface through which all local files are written, read, listed and deleted.

The interface defines what survives a power failure. The content of a file is durable after `sync`. An entry of a folder (a new
file, a link, a rename, a deletion, a new folder) is durable after `sync_folder` of that folder. `conformance/power` replaces the
disk by a simulated one. All methods raise OSError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from concurrent.futures import Future

FileInfo = tuple[int, int]
"""Length in bytes, and time of the last change in ms since 1970."""


SYNCS_AT_ONCE: Final = 16
"""How many calls `LocalDisk.together` runs at the same time, at most."""


class Disk(Protocol):
    """The file operations that txnsegment needs. `path` is absolute."""

    def create(self, path: Path, mode: int = 0o644) -> pa.NativeFile:
        """Make a new, empty file and open it for writing. Raises FileExistsError."""

    def open(self, path: Path) -> pa.NativeFile:
        """Open a file for random-access reading."""

    def sync(self, path: Path) -> None:
        """Make the content of a file durable. Its name becomes durable with `sync_folder` of its folder."""

    def sync_folder(self, path: Path) -> None:
        """Make the entries of a folder durable: names that were added and names that were removed."""

    def together(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run calls of `sync` and `sync_folder`, in any order or at the same time. Raise the error of the first call that failed,
        after all have ended.
        """

    def link(self, path: Path, new: Path) -> None:
        """Give a file a second name. Raises FileExistsError; OSError if the file system has no links."""

    def rename(self, path: Path, new: Path) -> None:
        """Rename a file; an existing file of the new name is replaced."""

    def unlink(self, path: Path) -> None:
        """Remove a name of a file. Raises FileNotFoundError."""

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        """Make one folder. Raises FileExistsError, FileNotFoundError."""

    def is_folder(self, path: Path) -> bool:
        """Return whether there is a folder of this name."""

    def info(self, path: Path) -> FileInfo:
        """Return length and time of the last change. Raises FileNotFoundError."""

    def entries(self, folder: Path) -> Iterator[tuple[str, FileInfo | None]]:
        """Yield the names in a folder, each with the info of the file (None: a folder). Files deleted meanwhile may be left out."""


class LocalDisk:
    """The file systems of this machine."""

    def create(self, path: Path, mode: int = 0o644) -> pa.NativeFile:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
        return pa.OSFile(str(path), "wb")

    def open(self, path: Path) -> pa.NativeFile:
        return pa.OSFile(str(path), "rb")

    def sync(self, path: Path) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def sync_folder(self, path: Path) -> None:
        self.sync(path)

    def together(self, syncs: Sequence[Callable[[], None]]) -> None:
        """Run the calls at the same time. A file system makes files durable together: four new ones took 5 ms in place of 11.

        A process may start no more threads if its limit is reached, or if its main thread has ended. This thread then makes the
        calls that no other thread has taken.
        """
        running: list[Future[None]] = []
        if len(syncs) > 1:
            with suppress(RuntimeError):
                from concurrent.futures import ThreadPoolExecutor  # imported late, because many processes write at most one file

                with ThreadPoolExecutor(min(SYNCS_AT_ONCE, len(syncs))) as pool:
                    for one in syncs:
                        running.append(pool.submit(one))
        for done in running:
            done.result()
        for one in syncs[len(running) :]:
            one()

    def link(self, path: Path, new: Path) -> None:
        os.link(path, new)

    def rename(self, path: Path, new: Path) -> None:
        path.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        path.mkdir(mode)

    def is_folder(self, path: Path) -> bool:
        return path.is_dir()

    def info(self, path: Path) -> FileInfo:
        found = path.stat()
        return found.st_size, found.st_mtime_ns // 1_000_000

    def entries(self, folder: Path) -> Iterator[tuple[str, FileInfo | None]]:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    yield entry.name, None
                    continue
                try:
                    info = entry.stat()
                except FileNotFoundError:
                    continue
                yield entry.name, (info.st_size, info.st_mtime_ns // 1_000_000)


_disk: Disk = LocalDisk()


def disk() -> Disk:
    """Return the disk of this process."""
    return _disk


@contextmanager
def in_place_of_the_disk(simulated: Disk) -> Iterator[None]:
    """Replace the disk of this process by `simulated` within the block. Tests use this."""
    global _disk
    before, _disk = _disk, simulated
    try:
        yield
    finally:
        _disk = before
