"""How a sweep deletes files: in bounded batches, and the ledger root is looked at again before each of them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from metadata.cluster.cluster import Cluster
from metadata.cluster.ledger_root import DELETING

BATCH = 100
BATCH_SECONDS = 5.0
"""How many files are deleted, and for how long, before the root is looked at again."""


class Deleter:
    """Deletes files of a cluster's root for as long as the root is the cluster's. A context manager.

    Before its first delete it leaves a file in the root that says that it deletes, and takes it away at the end. Who takes the root
    over, or restores a backup over it, changes the mark and then waits until there is no such file. So either this sweep reads the
    new mark and is refused, or it is waited for.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._note: str | None = None
        self._left = 0
        self._until = 0.0

    def delete(self, path: str) -> None:
        """Raises ConfigurationError (the root has become another's; nothing more was deleted), StorageError."""
        if self._cluster.id is not None and (self._left == 0 or self._cluster.clock.monotonic() >= self._until):
            self._check()
        self._left -= 1
        self._cluster.storage.delete(path)

    def _check(self) -> None:
        if self._note is None:
            self._note = f"{DELETING}-{self._cluster.unique()}"
            self._cluster.storage.publish(self._note, b"")  # empty, since a full disk has room for nothing else
        until = self._cluster.clock.monotonic() + BATCH_SECONDS
        self._cluster.check_root()
        self._left, self._until = BATCH, until

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._note is not None:
            self._cluster.storage.delete(self._note)
