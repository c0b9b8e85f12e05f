"""Deletion of files by a sweep: in bounded batches, with a check of the ledger root before each batch."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from metadata.cluster.cluster import Cluster
from metadata.cluster.ledger_root import DELETING

BATCH = 100
BATCH_SECONDS = 5.0
"""Limits of one batch: number of files, and seconds until the root is checked again."""


class Deleter:
    """Deletes files of a cluster's root as long as the cluster owns the root. A context manager.

    Before its first delete the deleter creates a note file in the root, and then reads the mark. At the end it removes the note
    file. A take-over of the root, or a restore over the root, changes the mark and then waits until there is no note file. So
    either the deleter reads the new mark and is refused, or the take-over or restore waits for the deleter.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._note: str | None = None
        self._left = 0
        self._until = 0.0

    def delete(self, path: str) -> None:
        """Delete a file. Raises StorageError. Raises ConfigurationError if this cluster's store does not own the root any more.
        Then the file is not deleted.
        """
        if self._cluster.id is not None and (self._left == 0 or self._cluster.clock.monotonic() >= self._until):
            self._check()
        self._left -= 1
        self._cluster.storage.delete(path)

    def _check(self) -> None:
        if self._note is None:
            self._note = f"{DELETING}-{self._cluster.unique()}"
            self._cluster.storage.publish(self._note, b"")  # empty, because a full disk has no room for content
        until = self._cluster.clock.monotonic() + BATCH_SECONDS
        self._cluster.check_root()
        self._left, self._until = BATCH, until

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._note is not None:
            self._cluster.storage.delete(self._note)
