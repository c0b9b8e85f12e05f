"""The streaming job's input: Parquet files, two for each batch, written in order; and how far a job has come."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq

from conformance.chaos.driver import SCHEMA, batch_of
from conformance.chaos.history import KEYS, written

FILES = 2
"""Files of one batch. Each has keys of its own, so that two tasks write the batch and each key's rows stay with one."""
EPOCH = 1_700_000_000
"""Spark takes files in the order of their modification times, which are made: one second for each."""

__all__ = ["EPOCH", "FILES", "SCHEMA", "add_batches"]


def add_batches(folder: Path, first: int, count: int) -> None:
    """Write the files of batches `first` to `first + count - 1`, each whole under its name at once."""
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(first, first + count):
        for part in range(FILES):
            rows = [r for r in written(batch) if (r[1] % KEYS) % FILES == part]
            made = folder / f".{batch}-{part}"
            with pq.ParquetWriter(made, batch_of(rows).schema) as writer:
                writer.write_batch(batch_of(rows))
            at = EPOCH + batch * FILES + part
            os.utime(made, (at, at))
            made.rename(folder / f"batch-{batch:06d}-{part}.parquet")
