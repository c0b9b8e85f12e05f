"""A disk in memory that distinguishes durable from visible content, by the rules of POSIX.

- The content of a file is durable after `sync` of the file. A power cut before this `sync` leaves one of four contents: that of the
  previous `sync` (nothing if there was none), a part of the new content, zeros in place of the new content, or all of it.
- A change of an entry of a folder (a name is added, replaced or removed) is durable after `sync_folder` of that folder. A power cut
  before this `sync_folder` leaves any subset of the changes since the previous `sync_folder`.
- A folder exists after a power cut if every entry on the path to the folder was durable or was left by the power cut.
"""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from ledgers.disk import FileInfo

Pick = Callable[[int], int]
"""A function that takes n and returns a choice from 0 to n - 1: what a power cut leaves. Choice 0 leaves the least content, and
choice n - 1 the most.
"""


@dataclass(eq=False)
class _File:
    content: bytes = b""
    synced: bytes | None = None
    mtime_ms: int = 0


@dataclass(eq=False)
class _Folder:
    """A folder. `entries`: its visible entries. `durable`: its entries at the last `sync_folder`. `pending`: the changes since
    then, one dict for each call of the disk: name -> the new entry, or None if the entry was removed.
    """

    entries: dict[str, _File | _Folder] = field(default_factory=dict)
    durable: dict[str, _File | _Folder] = field(default_factory=dict)
    pending: list[dict[str, _File | _Folder | None]] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class FrozenFile:
    content: bytes
    synced: bytes | None
    mtime_ms: int


@dataclass(frozen=True, eq=False)
class FrozenFolder:
    """A folder at one moment. `durable`, `pending`: as in `_Folder`. `_frozen` creates it empty, and fills both fields later."""

    durable: dict[str, Frozen] = field(default_factory=dict)
    pending: list[dict[str, Frozen | None]] = field(default_factory=list)


Frozen = FrozenFile | FrozenFolder


@dataclass
class _Stream:
    """The output stream of a file, for pyarrow."""

    disk: SimulatedDisk
    file: _File
    path: Path
    closed: bool = False
    position: int = 0

    def write(self, data: Any) -> int:
        some = bytes(data)
        self.disk.append(self.file, some, self.path)
        self.position += len(some)
        return len(some)

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Do nothing, since the stream has no buffer."""

    def close(self) -> None:
        self.closed = True


class SimulatedDisk:
    """Implements `ledgers.disk.Disk` in memory. `told`: a function that is called after each change, with the kind of the change
    and its path as one text.

    `mirrored`: a folder. Its direct subfolders are also created on the real disk, because SQLite writes there.
    """

    def __init__(self, now_ms: Callable[[], int], *, mirrored: Path | None = None) -> None:
        self._now_ms = now_ms
        self._mirrored = mirrored
        self._root = _Folder()
        self._lock = threading.RLock()
        self.told: Callable[[str], None] = lambda what: None

    # --- ledgers.disk.Disk -----------------------------------------------------------------------------------------

    def create(self, path: Path, mode: int = 0o644) -> pa.NativeFile:
        with self._lock:
            file = _File(mtime_ms=self._now_ms())
            self._add(path, file)
        self.told(f"create {path}")
        return pa.PythonFile(_Stream(self, file, path), mode="w")

    def append(self, file: _File, data: bytes, path: Path) -> None:
        """Append bytes that a stream has written."""
        with self._lock:
            file.content += data
            file.mtime_ms = self._now_ms()
        self.told(f"write {path}")

    def open(self, path: Path) -> pa.NativeFile:
        with self._lock:
            return pa.BufferReader(self._file(path).content)

    def sync(self, path: Path) -> None:
        with self._lock:
            file = self._file(path)
            file.synced = file.content
        self.told(f"sync {path}")

    def sync_folder(self, path: Path) -> None:
        with self._lock:
            folder = self._folder(path)
            folder.durable, folder.pending = dict(folder.entries), []
        self.told(f"sync folder {path}")

    def together(self, syncs: Sequence[Callable[[], None]]) -> None:
        for one in syncs:
            one()

    def link(self, path: Path, new: Path) -> None:
        with self._lock:
            self._add(new, self._file(path))
        self.told(f"link {path} as {new}")

    def rename(self, path: Path, new: Path) -> None:
        with self._lock:
            file, folder = self._file(path), self._folder(path.parent)
            if folder is not self._folder(new.parent):
                raise OSError(errno.EXDEV, "files of this project are renamed within their folder", str(path))
            del folder.entries[path.name]
            folder.entries[new.name] = file
            folder.pending.append({path.name: None, new.name: file})
        self.told(f"rename {path} to {new}")

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._file(path)
            folder = self._folder(path.parent)
            del folder.entries[path.name]
            folder.pending.append({path.name: None})
        self.told(f"unlink {path}")

    def make_folder(self, path: Path, mode: int = 0o777) -> None:
        with self._lock:
            self._add(path, _Folder())
            if path.parent == self._mirrored:
                path.mkdir(mode)
        self.told(f"make folder {path}")

    def is_folder(self, path: Path) -> bool:
        with self._lock:
            return isinstance(self._find(path), _Folder)

    def info(self, path: Path) -> FileInfo:
        with self._lock:
            found = self._find(path)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return (len(found.content), found.mtime_ms) if isinstance(found, _File) else (0, 0)

    def entries(self, folder: Path) -> Iterator[tuple[str, FileInfo | None]]:
        with self._lock:
            found = self._folder(folder).entries
            listed = [(n, (len(f.content), f.mtime_ms) if isinstance(f, _File) else None) for n, f in found.items()]
        yield from listed

    # --- files and folders -----------------------------------------------------------------------------------------

    def _find(self, path: Path) -> _File | _Folder | None:
        found: _File | _Folder | None = self._root
        for name in path.parts[1:]:
            found = found.entries.get(name) if isinstance(found, _Folder) else None
        return found

    def _file(self, path: Path) -> _File:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(found, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return found

    def _folder(self, path: Path) -> _Folder:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        if isinstance(found, _File):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return found

    def _add(self, path: Path, what: _File | _Folder) -> None:
        folder = self._folder(path.parent)
        if path.name in folder.entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        folder.entries[path.name] = what
        folder.pending.append({path.name: what})

    # --- power cuts ------------------------------------------------------------------------------------------------

    def settle(self, folder: Path) -> None:
        """Create a folder and its missing parents, and make them durable, as if they had existed before the scenario."""
        for path in (*reversed(folder.parents), folder):
            if not self.is_folder(path):
                self._add(path, _Folder())
                self.sync_folder(path.parent)

    def is_there(self, path: Path) -> bool:
        """Return whether the file or folder exists."""
        with self._lock:
            return self._find(path) is not None

    def freeze(self) -> FrozenFolder:
        """Return a copy of the disk at this moment. From the copy, `after_a_cut` can make each state that a power cut at this
        moment can leave.
        """
        with self._lock:
            return _frozen(self._root)

    @classmethod
    def after_a_cut(
        cls, frozen: FrozenFolder, pick: Pick, now_ms: Callable[[], int], *, mirrored: Path | None = None
    ) -> SimulatedDisk:
        """Return a disk in a state that a power cut can leave. `pick` chooses the state. All content of the returned disk is
        durable.
        """
        disk = cls(now_ms, mirrored=mirrored)
        root = _left(frozen, pick, {})
        assert isinstance(root, _Folder)
        disk._root = root
        return disk

    @classmethod
    def after_a_kill(cls, frozen: FrozenFolder, now_ms: Callable[[], int], *, mirrored: Path | None = None) -> SimulatedDisk:
        """Return the disk after its process was killed. All visible content stays. What was not durable is still not durable."""
        disk = cls(now_ms, mirrored=mirrored)
        root = _kept(frozen, {})
        assert isinstance(root, _Folder)
        disk._root = root
        return disk

    def fingerprint(self) -> tuple[Any, ...]:
        """Return all visible names and contents as a tuple. Two disks with the same fingerprint show the same files."""
        return _printed(self._root)


def _frozen(root: _Folder) -> FrozenFolder:
    seen: dict[int, Frozen] = {}

    def of(what: _File | _Folder) -> Frozen:
        if id(what) not in seen:
            if isinstance(what, _File):
                seen[id(what)] = FrozenFile(what.content, what.synced, what.mtime_ms)
            else:
                made = FrozenFolder()
                seen[id(what)] = made
                made.durable.update({name: of(found) for name, found in what.durable.items()})
                made.pending.extend({n: None if f is None else of(f) for n, f in change.items()} for change in what.pending)
        return seen[id(what)]

    found = of(root)
    assert isinstance(found, FrozenFolder)
    return found


def _kept(what: Frozen, seen: dict[int, _File | _Folder]) -> _File | _Folder:
    """Return a file or folder as it was when it was frozen. `seen`: the files and folders returned so far, by the id of the frozen
    object, so that a file with two names stays one file.
    """
    if id(what) not in seen:
        if isinstance(what, FrozenFile):
            seen[id(what)] = _File(what.content, what.synced, what.mtime_ms)
        else:
            durable = {name: _kept(found, seen) for name, found in what.durable.items()}
            pending = [{n: None if f is None else _kept(f, seen) for n, f in change.items()} for change in what.pending]
            entries: dict[str, _File | _Folder | None] = {**durable}
            for change in pending:
                entries |= change
            seen[id(what)] = _Folder({n: found for n, found in entries.items() if found is not None}, durable, pending)
    return seen[id(what)]


def _left(what: Frozen, pick: Pick, seen: dict[int, _File | _Folder]) -> _File | _Folder:
    """Return a file or folder in a state that a power cut can leave. `pick` chooses the state. `seen`: the files and folders
    returned so far, by the id of the frozen object, so that a file with two names has one content.
    """
    if id(what) not in seen:
        if isinstance(what, FrozenFile):
            content = _content(what, pick)
            seen[id(what)] = _File(content, content, what.mtime_ms)
        else:
            kept = dict(what.durable)
            for change in what.pending:
                if pick(2):
                    kept.update({name: found for name, found in change.items() if found is not None})
                    for name in [name for name, found in change.items() if found is None]:
                        kept.pop(name, None)
            entries = {name: _left(found, pick, seen) for name, found in kept.items()}
            seen[id(what)] = _Folder(entries, dict(entries))
    return seen[id(what)]


def _content(file: FrozenFile, pick: Pick) -> bytes:
    if file.synced == file.content:
        return file.content
    kinds = [file.synced or b"", file.content[: len(file.content) * 2 // 3], bytes(len(file.content)), file.content]
    return kinds[pick(len(kinds))]


def _printed(what: _File | _Folder) -> tuple[Any, ...]:
    if isinstance(what, _File):
        return (what.content,)
    return tuple((name, _printed(found)) for name, found in sorted(what.entries.items()))


def all_picks(limit: int) -> Iterator[Callable[[], Pick]]:
    """Yield a function for each possible sequence of choices, but for at most `limit` sequences. The function returns a `Pick` that
    makes the choices of its sequence. The caller must use each function before it asks for the next one, because the calls of the
    `Pick` show which choices exist.
    """
    chosen: list[tuple[int, int]] = []  # (choice, number of possible choices) of each call of the current `Pick`

    def picker() -> Pick:
        at = itertools.count()

        def pick(of: int) -> int:
            i = next(at)
            if i == len(chosen):
                chosen.append((0, of))
            return chosen[i][0]

        return pick

    for _ in range(limit):
        yield picker
        while chosen and chosen[-1][0] + 1 == chosen[-1][1]:
            chosen.pop()
        if not chosen:
            return
        chosen[-1] = (chosen[-1][0] + 1, chosen[-1][1])
