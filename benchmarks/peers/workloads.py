"""The workloads of throughput: batch writes and reads, streaming writes and reads, and a query of one column."""

from __future__ import annotations

import shutil
import statistics
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.peers.rows import COLUMNS, SCHEMA, batches_of, counted, digest, make_rows
from benchmarks.peers.systems import System
from benchmarks.peers.timed import Timed, median, spread

Result = dict[str, Any]
RUNS: Final = 3
"""Runs of a read. The first run counts by itself, as the cold one."""


class Mismatch(Exception):
    """The rows in a system are not those that were written to it."""


@dataclass
class Cell:
    """One workload with one system. `commits`: the commits of the workload `delay`. `triggers`: the counted micro-batches of the
    workloads of small triggers. `growth`: the numbers of commits of the workload `growth`.
    """

    system: System
    spark: SparkSession
    home: Path
    rows: int
    commits: int
    triggers: int
    growth: tuple[int, ...]
    servers: tuple[int, ...]

    def timed(self) -> Timed:
        return Timed(self.servers)

    def input(self, *, warm: bool = False) -> Path:
        """Return the folder of the rows; with `warm`, of a tenth of them."""
        return make_rows(self.home, self.rows // 10 if warm else self.rows)

    @property
    def bulk(self) -> str:
        """The table that `prepare` writes as one keyed batch."""
        return f"bulk_{self.rows}"

    @property
    def streamed(self) -> str:
        """The table that `prepare` writes as a stream."""
        return f"streamed_{self.rows}"

    def table(self, kind: str) -> str:
        """Return a new name of a table."""
        return f"{kind}_{uuid.uuid4().hex[:8]}"

    def checkpoint(self) -> Path:
        return self.home / "checkpoints" / uuid.uuid4().hex

    def check(self, found: tuple[int, int], input_: DataFrame) -> None:
        """Raises Mismatch if the count and the hash are not those of the input."""
        if found != (expected := digest(self.system.as_read(input_))):
            raise Mismatch(f"{self.system.name}: count and hash of the rows are {found}, and those of the input are {expected}")


# --- batches


def write_plain(cell: Cell) -> Result:
    return _write(cell, keyed=False)


def write_keyed(cell: Cell) -> Result:
    return _write(cell, keyed=True)


def _write(cell: Cell, *, keyed: bool) -> Result:
    """Write a tenth of the rows, and then all rows, whose seconds count."""
    for warm in (True, False):
        rows, table = cell.spark.read.parquet(str(cell.input(warm=warm) / "halves")), cell.table("written")
        cell.system.prepare(table)
        with cell.timed() as timed:
            cell.system.write(rows, table, keyed=keyed)
        if not warm and cell.system.name != "noop":
            cell.check(digest(cell.system.read(cell.spark, table)), rows)
        size = cell.system.size(table)
        cell.system.drop(table)
    return timed.result() | size


def prepare(cell: Cell) -> Result:
    """Write the tables that the reading workloads read. No part of the comparison."""
    cell.system.prepare(cell.bulk)
    cell.system.write(cell.spark.read.parquet(str(cell.input() / "halves")), cell.bulk, keyed=True)
    cell.system.prepare(cell.streamed)
    _stream_in(cell, cell.input() / "batches", cell.streamed)
    return {"bulk": cell.system.size(cell.bulk), "streamed": cell.system.size(cell.streamed)}


def read(cell: Cell) -> Result:
    """Read all columns of all rows."""
    runs = []
    for _ in range(1 + RUNS):
        with cell.timed() as timed:
            found = digest(cell.system.read(cell.spark, cell.bulk))
        runs.append(timed)
    cell.check(found, cell.spark.read.parquet(str(cell.input() / "halves")))
    return median(runs[1:]).result() | {"cold": round(runs[0].seconds, 3)}


def column(cell: Cell) -> Result:
    """Add up one column over every 1,000th row of the last quarter of the rows."""
    wanted = F.expr(f"id % 1000 = 7 and id > {cell.rows * 3 // 4}")

    def query() -> int:
        total: int = cell.system.scan(cell.spark, cell.bulk).where(wanted).select(F.sum("id")).collect()[0][0]
        return total

    runs = []
    for _ in range(1 + 2 * RUNS):
        with cell.timed() as timed:
            found = query()
        runs.append(timed)
    expected = cell.spark.read.parquet(str(cell.input() / "halves")).where(wanted).select(F.sum("id")).collect()[0][0]
    if found != expected:
        raise Mismatch(f"{cell.system.name}: the sum is {found}, and {expected} of the rows that were written")
    return median(runs[1:]).result() | {"cold": round(runs[0].seconds, 3)}


# --- streams


def stream_write(cell: Cell) -> Result:
    """Write the rows as a stream of micro-batches of 100,000 rows, after a tenth of them by another query."""
    for warm in (True, False):
        folder, table = cell.input(warm=warm), cell.table("stream")
        cell.system.prepare(table)
        with cell.timed() as timed:
            triggers = _stream_in(cell, folder / "batches", table)
        if not warm and cell.system.name != "noop":
            cell.check(digest(cell.system.read(cell.spark, table)), cell.spark.read.parquet(str(folder / "halves")))
        size = cell.system.size(table)
        cell.system.drop(table)
    if len(triggers) != batches_of(cell.rows):
        raise Mismatch(f"{cell.system.name}: {len(triggers)} micro-batches")
    return timed.result() | size | {"triggers": spread(triggers), "first_trigger": triggers[0]}


def _stream_in(cell: Cell, folder: Path, table: str) -> list[int]:
    """Write the files of a folder as a stream, a micro-batch each. Return the milliseconds of the triggers."""
    checkpoint = cell.checkpoint()
    source = cell.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    writer = cell.system.write_stream(source, table).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    shutil.rmtree(checkpoint)
    return [one["durationMs"]["triggerExecution"] for one in query.recentProgress if one["numInputRows"]]


def stream_read(cell: Cell) -> Result:
    """Read all rows as a stream, from `start()` to the end. `outside`: the seconds outside of the triggers, most of which Spark and
    the source need to start.
    """
    runs, outside, first = [], [], []
    for _ in range(1 + RUNS):
        with cell.timed() as timed:
            found, triggers = stream_out(cell, cell.streamed)
        runs.append(timed)
        outside.append(timed.seconds - sum(one["triggerExecution"] for one in triggers) / 1000)
        first.append(triggers[0]["triggerExecution"])
    cell.check(found, cell.spark.read.parquet(str(cell.input() / "halves")))
    return median(runs[1:]).result() | {
        "cold": round(runs[0].seconds, 3),
        "outside": round(statistics.median(outside[1:]), 3),
        "first_trigger": statistics.median(first[1:]),
        "batches": len(triggers),
    }


def stream_out(cell: Cell, table: str, checkpoint: Path | None = None) -> tuple[tuple[int, int], list[dict[str, int]]]:
    """Read a table as a stream up to its present end. Return the count and the hash of the rows, and for each micro-batch the
    milliseconds of its steps, with `triggerExecution` for the whole. `checkpoint`: kept for a later call, which goes on from it.
    """
    kept = checkpoint or cell.checkpoint()
    rows = cell.system.read_stream(cell.spark, table)
    names = COLUMNS if set(COLUMNS) <= set(rows.columns) else tuple(rows.columns)
    writer = rows.observe("seen", *counted(names)).writeStream.format("noop").option("checkpointLocation", str(kept))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    if checkpoint is None:
        shutil.rmtree(kept)
    count, hash_, triggers = 0, 0, []
    for one in query.recentProgress:
        if one["numInputRows"]:
            seen = one["observedMetrics"]["seen"]
            count, hash_ = count + seen["rows"], hash_ ^ (seen["hash"] or 0)
            triggers.append(one["durationMs"])
    return (count, hash_), triggers


Workload = Callable[[Cell], Result]
