"""The cache of snapshot heads of a process. It keeps the last head that was read for each segment, up to a limit in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ledgers.storage import LedgerStorage

if TYPE_CHECKING:
    from ledgers.snapshots import SnapshotHead

MOST_BYTES: Final = 16 * 2**20
"""Limit for the sum of the cached heads' file sizes. In memory a head takes up to ten times the size of its file, as measured by
`make longevity`.
"""


@dataclass
class SnapshotHeads:
    """A cache with one head for each segment. The file of a head never changes, so a cached head stays valid. When another head of
    the same segment is read, it replaces the cached one. Several threads may use the cache.
    """

    storage: LedgerStorage
    most_bytes: int = MOST_BYTES
    _kept: OrderedDict[str, SnapshotHead] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def kept(self) -> int:
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """The sum of the sizes of the kept heads' files."""
        return self._bytes

    def get(self, path: str) -> SnapshotHead:
        """Return the head in the file `path`, relative to the ledger root. Raises CorruptSnapshot, StorageError."""
        segment = path.rpartition("/")[0]
        with self._lock:
            known = self._kept.get(segment)
            if known is not None and known.path == path:
                self._kept.move_to_end(segment)
                return known
        from ledgers import snapshots  # imported late, because a process that reads no snapshot needs no Avro

        head = snapshots.read_head(self.storage, path)
        with self._lock:
            before = self._kept.pop(segment, None)
            self._bytes += head.file_bytes - (0 if before is None else before.file_bytes)
            self._kept[segment] = head
            while self._bytes > self.most_bytes and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= dropped.file_bytes
        return head
