"""Tests of `cluster.snapshot`. Several reads up to a snapshot see the same state. The tests need no JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from metadata.cluster.cluster import open_cluster
from metadata.common.errors import DataLoss, OffsetOutOfRange, OptionError, TopicNotFound
from metadata.records.cluster_records import Settings
from metadata.records.names import persistent_name, topic_name
from tests.support.spark_bench import SparkBench, X, Y
from txnsegment import Cluster, connect

T, U = "t", "topic://public/default/u"


@pytest.fixture
def bench(tmp_path: Path) -> SparkBench:
    url = f"file://{tmp_path}/cluster"
    open_cluster(url, settings=Settings(deadline_allowance_ms=50)).close()
    return SparkBench(url)


@pytest.fixture
def cluster(bench: SparkBench) -> Iterator[Cluster]:
    with connect(bench.url) as opened:
        write(opened, T, 1)
        write(opened, U, 2)
        bench.plain(X, [3])
        bench.commit(Y, [4])
        yield opened
    bench.client.close()


def write(cluster: Cluster, topic: str, *values: int) -> None:
    if cluster.client.topics.find(topic_name(topic)) is None:
        cluster.topics.create(topic, schema="n bigint", segments=2)
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"n": pa.array(values, pa.int64())}))
        txn.commit()


def more(bench: SparkBench, cluster: Cluster) -> None:
    for topic in (T, U):
        write(cluster, topic, 100)
    bench.plain(X, [100])
    bench.commit(Y, [100])
    cluster.sweep()


def test_reads_up_to_a_snapshot_see_the_same_rows(bench: SparkBench, cluster: Cluster) -> None:
    """Reads of all topics of the snapshot, of some of them, or of one see the same rows, whatever is written later."""
    end = cluster.snapshot([T, U, X, Y])
    more(bench, cluster)
    assert bench.numbers([T, U, X, Y]) == [1, 2, 3, 4, 100, 100, 100, 100]
    for topics, rows in (([T, U, X, Y], [1, 2, 3, 4]), ([T, X], [1, 3]), (T, [1]), (U, [2]), (X, [3]), (Y, [4])):
        assert bench.numbers(topics, endingOffsets=end) == rows, topics


def test_a_snapshot_holds_the_position_of_each_log(bench: SparkBench, cluster: Cluster) -> None:
    number = json.loads(cluster.snapshot(T))["log"]
    assert json.loads(cluster.snapshot(T)) == {"log": number}
    assert json.loads(cluster.snapshot(X)) == {X: "1:0"}
    assert json.loads(cluster.snapshot([T, X])) == {"log": number, X: "1:0"}


def test_a_snapshot_ends_before_undecided_transactions(bench: SparkBench, cluster: Cluster) -> None:
    txn = bench.begin(X)
    bench.append(txn, X, [5])
    end = cluster.snapshot([T, X])
    bench.end(txn)
    assert bench.numbers([T, X], endingOffsets=end) == [1, 3]
    assert bench.numbers([T, X], endingOffsets=cluster.snapshot([T, X])) == [1, 3, 5]


def test_a_snapshot_of_a_pattern_has_no_topic_that_comes_later(bench: SparkBench, cluster: Cluster) -> None:
    pattern = ".*default/.*"
    end = cluster.snapshot(topicsPattern=pattern)
    more(bench, cluster)
    write(cluster, "later", 100)
    bench.plain("persistent://public/default/later", [100])
    assert bench.numbers([], topicsPattern=pattern, endingOffsets=end) == [1, 2, 3, 4]


def test_a_snapshot_as_of_a_moment(bench: SparkBench, cluster: Cluster) -> None:
    clock = cluster.client.cluster.clock
    clock.sleep(0.005)
    ms = clock.now_ms()
    clock.sleep(0.005)
    more(bench, cluster)
    end = cluster.snapshot([T, U, X, Y], endingTimestamp=ms)
    assert bench.numbers([T, U, X, Y], endingOffsets=end) == [1, 2, 3, 4]
    with pytest.raises(OffsetOutOfRange, match="is not final"):
        cluster.snapshot(T, endingTimestamp=ms + 3_600_000, timestampTimeoutMs=10)


def test_a_snapshot_of_a_topic_that_is_migrated_later(bench: SparkBench, cluster: Cluster) -> None:
    end = cluster.snapshot([T, X])
    bench.client.instream.migrator.migrate(persistent_name(X), topic_name("migrated"), segments=2)
    write(cluster, "migrated", 100)
    assert bench.numbers([T, X], endingOffsets=end) == bench.numbers([T, X], endingOffsets=end) == [1, 3]
    assert bench.numbers([T, X], endingOffsets=cluster.snapshot([T, X])) == [1, 3, 100]


def test_a_snapshot_keeps_no_rows(bench: SparkBench, cluster: Cluster) -> None:
    """A topic is deleted after the snapshot. A read up to the snapshot raises DataLoss, and does not return fewer rows."""
    end = cluster.snapshot(topicsPattern="topic://public/default/[tu]")
    cluster.topics.delete("u")
    with pytest.raises(DataLoss, match="topic://public/default/u"):
        bench.numbers([], topicsPattern="topic://public/default/[tu]", endingOffsets=end)


def test_invalid_snapshot_arguments_are_refused(bench: SparkBench, cluster: Cluster) -> None:
    with pytest.raises(TopicNotFound):
        cluster.snapshot("nowhere")
    with pytest.raises(OptionError, match="snapshot\\(\\) does not take startingOffsets"):
        cluster.snapshot(T, startingOffsets="earliest")
    with pytest.raises(OptionError, match="no topic to read"):
        cluster.snapshot()
    with pytest.raises(OptionError, match="no position of"):
        bench.numbers([T, Y], endingOffsets=cluster.snapshot([T, X]))
    with pytest.raises(OptionError, match="Did you mean endingOffsets"):
        bench.numbers(T, versionAsOf="3")
    with pytest.raises(OptionError, match="Did you mean endingTimestamp"):
        bench.numbers(T, timestampAsOf="2025-01-01")
