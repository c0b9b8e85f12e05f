"""The modules that a reading process of Spark imports. Spark starts a fresh process for the plans of every read, so the imports are
a part of the time to the first trigger. The tests count modules and name them, because times depend on the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from txnsegment import connect

BASE = "import sys, json, pyspark.sql.datasource, pyarrow, pyspark.sql.streaming.python_streaming_source_runner\n"
"""What every process has that plans a read of a Python data source."""

PLAN = """
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_txnsegment import DefaultSource
source = DefaultSource({"serviceUrl": sys.argv[1], "topic": "t", "startingOffsets": "earliest"})
"""
STREAM = """
reader = source.streamReader(source.schema())
start = reader.initialOffset()
end = reader.latestOffset(start, ReadAllAvailable())
planned = reader.partitions(start, end)
reader.stop()
"""
BATCH = "planned = source.reader(source.schema()).partitions()\n"

OURS = ("metadata", "ledgers", "spark_txn_source", "spark_txn_sink", "txnsegment", "pulsar_protocol")

NOT_NEEDED = (
    *("pyarrow.compute", "pyarrow.parquet", "pyarrow.fs", "kazoo", "pandas", "prometheus_client"),
    *("spark_txn_sink", "txnsegment", "pulsar_protocol.errors", "spark_txn_source.pulsar", "spark_txn_source.tasks"),
    *("spark_txn_source.cursors", "spark_txn_source.native_scan"),
    *("metadata.maintenance", "metadata.backup", "metadata.write.coordinator", "metadata.client.providers"),
    *("metadata.topics.subscriptions", "metadata.topics.routing", "metadata.cursors.pending_ack"),
    *("metadata.records.persistent_records", "metadata.instream.buffer", "metadata.instream.client"),
    *("ledgers.avro.columns", "ledgers.parts", "ledgers.part_reader", "ledgers.part_writer", "ledgers.remote_files"),
)
"""Modules of tasks, of writers, of sweepers, of subscriptions, of persistent topics, of registered schemas, of remote storage."""

OF_SNAPSHOTS = ("fastavro", "ledgers.snapshots", "ledgers.snapshot_extents", "ledgers.avro.parsing")
"""Modules that only a plan over a snapshot needs."""


def imported(code: str, *words: str) -> set[str]:
    """Return the modules that a fresh process imports by `code`, beyond `BASE`."""
    whole = f"{BASE}before = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))\n"
    worker = {**os.environ, "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER"}
    del worker["TXNSEGMENT_REPORT_SECONDS"]  # a user's worker reports its figures
    found = subprocess.run(
        [sys.executable, "-c", whole, *words], capture_output=True, check=False, cwd=Path(__file__).parents[2], env=worker
    )
    assert found.returncode == 0, found.stderr.decode()
    return set(json.loads(found.stdout.splitlines()[-1]))


def among(modules: set[str], names: tuple[str, ...]) -> list[str]:
    """Return those of the modules that are in `names`, or in a package of `names`."""
    return sorted(m for m in modules if any(m == name or m.startswith(f"{name}.") for name in names))


def test_the_import_of_the_stream_reader_loads_only_what_a_plan_needs() -> None:
    modules = imported("import spark_txn_source.stream, metadata.client.client")
    assert not among(modules, NOT_NEEDED + OF_SNAPSHOTS)
    assert len(among(modules, OURS)) <= 100


@pytest.mark.parametrize("read", [STREAM, BATCH], ids=["stream", "batch"])
def test_a_first_plan_loads_only_what_a_plan_needs(tmp_path: Path, read: str) -> None:
    url = f"file://{tmp_path}/cluster"
    with connect(url) as cluster:
        cluster.topics.create("t", schema="k string, n bigint")
        with cluster.producer("t") as producer:
            producer.send({"k": "a", "n": 1})
    modules = imported(f"{PLAN}{read}\nassert planned", url)
    assert not among(modules, NOT_NEEDED)
    assert len(among(modules, OURS)) <= 119
