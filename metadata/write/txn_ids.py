"""The allocation of transaction ids in blocks (protocol.md section 4)."""

from __future__ import annotations

import os
import threading
from collections import deque

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, UnknownOutcome
from metadata.records import paths
from metadata.records.records import TcSequence
from metadata.store.contract import ABSENT, look, until


class TxnIds:
    """Allocates transaction ids. It takes a block of ids with one CAS. Ids that a process leaves unused stay unused."""

    def __init__(self, cluster: Cluster, coordinator: int = 0) -> None:
        self._cluster, self._coordinator = cluster, coordinator
        self._begin_process()

    def _begin_process(self) -> None:
        """Initialise the blocks of this process. A forked child takes new blocks, because its parent uses the old ones."""
        self._pid = os.getpid()
        self._next = self._end = 0
        self._ahead: deque[int] = deque()  # the first id of each block that was taken in advance
        self._lock = threading.Lock()

    def next(self) -> str:
        """Allocate an unused transaction id. Raises StoreError if a new block is needed and cannot be taken."""
        if os.getpid() != self._pid:
            self._begin_process()
        while True:
            with self._lock:
                if self._next == self._end and self._ahead:
                    self._next = self._ahead.popleft()
                    self._end = self._next + self._cluster.settings.txn_id_block
                if self._next < self._end:
                    self._next += 1
                    return f"{self._coordinator}_{self._next - 1}"
            self._add()  # without the lock, because the store may be slow

    @property
    def low(self) -> bool:
        """Whether at least half of the last block is used, and no further block was taken. If so, the caller should call
        `refill`.
        """
        with self._lock:
            return not self._ahead and 2 * (self._end - self._next) <= self._cluster.settings.txn_id_block

    def refill(self) -> None:
        """Take the next block in advance if `low`, so that no commit waits for a block. `next` may be called at the same time."""
        if self.low:
            self._add()

    def _add(self) -> None:
        block = self._take()
        with self._lock:
            self._ahead.append(block)

    def _take(self) -> int:
        key, size = paths.tc_sequence(self._coordinator), self._cluster.settings.txn_id_block

        def step() -> int | None:
            record = look(self._cluster.store, key)
            first = 0 if record is None else TcSequence.of(record).next
            try:
                self._cluster.store.put(key, TcSequence(next=first + size).to_bytes(), expect=ABSENT if record is None else record)
            except (BadVersion, UnknownOutcome):
                return None  # after a lost reply the block may be taken; it stays unused, because no id may be used twice
            return first

        return until(step)
