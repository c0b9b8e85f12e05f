"""Measures the memory of a read task: the anonymous memory (RssAnon) of a process that reads a topic of 10 MB, 1 GB or 4 GB."""

from __future__ import annotations

import multiprocessing
from multiprocessing.queues import Queue
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from benchmarks.measure import Report, folder
from ledgers.parts import PartWriter
from ledgers.storage import LedgerStorage
from spark_txn_source.planned import Piece, ReadTask
from spark_txn_source.tasks import read_task

SCHEMA = StructType([StructField("id", LongType()), StructField("payload", BinaryType())])
ROW = 1_000


def rss_anon_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this kernel does not report RssAnon")


def write(root: Path, megabytes: int) -> ReadTask:
    """Write one part of this many incompressible megabytes. Return the task that reads it."""
    storage = LedgerStorage(f"file://{root}/{megabytes}")
    storage.create()
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("payload", pa.binary())])
    writer = PartWriter(storage, "segment", schema, 0, staging_id="bench")
    random = np.random.default_rng(1)
    for start in range(0, megabytes * 1_000_000 // ROW, 10_000):
        rows = min(10_000, megabytes * 1_000_000 // ROW - start)
        data = pa.FixedSizeBinaryArray.from_buffers(pa.binary(ROW), rows, [None, pa.py_buffer(random.bytes(rows * ROW))])
        writer.write(pa.record_batch([np.arange(start, start + rows), data.cast(pa.binary())], schema=schema))
    part = writer.close()
    assert part is not None
    piece = Piece("segment://public/default/t/0000-ffff-0", 1, 0, 1, None, part, 0, len(part.entries) - 1)
    return ReadTask(storage.uri, (piece,), SCHEMA, SCHEMA)


def _read(task: ReadTask | None, results: Queue[float]) -> None:
    """Run a task. Report by how many MB its peak of anonymous memory exceeds the anonymous memory of the idle process. All imports
    are done before the task.
    """
    idle = rss_anon_mb()
    most = idle
    for batch in read_task(task):
        assert batch.num_rows
        most = max(most, rss_anon_mb())
    results.put(most - idle)


def run(*, sizes: tuple[int, ...] = (10, 1_000, 4_000)) -> Report:
    report = Report("Memory of a read task")
    context = multiprocessing.get_context("spawn")
    with folder() as root:
        for size in sizes:
            results: Queue[float] = context.Queue()
            process = context.Process(target=_read, args=(write(root, size), results))
            process.start()
            grown = results.get()
            process.join()
            report.claim(f"RssAnon above an idle worker's, topic of {size:,} MB", grown, 200, at_least=False, unit="MB")
    return report


if __name__ == "__main__":
    run().show()
