"""The input of streaming queries that may die anywhere: a Parquet file for each batch, laid down one by one.

Spark notes first which files are new (`sources/0/N` in the checkpoint), then that micro-batch N takes what is noted (`offsets/N`).
If a driver ends between the two, the next one notes one more file, if there is one, and its micro-batch N takes both. So that a
batch is one micro-batch whatever dies, the next file is laid down only once micro-batch N is committed (`commits/N`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

EPOCH = 1_700_000_000
"""Spark takes files in the order of their modification times, which are made: one second for each."""


def lay_down(folder: Path, batch: int, rows: pa.Table) -> None:
    """Write the file of a batch, whole under its name at once."""
    made = folder / f".{batch}"
    pq.write_table(rows, made)
    os.utime(made, (EPOCH + batch, EPOCH + batch))
    made.rename(folder / f"batch-{batch:06d}.parquet")


class Singly:
    """The batches of one query, counted from 0. `lay_down` is called for each in turn."""

    def __init__(self, checkpoint: Path, lay_down: Callable[[int], None]) -> None:
        self._commits, self._lay_down = checkpoint / "commits", lay_down
        self.laid = 0
        """Batches that were laid down."""

    def feed(self, batches: int) -> bool:
        """Lay down the next of so many batches in all, if the one before it is committed. Whether it did."""
        if self.laid == batches or not self.committed():
            return False
        self._lay_down(self.laid)
        self.laid += 1
        return True

    def committed(self) -> bool:
        """Whether all that was laid down is."""
        return self.laid == 0 or (self._commits / str(self.laid - 1)).exists()
