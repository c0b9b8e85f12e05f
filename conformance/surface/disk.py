"""The disk of a run. The times of its files follow the clock of the run, which is ahead of the machine's clock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ledgers.disk import FileInfo, LocalDisk


class Time(Protocol):
    def now_ms(self) -> int: ...


class DiskByHand(LocalDisk):
    """A disk whose files have times of the run's clock. While a file has its temporary name, its creation time is kept in memory
    (`_open`). When it gets its final name, the current time is written to the file system. So a copy of the folder also has this
    time.
    """

    def __init__(self, clock: Time) -> None:
        self._clock = clock
        self._open: dict[str, int] = {}
        """The creation time of each file that still has its temporary name, by path. The file system has the machine's time for it.
        """

    def create(self, path: Path, mode: int = 0o644) -> pa.NativeFile:
        self._open[str(path)] = self._clock.now_ms()
        return super().create(path, mode)

    def link(self, path: Path, new: Path) -> None:
        self._stamp(path)
        super().link(path, new)

    def rename(self, path: Path, new: Path) -> None:
        self._stamp(path)
        super().rename(path, new)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._open.pop(str(path), None)

    def info(self, path: Path) -> FileInfo:
        size, mtime_ms = super().info(path)
        return size, self._open.get(str(path), mtime_ms)

    def entries(self, folder: Path) -> Iterator[tuple[str, FileInfo | None]]:
        for name, found in super().entries(folder):
            yield name, None if found is None else (found[0], self._open.get(str(folder / name), found[1]))

    def _stamp(self, path: Path) -> None:
        at = self._clock.now_ms() * 1_000_000
        with suppress(FileNotFoundError):  # a sweep deleted the file; the next call of the caller then fails
            os.utime(path, ns=(at, at))
        self._open.pop(str(path), None)
