"""The rows of all cells: (bigint, string key of 100,000, 100 bytes that hardly compress, timestamp)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SCHEMA: Final = "id bigint, k string, payload binary, ts timestamp"
COLUMNS: Final = ("id", "k", "payload", "ts")
BATCH_ROWS: Final = 100_000
"""Rows of a micro-batch of the streaming workloads; fewer if there are not so many rows at all."""
ARROW: Final = pa.schema([("id", pa.int64()), ("k", pa.string()), ("payload", pa.binary()), ("ts", pa.timestamp("us", "UTC"))])


def batches_of(rows: int) -> int:
    """Return the number of micro-batches of so many rows."""
    return max(1, rows // BATCH_ROWS)


def make_rows(folder: Path, rows: int) -> Path:
    """Return a folder with the rows, as two files (`halves`) and as one file for each micro-batch (`batches`). The first call
    writes it.
    """
    import numpy as np

    made = folder / f"rows-{rows}"
    if made.exists():
        return made
    partial = folder / f"rows-{rows}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    (partial / "halves").mkdir(parents=True)
    (partial / "batches").mkdir()
    random = np.random.default_rng(7)
    ids = np.arange(rows)
    payload = pa.FixedSizeBinaryArray.from_buffers(pa.binary(100), rows, [None, pa.py_buffer(random.bytes(rows * 100))])
    keys = pa.array([f"key-{number}" for number in random.integers(0, 100_000, rows)])
    table = pa.table(
        [pa.array(ids), keys, payload.cast(pa.binary()), pa.array(ids * 1000, pa.timestamp("us", "UTC"))], schema=ARROW
    )
    for half in range(2):
        part = table.slice(half * (rows // 2), rows // 2 if half == 0 else None)
        pq.write_table(part, partial / "halves" / f"{half}.parquet", compression="zstd", row_group_size=200_000)
    batches = batches_of(rows)
    for number in range(batches):
        start, end = number * rows // batches, (number + 1) * rows // batches
        file = partial / "batches" / f"{number:05d}.parquet"
        pq.write_table(table.slice(start, end - start), file, compression="zstd")
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark reads the files in the order of their times
    partial.rename(made)
    return made


def counted(columns: tuple[str, ...]) -> tuple[Column, Column]:
    """Return the count of rows, and a hash that no order of the rows changes, as aggregates."""
    return F.count("*").alias("rows"), F.bit_xor(F.xxhash64(*columns)).alias("hash")


def digest(rows: DataFrame) -> tuple[int, int]:
    """Return the count and the hash of all columns of these rows."""
    (found,) = rows.select(*counted(tuple(rows.columns))).collect()
    return found["rows"], found["hash"]
