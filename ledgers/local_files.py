"""Ledger files on local disk (or a mounted POSIX file system).

Publishing: temporary name in the same folder, fsync, link to the real name, fsync of the folder.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ledgers.errors import StorageError
from ledgers.io_errors import explain, explained

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class LocalFiles:
    """Files under the folder `root`, which must exist (`create` makes it): a volume that is not mounted is an error, not empty."""

    def __init__(self, root: str) -> None:
        self.root = Path(root or "/")

    def create(self) -> None:
        with explained("make the ledger folder", str(self.root)):
            _make_folders(self.root)

    def publish(self, rel: str, data: bytes) -> None:
        output = self.open_output(rel)
        try:
            with explained("write", str(self.root / rel)):
                output.stream.write(data)
            output.publish()
        finally:
            output.discard()

    def open_output(self, rel: str) -> LocalOutput:
        path = self.root / rel
        with explained("write", str(path)):
            try:
                return LocalOutput(path)
            except FileNotFoundError:
                self._require_root()
                _make_folders(path.parent)
                return LocalOutput(path)

    def open_input(self, rel: str) -> pa.NativeFile:
        with explained("read", str(self.root / rel)):
            return pa.OSFile(str(self.root / rel), "rb")

    def info(self, rel: str) -> tuple[int, int] | None:
        with explained("look at", str(self.root / rel)):
            try:
                found = (self.root / rel).stat()
            except FileNotFoundError:
                return None
            return found.st_size, found.st_mtime_ns // 1_000_000

    def list(self, folder: str) -> Iterator[tuple[str, int, int]]:
        self._require_root()
        top = self.root / folder if folder else self.root
        with explained("list", str(top)):
            yield from self._walk(str(top))

    def _walk(self, folder: str) -> Iterator[tuple[str, int, int]]:
        try:
            entries = os.scandir(folder)
        except FileNotFoundError:
            return
        with entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from self._walk(entry.path)
                    continue
                try:
                    found = entry.stat()
                except FileNotFoundError:
                    continue
                yield os.path.relpath(entry.path, self.root), found.st_size, found.st_mtime_ns // 1_000_000

    def delete(self, rel: str) -> None:
        with explained("delete", str(self.root / rel)):
            (self.root / rel).unlink(missing_ok=True)

    def _require_root(self) -> None:
        if not self.root.is_dir():
            raise StorageError(
                f"The ledger folder {self.root} does not exist.",
                advice="Is its volume mounted on this machine? All machines of a cluster must see the same folder.",
            )


class LocalOutput:
    """A file under a temporary name in the folder where it will be. Raises OSError when it cannot be made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary: Path | None = path.with_name(f".{path.name}.tmp")
        os.close(os.open(self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        self.stream: pa.NativeFile = pa.OSFile(str(self._temporary), "wb")

    def publish(self) -> None:
        if self._temporary is None:
            raise ValueError(f"{self._path} was published or discarded before")
        try:
            self.stream.close()
            _sync(self._temporary)
            _rename_new(self._temporary, self._path)
            self._temporary = None
            _sync(self._path.parent)
        except OSError as error:
            self.discard()
            raise explain(error, "publish", str(self._path)) from error

    def discard(self) -> None:
        if self._temporary is None:
            return
        temporary, self._temporary = self._temporary, None
        with explained("discard", str(temporary)):
            try:
                self.stream.close()
            finally:
                temporary.unlink(missing_ok=True)


def _rename_new(temporary: Path, path: Path) -> None:
    """Rename, but never over an existing file: link and unlink, where the file system has links."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(path)) from error
        temporary.rename(path)
    else:
        temporary.unlink()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it, durably: a folder is only safe when its parent is on disk."""
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)
