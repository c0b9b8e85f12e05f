"""Tests of read tasks. They need no Spark. A task joins the batches of many small parts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from conformance.harness.spark_driver import read_batch
from spark_txn_source import tasks
from txnsegment import connect


def read(url: str, topic: str) -> list[pa.RecordBatch]:
    options = {"path": topic, "serviceUrl": url}
    return read_batch(options)


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the URL of a cluster with a topic of 20 transactions of 5 rows each."""
    url = f"file://{tmp_path}/cluster"
    with connect(url) as cluster:
        cluster.topics.create("t", schema=StructType([StructField("n", LongType())]))
        for number in range(20):
            transaction = cluster.begin()
            transaction.append("t", [pa.record_batch({"n": pa.array(range(number * 5, number * 5 + 5), pa.int64())})])
            transaction.commit()
    return url


def test_small_batches_are_joined_in_order(url: str) -> None:
    """One Arrow batch costs Spark as much as a thousand rows, so a stream of small transactions could lag without the joining."""
    found = read(url, "t")
    assert len(found) == 1
    assert found[0].column("n").to_pylist() == list(range(100))


def test_joined_batches_have_a_limit_in_bytes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task joins small batches, up to a limit of rows and a limit of bytes. Here the limit of bytes is reached first."""
    monkeypatch.setattr(tasks, "JOINED_BYTES", 3 * (5 * 8 + 1))  # five longs, and a byte of validity bits
    found = read(url, "t")
    assert [batch.num_rows for batch in found] == [15] * 6 + [10]
    assert [n for batch in found for n in batch.column("n").to_pylist()] == list(range(100))
