"""The benchmark `make peers`: its cells check what they measure, and its tables show medians. Only txnsegment and Parquet run here,
because the other systems need a download.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.peers import workloads
from benchmarks.peers.environment import JARS, connectors, jars
from benchmarks.peers.systems import KINDS
from benchmarks.peers.tables import markdown
from benchmarks.peers.timed import spread
from benchmarks.peers.workloads import Cell, Mismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def cell_of(name: str, spark: SparkSession, home: Path) -> Cell:
    system = KINDS[name](name, home / "systems" / name, {})
    return Cell(system, spark, home, rows=1000, commits=2, triggers=2, growth=(2,), servers=())


def test_a_cell_finds_the_rows_that_it_wrote(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "RUNS", 1)
    cell = cell_of("txnsegment", spark, tmp_path)
    workloads.prepare(cell)
    for workload in (workloads.write_keyed, workloads.read, workloads.stream_read, workloads.column):
        found = workload(cell)
        assert found["seconds"] > 0
        assert found["processor"] > 0


def test_a_cell_fails_if_a_row_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    cell = cell_of("parquet", spark, tmp_path)
    workloads.prepare(cell)
    next((tmp_path / "systems" / "parquet" / cell.bulk).rglob("*.parquet")).unlink()
    with pytest.raises(Mismatch, match="parquet: count and hash"):
        workloads.read(cell)


def test_the_tables_show_medians_and_ratios_to_txnsegment() -> None:
    def result(system: str, seconds: float, **more: object) -> dict[str, object]:
        return {"workload": "read", "system": system, "seconds": seconds, "processor": 2 * seconds, "cold": 3 * seconds, **more}

    results = [result("txnsegment", s) for s in (1.0, 3.0, 2.0)] + [result("delta", 4.0)]
    results.append({"workload": "read", "system": "parquet", "error": "no space left"})
    lines = markdown(results).splitlines()
    assert lines[0] == "### Batch read of all columns"
    assert lines[4] == "| txnsegment | 2.00 s | 1.00 s to 3.00 s | 1.00 | 4.00 s | 1.00 | cold 6.00 s |"
    assert lines[5] == "| delta | 4.00 s |  | 2.00 | 8.00 s | 2.00 | cold 12.00 s |"
    assert lines[6] == "| parquet | failed | | | | | no space left |"


def test_the_percentiles_of_delays() -> None:
    assert spread([float(n) for n in range(1, 101)]) == {"n": 100, "p50": 50.5, "p95": 96.0, "p99": 100.0, "max": 100.0}


def test_the_jars_of_an_earlier_run_are_taken_without_maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def downloads(goal: list[str], done: object, what: str) -> None:
        folder = Path(next(word for word in goal if word.startswith("-DoutputDirectory=")).partition("=")[2])
        for name in ("delta-spark_4.2_2.13-4.4.0.jar", "parquet-common-1.16.0.jar"):
            (folder / name).touch()

    monkeypatch.setattr("benchmarks.peers.environment.run_maven", downloads)
    assert [jar.name for jar in connectors(tmp_path)] == ["delta-spark_4.2_2.13-4.4.0.jar"]
    monkeypatch.delattr("benchmarks.peers.environment.run_maven")
    assert len(jars(tmp_path, "spark")) == 2
    assert set(JARS) == {"spark", "kafka"}
