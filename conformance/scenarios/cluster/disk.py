"""A disk for the ledgers of the deployment. It can be made full.

If this process may mount file systems, the disk is a tmpfs. To make it full, this module shrinks it to its current content. Every
process that writes then gets ENOSPC. Without that right, the disk is made full only for the writing processes: the limit
RLIMIT_FSIZE forbids them to write to files, and they get EFBIG.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from conformance.processes import left_behind

SIZE = "2g"
_UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


class Disk:
    """The disk of the ledgers. A context manager, whose end unmounts a tmpfs. `how`: how the disk is made full, in words."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.mounted = _mount("-t", "tmpfs", "-o", f"size={SIZE},mode=700", "txnsegment-conformance", str(folder))
        if self.mounted:
            left_behind(folder)
        self.how = (
            "a tmpfs shrunk to what it holds" if self.mounted else "RLIMIT_FSIZE of the writing processes (no right to mount)"
        )

    @contextmanager
    def full(self, writers: Callable[[], Sequence[int]]) -> Iterator[None]:
        """A context in which the disk is full. `writers`: returns the ids of the processes to limit if the disk is no tmpfs."""
        if self.mounted:
            found = os.statvfs(self.folder)
            self._resize(str((found.f_blocks - found.f_bfree) * found.f_frsize))
            try:
                yield
            finally:
                self._resize(SIZE)
            return
        limited = list(writers())
        for pid in limited:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        try:
            yield
        finally:
            for pid in limited:
                with suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, _UNLIMITED)

    def _resize(self, size: str) -> None:
        if not _mount("-o", f"remount,size={size}", str(self.folder)):
            raise OSError(f"the tmpfs {self.folder} cannot be made {size} bytes big")

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)
            self.mounted = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _mount(*words: str) -> bool:
    """Run `mount`. Return whether it succeeded."""
    try:
        return subprocess.run(["mount", *words], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
