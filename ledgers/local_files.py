"""Ledger files on local disk (or a mounted POSIX file system).

A file is written under a temporary name in its folder, fsynced, and linked to its real name. Then the folder is fsynced.
"""

from __future__ import annotations

import errno
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakKeyDictionary

import pyarrow as pa

from ledgers.disk import Disk, disk
from ledgers.errors import StorageError
from ledgers.io_errors import explain, explained

_MOST_NAMED = 4
"""How many files the error of a publish names. A task may publish hundreds together."""
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


_DURABLE: WeakKeyDictionary[Disk, dict[Path, set[Path]]] = WeakKeyDictionary()
"""The folders of each disk, below each root, whose names this process has made durable. Every task of Spark makes its own
`LocalFiles`, and would sync the parents of all its folders again.
"""


class LocalFiles:
    """Files under the folder `root`. The folder must exist (`create` creates it), so that a volume that is not mounted is an error
    and not an empty root.
    """

    region = ""

    def __init__(self, root: str) -> None:
        self.root = Path(root or "/")
        self._disk = disk()
        self._durable = _DURABLE.setdefault(self._disk, defaultdict(set))[self.root]

    def create(self) -> None:
        with explained("make the ledger folder", str(self.root)):
            make_folders(self._disk, self.root)

    def publish(self, rel: str, data: bytes) -> None:
        output = self.open_output(rel)
        try:
            with explained("write", str(self.root / rel)):
                output.stream.write(data)
            output.publish()
        finally:
            output.discard()

    def replace(self, rel: str, data: bytes) -> None:
        path = self.root / rel
        temporary = temporary_of(path)
        with explained("write", str(path)):
            try:
                stream = self._disk.create(temporary)
            except FileNotFoundError:
                self._make_folders(path.parent)
                stream = self._disk.create(temporary)
            try:
                with stream:
                    stream.write(data)
                self._sync_parents(path.parent)
                self._disk.sync(temporary)
                self._disk.rename(temporary, path)
                self._disk.sync_folder(path.parent)
            except OSError:
                unlink(self._disk, temporary)
                raise

    def open_output(self, rel: str) -> LocalOutput:
        path = self.root / rel
        with explained("write", str(path)):
            try:
                output = LocalOutput(self._disk, path)
            except FileNotFoundError:
                self._make_folders(path.parent)
                output = LocalOutput(self._disk, path)
            try:
                self._sync_parents(path.parent)
            except BaseException:
                output.discard()
                raise
            return output

    def _make_folders(self, folder: Path) -> None:
        """Create the missing folders below the root. `_sync_parents` makes them durable."""
        if folder == self.root:
            self._require_root()
            return
        self._make_folders(folder.parent)
        self._durable.discard(folder)
        _make_folder(self._disk, folder)

    def _sync_parents(self, folder: Path) -> None:
        """Make the folders from `folder` up to the root durable, once each. Another process may have created the folders and not
        have synced their parents yet. If a power failure removes a folder, the files in the folder are lost, too.

        The highest folder is first. So a folder in `_durable` never lies in a folder that is not durable: neither after a sync that
        failed, nor for another thread.
        """
        missing = []
        while folder != self.root and folder not in self._durable:
            missing.append(folder)
            folder = folder.parent
        for one in reversed(missing):
            self._disk.sync_folder(one.parent)
            self._durable.add(one)

    def open_input(self, rel: str) -> pa.NativeFile:
        with explained("read", str(self.root / rel)):
            return self._disk.open(self.root / rel)

    def info(self, rel: str) -> tuple[int, int] | None:
        with explained("look at", str(self.root / rel)):
            try:
                return self._disk.info(self.root / rel)
            except FileNotFoundError:
                return None

    def list(self, folder: str) -> Iterator[tuple[str, int, int]]:
        self._require_root()
        top = self.root / folder if folder else self.root
        with explained("list", str(top)):
            yield from self._walk(top, f"{folder}/" if folder else "")

    def _walk(self, folder: Path, prefix: str) -> Iterator[tuple[str, int, int]]:
        try:
            for name, info in self._disk.entries(folder):
                if info is None:
                    yield from self._walk(folder / name, f"{prefix}{name}/")
                else:
                    yield f"{prefix}{name}", *info
        except FileNotFoundError:
            return

    def delete(self, rel: str) -> None:
        with explained("delete", str(self.root / rel)):
            unlink(self._disk, self.root / rel)

    def _require_root(self) -> None:
        if not self._disk.is_folder(self.root):
            raise StorageError(
                f"The ledger folder {self.root} does not exist.",
                advice="Check that its volume is mounted on this machine. All machines of a cluster must see the same folder.",
            )


class LocalOutput:
    """A file under a temporary name in its final folder. Raises OSError if it cannot be created."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk = disk
        self.path = path
        self._temporary: Path | None = temporary_of(path)
        self.stream: pa.NativeFile = disk.create(self._temporary)

    def publish(self) -> None:
        publish_outputs([self])

    def finish(self) -> tuple[Path, Path]:
        """Close the file. Return its temporary and its final name."""
        if self._temporary is None:
            raise ValueError(f"{self.path} was published or discarded before")
        self.stream.close()
        return self._temporary, self.path

    def published(self) -> None:
        """Note that the file has its final name."""
        self._temporary = None

    def discard(self) -> None:
        if self._temporary is None:
            return
        temporary, self._temporary = self._temporary, None
        with explained("discard", str(temporary)):
            try:
                self.stream.close()
            finally:
                unlink(self.disk, temporary)


def publish_outputs(outputs: Sequence[LocalOutput]) -> None:
    """Publish files of one disk. Raises StorageError; then all of them are discarded that did not get their final names."""
    if not outputs:
        return
    try:
        files = [one.finish() for one in outputs]
        publish_files(outputs[0].disk, files)
        for one in outputs:
            one.published()
    except OSError as error:
        for one in outputs:
            try:
                one.discard()
            except StorageError as other:
                error.add_note(f"{one.path} could not be discarded: {other}")
        named = ", ".join(str(one.path) for one in outputs[:_MOST_NAMED])
        more = f" and {left} more files" if (left := len(outputs) - _MOST_NAMED) > 0 else ""
        raise explain(error, "publish", f"{named}{more}") from error


def temporary_of(path: Path) -> Path:
    """Return a new temporary name in the folder of `path`. It is unique, so files left by crashed writers never collide."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def publish_file(disk: Disk, temporary: Path, path: Path) -> None:
    """Give a written file its final name in the same folder, atomically and durably. No file is replaced: if the name exists,
    FileExistsError is raised. The caller then relies on the existing file, so the folder is synced before the error is raised.
    Other errors are OSErrors.
    """
    publish_files(disk, [(temporary, path)])


def publish_files(disk: Disk, files: Sequence[tuple[Path, Path]]) -> None:
    """Do the work of `publish_file` for several files, each given by its temporary and its final name. Syncs that do not depend on
    each other run together. If a file cannot get its name, the files before it have theirs, durably.
    """
    disk.together([partial(disk.sync, temporary) for temporary, _ in files])
    try:
        for temporary, path in files:
            _rename_new(disk, temporary, path)
    finally:
        disk.together([partial(disk.sync_folder, folder) for folder in dict.fromkeys(path.parent for _, path in files)])


def _rename_new(disk: Disk, temporary: Path, path: Path) -> None:
    """Rename without replacing a file: link the new name, then unlink the old one. If the file system has no links, check that the
    new name is free, then rename.
    """
    try:
        disk.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            disk.info(path)
        except FileNotFoundError:
            disk.rename(temporary, path)
        else:
            raise FileExistsError(errno.EEXIST, "exists", str(path)) from error
    else:
        disk.unlink(temporary)


def make_folders(disk: Disk, folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its missing parents, durably. A folder is durable only when its parent folder is synced.

    All parents are synced, also those of folders that existed before, because another process may have just created these folders.
    Parents that this user cannot read are skipped. `mode`: the permissions of the folder itself.
    """
    for one in reversed(folder.parents):
        _make_folder(disk, one)
    _make_folder(disk, folder, mode)
    for parent in folder.parents:
        try:
            disk.sync_folder(parent)
        except PermissionError:
            continue  # a system folder, in which only another user creates folders


def _make_folder(disk: Disk, folder: Path, mode: int = 0o777) -> None:
    if not disk.is_folder(folder):
        try:
            disk.make_folder(folder, mode)
        except FileExistsError:
            if not disk.is_folder(folder):
                raise


def unlink(disk: Disk, path: Path) -> None:
    """Remove a file if it exists."""
    try:
        disk.unlink(path)
    except FileNotFoundError:
        return
