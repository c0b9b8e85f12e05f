"""Measures the start of a query: from `start()` to the first trigger, and the first trigger itself, beside a trivial Python source
and a trivial Python sink.

A session is fresh (cold: Spark has started no Python yet) or has run the same queries before (warm: Spark keeps its Python workers
for a minute). In a cold session each of Spark's Python processes imports the modules of the source or sink.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming import DataStreamWriter

from benchmarks.measure import Report, folder, spark_session
from benchmarks.peers.timed import processor_seconds
from benchmarks.trivial import SCHEMA, TrivialSource, rows
from txnsegment import connect

ROWS: Final = 1_000
BATCHES: Final = 8
"""Micro-batches of a writing query."""
WARM_ROUNDS, COLD_ROUNDS = 5, 3
WANTED: Final = 0.2
TRIVIAL, OURS = "trivial", "txnsegment"


@dataclass(frozen=True)
class Start:
    """How a query started, in seconds. `before`: from `start()` to the first trigger. `first`: the first trigger. `later`: the
    median of the later triggers, or 0 if there are none. `processor`: the processor time of all processes from `start()` to the end
    of the query, which says more than the clock on a busy machine.
    """

    before: float
    first: float
    later: float
    processor: float


class Queries:
    """The queries of one Spark session: each reads a small table into Spark's no-op sink, or writes small files."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root, self._turn = spark, root, count()
        spark.dataSource.register(TrivialSource)

    def read(self, system: str) -> Start:
        reader = self._spark.readStream
        if system == TRIVIAL:
            reader = reader.format("trivial").options(rows=ROWS)
        else:
            reader = reader.format("txnsegment").options(serviceUrl=_url(self._root), topic="rows", startingOffsets="earliest")
        return self._started(reader.load().writeStream.format("noop"))

    def write(self, system: str) -> Start:
        given = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self._root / "input"))
        if system == TRIVIAL:
            return self._started(given.writeStream.format("trivial"))
        options = {"serviceUrl": _url(self._root), "topic": f"t{os.getpid()}-{next(self._turn)}", "segments": "4", "keyColumn": "k"}
        return self._started(given.writeStream.format("txnsegment").options(**options))

    def _started(self, writer: DataStreamWriter) -> Start:
        writer = writer.option("checkpointLocation", str(self._root / "checkpoints" / f"{os.getpid()}-{next(self._turn)}"))
        before, began = processor_seconds([os.getpid()]), time.time()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        processor = processor_seconds([os.getpid()]) - before
        triggers = [one for one in query.recentProgress if one["numInputRows"]]
        first, *later = (one["durationMs"]["triggerExecution"] / 1000 for one in triggers)
        at = datetime.fromisoformat(triggers[0]["timestamp"]).timestamp()
        return Start(at - began, first, statistics.median(later) if later else 0.0, processor)


def _url(root: Path) -> str:
    return f"file://{root}/cluster"


def prepare(root: Path) -> None:
    """Write the rows that the queries read and write."""
    given = pa.Table.from_batches([rows(ROWS)])
    (root / "input").mkdir()
    for number in range(BATCHES):
        pq.write_table(given, root / "input" / f"{number}.parquet")
    with connect(_url(root)) as cluster:
        cluster.topics.create("rows", schema=SCHEMA)
        with cluster.begin() as txn:
            txn.append("rows", given)
            txn.commit()


def cold(root: Path, work: str, system: str) -> Start:
    """Start one query in a session of its own, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.start", str(root), work, system]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    return Start(**json.loads(done.stdout.splitlines()[-1]))


def run(*, warm_rounds: int = WARM_ROUNDS, cold_rounds: int = COLD_ROUNDS) -> Report:
    report = Report(f"The start of a query: {warm_rounds} times in a warm session, {cold_rounds} fresh sessions, in turn")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its compiled modules, too
    found: Mapping[tuple[str, str, str], list[Start]] = defaultdict(list)
    with folder() as root:
        prepare(root)
        with spark_session() as spark:
            queries = Queries(spark, root)
            for turn in range(1 + warm_rounds):
                for system in (TRIVIAL, OURS):
                    for work, start in (("read", queries.read), ("write", queries.write)):
                        one = start(system)
                        if turn:
                            found["warm", work, system].append(one)
        for _ in range(cold_rounds):
            for work in ("read", "write"):
                for system in (TRIVIAL, OURS):
                    found["cold", work, system].append(cold(root, work, system))
    for session in ("warm", "cold"):
        for work in ("read", "write"):
            ours, trivial = found[session, work, OURS], found[session, work, TRIVIAL]
            for name, what in (("before", "from start() to the first trigger"), ("first", "first trigger")):
                mine, floor = _median(ours, name), _median(trivial, name)
                told = f"{mine:.2f} s beside {floor:.2f} s"
                report.claim(f"{session} {work}: {what}", mine - floor, WANTED, at_least=False, unit="s more", note=told)
            whole = f"{_median(ours, 'processor'):.2f} s, of the trivial one {_median(trivial, 'processor'):.2f} s"
            report.figures.append((f"{session} {work}, processor time of the query", whole))
            if work == "write":
                later = f"{_median(ours, 'later'):.2f} s, with the trivial sink {_median(trivial, 'later'):.2f} s"
                report.figures.append((f"{session} write, median of the later triggers", later))
    return report


def _median(starts: list[Start], name: str) -> float:
    values: list[float] = [getattr(one, name) for one in starts]
    return statistics.median(values)


def main(root: str, work: str, system: str) -> None:
    """Start one query in this process, and print how it started, in JSON."""
    with spark_session() as spark:
        queries = Queries(spark, Path(root))
        one = queries.read(system) if work == "read" else queries.write(system)
    sys.stdout.write(json.dumps(asdict(one)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
