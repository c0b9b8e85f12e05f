"""Input for streaming queries that may be killed at any time. Each batch is one Parquet file, and each file is one micro-batch.

Spark first records in the checkpoint which files are new (`sources/0/N`). It then records that micro-batch N takes these files
(`offsets/N`). Suppose that the driver dies between the two records, and that there is a further new file by then. The next driver
records that file as well, and its micro-batch N takes both files. To prevent this, the next file is added only after micro-batch N
is committed (`commits/N`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

EPOCH = 1_700_000_000
"""Modification time of the first file, in seconds. Each later file is one second newer, because Spark takes the oldest first."""


def lay_down(folder: Path, batch: int, rows: pa.Table) -> None:
    """Write the file of a batch under a temporary name and rename it, so that Spark never sees a part of the file."""
    made = folder / f".{batch}"
    pq.write_table(rows, made)
    os.utime(made, (EPOCH + batch, EPOCH + batch))
    made.rename(folder / f"batch-{batch:06d}.parquet")


class Singly:
    """Adds the batches of one query, one at a time. `lay_down`: a function that adds the file of one batch. Its argument is the
    number of the batch; the first batch has the number 0.
    """

    def __init__(self, checkpoint: Path, lay_down: Callable[[int], None]) -> None:
        self._commits, self._lay_down = checkpoint / "commits", lay_down
        self.laid = 0
        """Number of batches that were added."""

    def feed(self, batches: int) -> bool:
        """Add the next of `batches` batches if the previous one is committed. Return whether a batch was added."""
        if self.laid == batches or not self.committed():
            return False
        self._lay_down(self.laid)
        self.laid += 1
        return True

    def committed(self) -> bool:
        """Return whether Spark has committed all batches that were added."""
        return self.laid == 0 or (self._commits / str(self.laid - 1)).exists()
