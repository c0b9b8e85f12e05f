"""Spark reads the same rows, positions and micro-batches before and after compaction, by the source and by scan()."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner

from spark_txn_source.stream import StreamReader
from txnsegment import connect, scan
from txnsegment.cli.app import build
from txnsegment.ddl import parse_schema


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/cluster"


def write(url: str, first: int, last: int) -> None:
    with connect(url) as cluster:
        for k in range(first, last):
            with cluster.begin(app="load", version=k) as txn:
                ids = [k * 10 + i for i in range(7)]
                columns = [pa.array(ids), [f"name {i}" for i in ids], pa.array([[k, None] for _ in ids], pa.list_(pa.int32()))]
                txn.append("t", pa.table(columns, ["id", "name", "n"]))
                txn.commit()
        cluster.sweep()


def batch(spark: SparkSession, url: str, **options: Any) -> list[Row]:
    reader = spark.read.format("txnsegment").option("serviceUrl", url).option("includeMetadata", True).options(**options)
    return reader.load("t").collect()


def scanned(spark: SparkSession, url: str, **options: Any) -> list[Row]:
    return sorted(scan(spark, "t", serviceUrl=url, **options).collect(), key=lambda row: row.id)


def test_compaction_leaves_the_same_rows(spark: SparkSession, url: str, tmp_path: Path) -> None:
    with connect(url) as cluster:
        cluster.topics.create("t", segments=2, key="id", schema="id bigint, name string, n array<int>")
    write(url, 1, 12)
    ranges: list[dict[str, Any]] = [
        {},
        {"startingOffsets": '{"log": 4}', "endingOffsets": '{"log": 9}'},
    ]
    before = [batch(spark, url, **options) for options in ranges]
    scans = [scanned(spark, url, includeMetadata=meta, **options) for meta in (True, False) for options in ranges[:2]]
    micro = _micro_batches(url)
    assert len(micro) > 2
    with connect(url) as cluster:
        compacted = cluster.compact("t")
        assert (compacted.files_after, compacted.rows) == (2, 77)
    write(url, 12, 14)
    late = {"endingOffsets": '{"log": 11}'}
    ranges = [{**late, **options} for options in ranges]
    key = str
    for options, rows in zip(ranges, before, strict=True):
        assert sorted(batch(spark, url, **options), key=key) == sorted(rows, key=key), options
    again = [scanned(spark, url, includeMetadata=meta, **options) for meta in (True, False) for options in ranges[:2]]
    assert again == scans
    # the last micro-batch is left out, because it ended at the former end of the log
    assert _micro_batches(url)[: len(micro) - 1] == micro[:-1]
    result = CliRunner().invoke(build(), ["--service-url", url, "compact", "t"])
    assert result.exit_code == 0, result.output
    assert "became 2" in result.output
    result = CliRunner().invoke(build(), ["--service-url", url, "verify", "t"])
    assert "All are sound." in result.output
    everything = batch(spark, url)
    assert len(everything) == len({row["__messageId"] + row["__segment"] for row in everything}) == 91
    result = CliRunner().invoke(build(), ["--service-url", url, "compact", "t"])
    assert "no small files to join" in result.output


def _micro_batches(url: str) -> list[int]:
    """Return the ends of the micro-batches of a stream with a limit."""
    options = {"path": "t", "serviceUrl": url, "startingOffsets": "earliest", "maxBytesPerTrigger": "9000"}
    reader = StreamReader(options, parse_schema("id bigint, name string, n array<int>"))
    ends, offset = [], reader.initialOffset()
    try:
        while True:
            found = reader.latestOffset(offset, reader.getDefaultReadLimit())
            if found == offset:
                return ends
            ends.append(found["log"])
            offset = found
    finally:
        reader.stop()
