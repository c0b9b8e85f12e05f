"""A stream tells the report of its driver how many rows it plans, and how many it has not read yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import LongType, StructField, StructType

import spark_txn_source.lag
from metadata.cluster.figures import Counts
from spark_txn_source.stream import StreamReader
from txnsegment import Cluster


@pytest.fixture
def reader(cluster: Cluster) -> Iterator[StreamReader]:
    cluster.topics.create("t", schema="n bigint")
    cluster.client.cluster.figures.changed = lambda: None  # somebody reads the figures
    options = {"serviceUrl": cluster.url, "topic": "t", "startingOffsets": "earliest", "maxRowsPerTrigger": "3"}
    schema = StructType([StructField("n", LongType())])
    made = StreamReader(options, schema, cluster.client)
    yield made
    made.stop()


def commit(cluster: Cluster, rows: int) -> None:
    with cluster.begin() as txn:
        txn.append("t", [{"n": n} for n in range(rows)])
        txn.commit()


def counts(cluster: Cluster) -> Counts:
    with cluster.client.cluster.figures.counting() as found:
        return found.copy()


NAME = ("topic://public/default/t", None)


def test_the_lag_is_what_was_unread_when_the_stream_planned(cluster: Cluster, reader: StreamReader) -> None:
    start = reader.initialOffset()
    for rows in (3, 4, 5):
        commit(cluster, rows)
    end = reader.latestOffset(start, ReadMaxRows(3))
    assert counts(cluster).reads[NAME] == (12, False)
    assert reader.partitions(start, end)
    assert counts(cluster).rows_read == 3
    last = reader.latestOffset(end, ReadAllAvailable())
    assert counts(cluster).reads[NAME] == (9, False)
    reader.partitions(end, last)
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    assert counts(cluster).reads[NAME] == (0, False)
    assert counts(cluster).rows_read == 12
    changes = counts(cluster).changes
    reader.latestOffset(last, ReadAllAvailable())
    assert counts(cluster).changes == changes, "an idle stream has nothing to report"
    reader.stop()
    assert counts(cluster).reads == {}


def test_a_long_lag_is_counted_in_part(cluster: Cluster, reader: StreamReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_txn_source.lag, "MOST_TRANSACTIONS", 2)
    start = reader.initialOffset()
    for rows in (3, 4, 5):
        commit(cluster, rows)
    reader.latestOffset(start, ReadAllAvailable())
    assert counts(cluster).reads[NAME] == (7, True)


def test_nothing_is_counted_if_nobody_reads_the_figures(cluster: Cluster, reader: StreamReader) -> None:
    cluster.client.cluster.figures.changed = None
    start = reader.initialOffset()
    commit(cluster, 3)
    reader.latestOffset(start, ReadAllAvailable())
    assert counts(cluster).reads == {}
