"""Subscriptions over a migration: nothing acknowledged comes again, nothing unacknowledged is skipped (Spark's classes, no JVM)."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_bench import Query, SparkBench, X
from test_migrated_streams import TO, migrate

from pyspark_txnsegment import DefaultSource
from spark_txn_source.stream import StreamReader
from txnsegment import Cluster, connect


@pytest.fixture
def bench(tmp_path: Path) -> SparkBench:
    return SparkBench(f"file://{tmp_path}")


def again(bench: SparkBench, query: Query, topic: str | list[str] = X, **options: str) -> Query:
    """The query after a restart from its checkpoint."""
    given = bench.options(topic, **options)
    return Query(StreamReader(given, DefaultSource(given).schema()), query.at)


def send(cluster: Cluster, *values: int, topic: str = X) -> None:
    for n in values:
        with cluster.producer(topic) as producer:
            producer.send({"n": n})


def left(cluster: Cluster, topic: str, name: str = "s") -> list[int]:
    with cluster.consumer(topic, name) as consumer:
        return [m.value["n"] for m in consumer.messages(timeout=0)]


def test_a_stream_commits_its_cursor_whichever_log_its_rows_come_from(bench: SparkBench) -> None:
    with connect(bench.url) as cluster:
        bench.commit(X, [1])
        cluster.subscriptions.create(X, "s")
        query = bench.stream(X, subscription="s")
        assert query.next() == [1]
        bench.commit(X, [2])
        migrate(bench)
        send(cluster, 3)
        query.reader.commit(query.at)  # planned before, committed after
        assert left(cluster, TO) == [2, 3]
        assert query.next() == [2]
        query.reader.commit(query.at)
        query = again(bench, query, subscription="s")
        query.reader.commit(query.at)  # as Spark does after a restart
        assert left(cluster, TO) == [3]
        assert [n for some in query.rest() for n in some] == [3]
        query.reader.commit(query.at)
        assert left(cluster, X) == []
        assert cluster.subscriptions.describe(X, "s").lag.rows == 0


def test_a_stream_of_the_new_name_acknowledges_what_it_has_read_and_no_more(bench: SparkBench) -> None:
    for n in range(1, 6):
        bench.commit(X, [n])
    migrate(bench)
    with connect(bench.url) as cluster:
        cluster.subscriptions.create(TO, "s")
        query = bench.stream(TO, subscription="s", maxRowsPerTrigger="2")
        assert query.next() == [1, 2]
        shown = query.reader.reportLatestOffset()
        assert shown is not None
        assert shown["lag"]["rows"] == 3
        query.reader.commit(query.at)
        assert left(cluster, TO) == [3, 4, 5]
        send(cluster, 6)
        found = []
        for some in query.rest():
            found += some
            query.reader.commit(query.at)
            assert left(cluster, TO) == list(range(3 + len(found), 7))
        assert found == [3, 4, 5, 6]


def test_what_was_acknowledged_one_by_one_stays_so_for_a_stream(bench: SparkBench) -> None:
    with connect(bench.url) as cluster:
        for n in range(1, 4):
            bench.commit(X, [n, 10 * n])
        with cluster.consumer(X, "s", start="earliest") as consumer:
            rows = list(consumer.messages(timeout=0))
            consumer.ack(rows[2], rows[5])
        migrate(bench)
        send(cluster, 4)
        for topic in (X, TO):
            query = bench.stream(topic, subscription="s", maxRowsPerTrigger="1")
            assert [n for some in query.rest() for n in some] == [1, 10, 20, 3, 4], topic
            assert "acked" not in query.at, topic
            assert bench.numbers(topic, subscription="s") == [1, 3, 4, 10, 20]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_new_stream_of_the_old_name_starts_where_it_is_told(bench: SparkBench, start: str) -> None:
    first = bench.commit(X, [1])
    bench.commit(X, [2])
    migrate(bench)
    with connect(bench.url) as cluster:
        send(cluster, 3)
        query = bench.stream(X, startingOffsets=start)
        expected = [1, 2, 3] if start == "earliest" else []
        assert [n for some in query.rest() for n in some] == expected
        at = dict(query.at)
        del at["read"]
        send(cluster, 4)
        assert [n for some in query.rest() for n in some] == [4]
        import json

        given = bench.stream(X, startingOffsets=json.dumps(at))  # what a query has reported
        assert [n for some in given.rest() for n in some] == [4]
        assert bench.numbers(X, startingOffsets=json.dumps(at)) == [4]
        old = bench.stream(X, startingOffsets=json.dumps({X: f"{first}:0"}))
        assert [n for some in old.rest() for n in some] == [2, 3, 4]
        assert bench.numbers(X, endingOffsets=json.dumps({X: f"{first}:0"})) == [1]
