"""Tests of the metrics of many processes: which processes have files in PROMETHEUS_MULTIPROC_DIR, and when they are removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from txnsegment.sweeping import drop_gauges_of_the_dead


def run(code: str, folder: Path) -> int:
    """Run the code in a process, wait for its end, and return its pid."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment)
    assert process.wait(timeout=60) == 0
    return process.pid


def test_imports_of_a_task_create_no_metrics_files(tmp_path: Path) -> None:
    """Executors import the modules of the pickled readers and writers, but count no metrics."""
    run(
        "import sys, pyspark_txnsegment, spark_txn_source.batch, spark_txn_source.stream, spark_txn_source.tasks\n"
        "import spark_txn_sink.writer, spark_txn_sink.staging\n"
        "assert 'prometheus_client' not in sys.modules",
        tmp_path,
    )
    assert not list(tmp_path.iterdir())


def test_a_worker_of_spark_counts_only_in_the_folder_that_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    alone = "import os, sys; del os.environ['PROMETHEUS_MULTIPROC_DIR']\n"
    count = (
        "from metadata.common import metrics; metrics.READ_LAG.labels(topic='t').set(7); metrics.ROWS_WRITTEN.inc(5)\n"
        "metrics.COMMIT_SECONDS.observe(1)\n"
        "with metrics.INDEX_QUERY_SECONDS.time(): pass\n"
    )
    run(f"{alone}{count}assert 'prometheus_client' not in sys.modules", tmp_path)
    assert not list(tmp_path.iterdir())
    run(f"{alone}import prometheus_client\n{count}assert metrics.ROWS_WRITTEN._value.get() == 5", tmp_path)
    run(count, tmp_path)
    assert list(tmp_path.glob("counter_*.db"))


def test_gauges_of_dead_processes_go_and_counters_stay(tmp_path: Path) -> None:
    code = "from metadata.common import metrics; metrics.READ_LAG.labels(topic='t').set(7); metrics.ROWS_WRITTEN.inc(5)"
    pid = run(code, tmp_path)
    mine = tmp_path / f"gauge_livemostrecent_{os.getpid()}.db"
    dead = tmp_path / f"gauge_livemostrecent_{pid}.db"
    counter = tmp_path / f"counter_{pid}.db"
    mine.write_bytes(dead.read_bytes())
    drop_gauges_of_the_dead(tmp_path)
    assert not dead.exists()
    assert mine.exists()
    assert counter.exists()
    drop_gauges_of_the_dead(tmp_path)
    assert mine.exists()
