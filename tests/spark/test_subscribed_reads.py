"""Tests of the option `subscription` in Spark: a batch from the cursor to the cut, and a stream that moves the cursor (protocol.md
section 6).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from metadata.records.names import topic_name
from metadata.records.row_ranges import parse_all, texts
from metadata.rules.acks import Ack, done
from txnsegment import Cluster, connect

NAME = topic_name("t")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return connect(f"file://{tmp_path}/cluster")


def write(cluster: Cluster, *ids: int) -> int:
    with cluster.begin() as txn:
        txn.append("t", pa.table({"id": pa.array(ids, pa.int64())}))
        number = txn.commit().number
    assert number is not None
    return number


def batch(spark: SparkSession, cluster: Cluster, name: str = "s", **options: str) -> list[int]:
    rows = spark.read.format("txnsegment").options(serviceUrl=cluster.url, subscription=name, **options).load("t").collect()
    return sorted(row.id for row in rows)


def acknowledge(cluster: Cluster, text: str, name: str = "s") -> None:
    segment = cluster.client.topics.get(NAME).segments()[0]
    cluster.client.coordinator.acks.acknowledge([Ack(segment, name, parse_all([text]))])


def test_a_batch_reads_from_the_cursor_to_the_cut(spark: SparkSession, cluster: Cluster) -> None:
    with cluster:
        cluster.topics.create("t", schema="id bigint")
        first = write(cluster, *range(10))
        cluster.client.subscriptions.create(NAME, "s", at=0)
        second = write(cluster, 10, 11)
        assert batch(spark, cluster) == list(range(12))
        acknowledge(cluster, f"{first}:0:3..{first}:0:5")
        acknowledge(cluster, f"{first}:0:9")
        assert batch(spark, cluster) == [0, 1, 2, 6, 7, 8, 10, 11]
        acknowledge(cluster, f"{second}")
        assert batch(spark, cluster, minPartitions="3") == [0, 1, 2, 6, 7, 8]
        assert batch(spark, cluster, endingOffsets=f'{{"log":{first - 1}}}') == []
        with pytest.raises(PySparkException, match="no subscription 'other'"):
            batch(spark, cluster, "other")
        with pytest.raises(PySparkException, match="subscription and startingOffsets"):
            batch(spark, cluster, startingOffsets="earliest")


def test_a_stream_begins_at_the_cursor_and_moves_it(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    with cluster:
        cluster.topics.create("t", schema="id bigint", segments=2)
        numbers = [write(cluster, *range(i, i + 4)) for i in (0, 4, 8)]
        cluster.client.subscriptions.create(NAME, "s", at=numbers[0])
        acknowledge(cluster, f"{numbers[2]}:0:0")
        given = sorted(batch(spark, cluster))
        assert len(given) == 7

        def run(out: str) -> list[int]:
            rows = spark.readStream.format("txnsegment").options(serviceUrl=cluster.url, subscription="s").load("t")
            query = (
                rows.writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / f"{out}.checkpoint"))
                .trigger(availableNow=True)
                .start(str(tmp_path / out))
            )
            query.awaitTermination()
            return sorted(row.id for row in spark.read.parquet(str(tmp_path / out)).collect())

        assert run("a") == given
        write(cluster, 100)
        write(cluster, 101)
        assert run("a") == [*given, 100, 101]
        cursors = cluster.client.subscriptions.cursors(cluster.client.topics.get(NAME), "s")
        assert [texts(done(cursor)) for cursor in cursors.values()] == [[f"0:0..{numbers[2]}:0"], [f"0:0..{numbers[1]}:0"]]
        # The cursor moves over a batch only when the next batch is planned. So a new checkpoint reads the last batch again.
        assert run("b") == [100, 101]
