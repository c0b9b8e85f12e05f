"""The workloads of delays: small micro-batches, the way from a commit to a running query, and many small commits."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from benchmarks.peers.clients import Commit, committer, create
from benchmarks.peers.rows import digest
from benchmarks.peers.systems import System
from benchmarks.peers.timed import Timed, median, spread
from benchmarks.peers.workloads import RUNS, Cell, Mismatch, Result, stream_out

WARM: Final = 10
"""Micro-batches at the start of a query that do not count, because workers and connections start in them."""
GAP: Final = 0.15
"""Seconds from one commit of the workload `delay` to the next one."""
_SECONDS: Final = 600.0


def trigger_1(cell: Cell) -> Result:
    return _small_triggers(cell, 1)


def trigger_1000(cell: Cell) -> Result:
    return _small_triggers(cell, 1000)


def _small_triggers(cell: Cell, rows: int) -> Result:
    """Measure the triggers of a query whose micro-batches have so many rows."""
    table, checkpoint, wanted = cell.table("small"), cell.checkpoint(), WARM + cell.triggers
    cell.system.prepare(table)
    enough = threading.Event()
    with cell.timed() as timed:
        writer = cell.system.write_stream(_generated(cell, rows), table).option("checkpointLocation", str(checkpoint))
        query = writer.start()
        try:
            while not enough.wait(0.1):
                if query.exception():
                    raise query.exception()
                if (last := query.lastProgress) and last["batchId"] >= wanted:
                    enough.set()
        finally:
            query.stop()
    progress = [one for one in query.recentProgress if WARM <= one["batchId"] < wanted]
    found = [one["durationMs"]["triggerExecution"] for one in progress]
    steps = {name: statistics.median(one["durationMs"].get(name, 0) for one in progress) for name in ("addBatch", "commitBatch")}
    cell.system.drop(table)
    shutil.rmtree(checkpoint)
    processor = timed.processor / (query.lastProgress["batchId"] + 1)  # start-up included, in equal parts
    return {"seconds": statistics.median(found) / 1000, "processor": round(processor, 4), "triggers": spread(found), **steps}


def _generated(cell: Cell, rows: int) -> DataFrame:
    payload = "concat(unhex(sha2(cast(value as string), 512)), substring(unhex(sha2(concat('x', value), 512)), 1, 36))"
    source = cell.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows).option("numPartitions", 1).load()
    return source.selectExpr("value id", "concat('key-', value % 1000) k", f"{payload} payload", "current_timestamp() ts")


def delay(cell: Cell) -> Result:
    """Measure the time from the return of a commit, in a process of its own, to the row's arrival in a running query."""
    table, checkpoint, out = cell.table("delay"), cell.checkpoint(), cell.home / f"{cell.table('commits')}.json"
    create(cell.system, table)
    arrived: dict[int, float] = {}
    warm = threading.Event()
    count = WARM + cell.commits

    def see(batch: DataFrame, _: int) -> None:
        ids = [row["id"] for row in batch.select("id").collect()]
        now = time.time()
        for id_ in ids:
            arrived.setdefault(id_, now)
        if len(arrived) >= WARM:
            warm.set()

    writer = cell.system.read_stream(cell.spark, table).writeStream.foreachBatch(see)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    command = [sys.executable, "-m", "benchmarks.peers.cell", "commits", *sys.argv[2:], table, str(count), str(out)]
    with cell.timed() as timed, subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        deadline = time.monotonic() + _SECONDS
        while not warm.wait(0.1) and time.monotonic() < deadline:
            _raise_failure(query)
        process.stdin.close()  # now the commits that count
        while len(arrived) < count and time.monotonic() < deadline:
            _raise_failure(query)
            time.sleep(0.05)
    query.stop()
    triggers = [one["durationMs"] for one in query.recentProgress if one["numInputRows"]]
    returned = json.loads(out.read_text())
    out.unlink()
    if len(arrived) != count:
        raise Mismatch(f"{cell.system.name}: {len(arrived)} of {count} rows arrived within {_SECONDS:.0f} s")
    found = [(arrived[number] - at) * 1000 for number, at in enumerate(returned["at"]) if number >= WARM]
    cell.system.drop(table)
    shutil.rmtree(checkpoint)
    took = spread(found)
    return {
        "seconds": took["p50"] / 1000,
        "processor": round(timed.processor / count, 4),
        "delays": took,
        "commits": spread(returned["milliseconds"][WARM:]),
        "steps": {name: statistics.median(one.get(name, 0) for one in triggers) for name in triggers[-1]},
    }


def commit_rows(system: System, table: str, count: int, out: Path) -> None:
    """Commit `count` rows, one after the other. After the first rows, wait until standard input ends. Write the moments at which
    the commits returned, and their milliseconds, as JSON.
    """
    commit = committer(system, table)
    at: list[float] = []
    milliseconds: list[float] = []
    for number in range(count):
        if number == WARM:
            sys.stdin.read()
        started = time.time()
        commit(number)
        at.append(time.time())
        milliseconds.append((at[-1] - started) * 1000)
        time.sleep(max(0.0, GAP - (time.time() - started)))
    out.write_text(json.dumps({"at": at, "milliseconds": milliseconds}))


def _raise_failure(query: Any) -> None:
    if query.exception():
        raise query.exception()


def growth(cell: Cell) -> Result:
    """After many commits of one row each: the plan of a batch read, the read, a query for one row, a stream from the beginning, and
    a stream that goes on after one commit more. The same after a compaction, if the system has one.
    """
    found: dict[str, Result] = {}
    for count in cell.growth:
        table = cell.table("growth")
        create(cell.system, table)
        commit = committer(cell.system, table)
        with cell.timed() as built:
            for number in range(count):
                commit(number)
        one: Result = {"commits_per_second": round(count / built.seconds, 1), "as_left": _after(cell, table, count, commit)}
        steps = cell.system.compaction(table)
        for name, step in steps.items():
            with cell.timed() as timed:
                step()
            one[name] = round(timed.seconds, 2)
        if steps:
            one["compacted"] = _after(cell, table, count + 1, commit)
        found[str(count)] = one
        cell.system.drop(table)
    last = found[str(cell.growth[-1])]["as_left"]
    return {"seconds": last["read"], "processor": last["read_processor"], "counts": found}


def _after(cell: Cell, table: str, count: int, commit: Commit) -> Result:
    """Measure a table of so many commits. This adds one commit more."""

    def reads() -> Iterator[Timed]:
        for _ in range(1 + RUNS):
            with cell.timed() as timed:
                rows, _hash = digest(cell.system.read(cell.spark, table))
            if rows != count:
                raise Mismatch(f"{cell.system.name}: {rows} rows after {count} commits")
            yield timed

    def plan() -> float:
        """Return the seconds from the call of the reader to the plan of its tasks."""
        with cell.timed() as timed:
            rows: Any = cell.system.read(cell.spark, table)
            rows._jdf.queryExecution().toRdd().getNumPartitions()
        return timed.seconds

    def find() -> float:
        """Return the seconds of a query for one row."""
        with cell.timed() as timed:
            found = cell.system.find(cell.spark, table, f"id = {count // 2}").collect()
        if len(found) != 1:
            raise Mismatch(f"{cell.system.name}: {len(found)} rows have the id {count // 2}")
        return timed.seconds

    cold, *warm = reads()
    planned = statistics.median(plan() for _ in range(RUNS))
    one_row = statistics.median([find() for _ in range(1 + RUNS)][1:])
    checkpoint = cell.checkpoint()
    with cell.timed() as streamed:
        (rows, _hash), _triggers = stream_out(cell, table, checkpoint)
    if rows != count:
        raise Mismatch(f"{cell.system.name}: a stream read {rows} rows after {count} commits")
    size = cell.system.size(table) | {"records": cell.system.records()}
    commit(count)
    with cell.timed() as went_on:
        (rows, _hash), triggers = stream_out(cell, table, checkpoint)
    if rows != 1:
        raise Mismatch(f"{cell.system.name}: a stream that goes on after one commit of one row read {rows} rows")
    shutil.rmtree(checkpoint)
    read = median(warm)
    return {
        "cold": round(cold.seconds, 3),
        "read": round(read.seconds, 3),
        "read_processor": round(read.processor, 3),
        "plan": round(planned, 3),
        "one_row": round(one_row, 3),
        "stream": round(streamed.seconds, 3),
        "goes_on": round(went_on.seconds, 3),
        "latest_offset": triggers[0]["latestOffset"],
        "trigger": triggers[0]["triggerExecution"],
        **size,
    }
