"""Runs one cell, in the Python that `environment.py` made, and prints its result as the last line, in JSON.

    python -m benchmarks.peers.cell WORKLOAD SYSTEM SPECIFICATION [TABLE COUNT FILE]

The specification is JSON (`Specification`). The last three arguments belong to the workload `commits`, which the workload `delay`
starts: so many commits of one row, in a process without Spark.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers import waiting, workloads
from benchmarks.peers.systems import KINDS, session
from benchmarks.peers.workloads import Cell, Workload

RESULT: Final = "RESULT "
"""The beginning of the line with the result."""

_KAFKA: Final = ("kafka_json", "kafka_avro", "kafka_raw")


@dataclass(frozen=True)
class Case:
    """A workload and the systems that it compares. `prepared`: it reads the tables that the workload `prepare` writes."""

    run: Workload
    systems: tuple[str, ...]
    prepared: bool = False


WORKLOADS: Final[dict[str, Case]] = {
    "write_plain": Case(workloads.write_plain, ("txnsegment", *_KAFKA, "delta", "parquet", "noop")),
    "write_keyed": Case(
        workloads.write_keyed,
        ("txnsegment", "txnsegment_zookeeper", *_KAFKA, "delta", "delta_repartition", "parquet", "parquet_repartition"),
    ),
    "read": Case(workloads.read, ("txnsegment", *_KAFKA, "delta", "parquet"), prepared=True),
    "column": Case(workloads.column, ("txnsegment", *_KAFKA, "delta", "parquet"), prepared=True),
    "stream_write": Case(
        workloads.stream_write, ("txnsegment", "txnsegment_zookeeper", *_KAFKA, "delta", "delta_default", "parquet", "noop")
    ),
    "stream_read": Case(workloads.stream_read, ("txnsegment", *_KAFKA, "delta", "delta_default", "parquet"), prepared=True),
    "trigger_1": Case(
        waiting.trigger_1, ("txnsegment", "txnsegment_zookeeper", "kafka_json", "delta", "delta_default", "parquet", "noop")
    ),
    "trigger_1000": Case(
        waiting.trigger_1000, ("txnsegment", "txnsegment_zookeeper", "kafka_json", "delta", "delta_default", "parquet", "noop")
    ),
    "delay": Case(waiting.delay, ("txnsegment", "txnsegment_zookeeper", "kafka_json", "delta")),
    "growth": Case(waiting.growth, ("txnsegment", "txnsegment_zookeeper", "kafka_json", "delta")),
}


@dataclass(frozen=True)
class Specification:
    """What a cell is told. `servers`: addresses by name. `processes`: the ids of the servers' processes."""

    home: str
    rows: int
    commits: int
    triggers: int
    growth: tuple[int, ...]
    jars: tuple[str, ...]
    servers: Mapping[str, str]
    processes: tuple[int, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main(workload: str, name: str, specification: str, *rest: str) -> None:
    given = Specification(**json.loads(specification))
    home = Path(given.home)
    system = KINDS[name](name, home / "systems" / name, given.servers)
    if workload == "commits":
        table, count, out = rest
        return waiting.commit_rows(system, table, int(count), Path(out))
    spark = session(system, home, [Path(jar) for jar in given.jars], sys.executable)
    growth = tuple(given.growth)
    cell = Cell(system, spark, home, given.rows, given.commits, given.triggers, growth, tuple(given.processes))
    try:
        run = workloads.prepare if workload == "prepare" else WORKLOADS[workload].run
        found = run(cell)
    finally:
        spark.stop()
    print(RESULT + json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
