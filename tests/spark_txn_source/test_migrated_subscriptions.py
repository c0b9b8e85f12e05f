"""Subscriptions during a migration. No acknowledged row comes again, and no unacknowledged row is skipped. The tests need
no JVM.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from test_migrated_streams import TO, migrate

from conformance.harness.spark_driver import schema_of, source
from metadata.common.errors import AckConflict, OptionError
from metadata.instream.topic_logs import TopicLogs
from metadata.records import paths
from metadata.records.names import persistent_name, topic_name
from metadata.store.contract import time_ms
from metadata.topics.subscriptions import legacy_shift
from spark_txn_source.following import Following
from spark_txn_source.options import ReadOptions
from tests.support.spark_bench import Query, SparkBench, X, Y, position_of
from txnsegment import Cluster, connect
from txnsegment.positions import unread


@pytest.fixture
def bench(tmp_path: Path) -> SparkBench:
    """A cluster whose log starts above 1,000. Migrated ledgers keep the small ids of their persistent topic's log. So no such id
    equals a number of the cluster's log.
    """
    made = SparkBench(f"file://{tmp_path}")
    made.client.cluster.store.skip(paths.LOG, 1_000)
    return made


def again(bench: SparkBench, query: Query, topic: str | list[str] = X, **options: str) -> Query:
    """Restart the query from its checkpoint."""
    given = bench.options(topic, **options)
    return Query(source(given).streamReader(schema_of(given)), query.at)


def send(cluster: Cluster, *values: int, topic: str = X) -> None:
    for n in values:
        with cluster.producer(topic) as producer:
            producer.send({"n": n})


def left(cluster: Cluster, topic: str, name: str = "s") -> list[int]:
    with cluster.consumer(topic, name) as consumer:
        return [m.value["n"] for m in consumer.messages(timeout=0)]


def test_a_stream_commits_its_cursor_for_rows_of_either_log(bench: SparkBench) -> None:
    with connect(bench.url) as cluster:
        bench.commit(X, [1])
        cluster.subscriptions.create(X, "s")
        query = bench.stream(X, subscription="s")
        assert query.next() == [1]
        bench.commit(X, [2])
        migrate(bench)
        send(cluster, 3)
        query.reader.commit(query.at)  # Spark commits a batch that was planned before the migration
        assert left(cluster, TO) == [2, 3]
        assert query.next() == [2]
        query.reader.commit(query.at)
        query = again(bench, query, subscription="s")
        query.reader.commit(query.at)  # Spark commits the last batch again after a restart
        assert left(cluster, TO) == [3]
        assert [n for some in query.rest() for n in some] == [3]
        query.reader.commit(query.at)
        assert left(cluster, X) == []
        assert cluster.subscriptions.describe(X, "s").lag.rows == 0


def test_a_stream_of_the_new_name_acknowledges_only_its_read_rows(bench: SparkBench) -> None:
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


def test_individual_acks_stay_valid_for_a_stream(bench: SparkBench) -> None:
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
            assert bench.numbers(topic, subscription="s") == [1, 3, 4, 10, 20]
        query.reader.commit(query.at)
        send(cluster, 5)
        assert list(query.rest()) == [[5]]
        assert "acked" not in query.at, "the query's commits have passed the acknowledged rows"


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_new_stream_of_the_old_name_starts_at_the_given_offset(bench: SparkBench, start: str) -> None:
    first = bench.commit(X, [1])
    bench.commit(X, [2])
    migrate(bench)
    with connect(bench.url) as cluster:
        send(cluster, 3)
        query = bench.stream(X, startingOffsets=start)
        expected = [1, 2, 3] if start == "earliest" else []
        assert [n for some in query.rest() for n in some] == expected
        at = position_of(query.at)
        del at["read"]
        send(cluster, 4)
        assert [n for some in query.rest() for n in some] == [4]
        given = bench.stream(X, startingOffsets=json.dumps(at))  # the offset that the query reported
        assert [n for some in given.rest() for n in some] == [4]
        assert bench.numbers(X, startingOffsets=json.dumps(at)) == [4]
        old = bench.stream(X, startingOffsets=json.dumps({X: f"{first}:0"}))
        assert [n for some in old.rest() for n in some] == [2, 3, 4]
        assert bench.numbers(X, endingOffsets=json.dumps({X: f"{first}:0"})) == [1]


def test_a_checkpoint_continues_under_the_new_name(bench: SparkBench) -> None:
    """A checkpoint of the old name continues under the new name with `topicsChanged=continue`. Rows that were read from the old log
    are not read again from the cluster's log.
    """
    for n in range(1, 5):
        bench.commit(X, [n])
    query = bench.stream(X, startingOffsets="earliest", maxRowsPerTrigger="2")
    assert query.next() == [1, 2]
    migrate(bench)
    with connect(bench.url) as cluster:
        send(cluster, 5)
        successor = again(bench, query, TO, topicsChanged="continue", maxRowsPerTrigger="1")
        assert [n for some in successor.rest() for n in some] == [3, 4, 5]
        assert "acked" not in successor.at
        assert X not in successor.at


def test_old_and_new_name_together(bench: SparkBench) -> None:
    bench.commit(X, [1])
    bench.commit(X, [2])
    migrate(bench)
    with connect(bench.url) as cluster:
        # X now stands for its successor, so `start` may be a number of the cluster's log
        cluster.subscriptions.create(X, "s", start=shift(bench) + 1)
        send(cluster, 3)
        for given in ({"topics": f"{X},{TO}"}, {"topicsPattern": ".*/default/(x|went-on)"}):
            read = {"subscription": "s", **given}
            assert sorted(row["n"] for row in bench.batch([], **read)) == [2, 3], given
            query = bench.stream([], **read)
            assert sorted(n for some in query.rest() for n in some) == [2, 3], given
        query.reader.commit(query.at)
        with cluster.consumer([X, TO], "s") as consumer:
            assert list(consumer.messages(timeout=0)) == []
        assert [(d.topic, d.name) for d in cluster.subscriptions.list()] == [(TO, "s")]
        assert cluster.subscriptions.list(X) == cluster.subscriptions.list(TO) == cluster.subscriptions.list()


def test_a_log_beside_a_topic_that_is_migrated(bench: SparkBench) -> None:
    """The topic is migrated after the stream has read the cluster's log. The stream still reads each row of the successor once."""
    other = "topic://public/default/other"
    with connect(bench.url) as cluster:
        cluster.topics.create(other, schema="n bigint")
        bench.commit(X, [1])
        query = bench.stream([X, other], startingOffsets="earliest")
        target = bench.stream([X, other], startingOffsets="earliest")
        newest = Following.read
        began = False

        def migrated_meanwhile(self: Following[object], *most: float) -> object:
            nonlocal began
            if began or not isinstance(self._source, TopicLogs):
                return newest(self, *most)
            began = True
            found = newest(self, *most)
            migrate(bench)
            send(cluster, 2)
            send(cluster, 3, topic=other)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Following, "read", migrated_meanwhile)
            found = query.next()
        found += [n for some in query.rest() for n in some]
        assert sorted(found) == [1, 2, 3]
        assert found.index(1) < found.index(2)
        target.reader.prepareForTriggerAvailableNow()
        assert sorted(n for some in target.rest() for n in some) == [1, 2, 3]


def test_a_consumer_acknowledges_in_every_way_across_a_migration(bench: SparkBench) -> None:
    with connect(bench.url) as cluster, connect(bench.url) as other:
        bench.commit(X, [1, 2, 3])
        bench.commit(X, [4])
        with cluster.consumer(X, "s", start="earliest") as consumer, other.consumer(X, "all", start="earliest") as whole:
            rows = list(consumer.messages(timeout=0))
            all_rows = list(whole.messages(timeout=0))
            consumer.ack(rows[1])  # rows 0 and 2 are in the same entry
            with cluster.begin() as txn:
                consumer.ack(rows[0], txn=txn)
                migrate(bench)
                assert other.subscriptions.describe(TO, "s").lag.rows == 3
                txn.commit()
            shown = cluster.subscriptions.describe(X, "s")
            assert (shown.topic, shown.lag.rows, shown.cursors[0].mark_delete) == (TO, 2, "1:0:1")
            whole.ack_cumulative(all_rows[1])
            assert left(other, TO, "all") == [3, 4]
            assert consumer.lag().rows == 2
            consumer.rewind()
            assert [m.value["n"] for m in consumer.messages(timeout=0)] == [3, 4]
            send(cluster, 5)
            assert [m.value["n"] for m in consumer.messages(timeout=0)] == [5]
        for to, rest in ((1, [4, 5]), ("earliest", [1, 2, 3, 4, 5]), ("latest", [])):
            at = to if isinstance(to, str) else shift(bench) + to
            cluster.subscriptions.seek(X, "s", at)
            assert left(cluster, X) == rest, to
            assert cluster.subscriptions.describe(TO, "s").lag.rows == len(rest)


def shift(bench: SparkBench) -> int:
    return legacy_shift(bench.client.topics.get(topic_name(TO)), X)


def test_a_cumulative_acknowledgement_keeps_to_the_order_of_the_log(bench: SparkBench) -> None:
    """Migrated ledgers keep their ids. The ids of two topics cannot be compared, so log numbers decide which rows a cumulative ack
    covers.
    """
    z, later = "topic://public/default/z", "topic://public/default/later"
    with connect(bench.url) as cluster:
        cluster.topics.create(z, schema="n bigint")
        for n in (1, 2, 3):
            bench.commit(X, [n])
            bench.commit(Y, [10 * n])
        send(cluster, 100, topic=z)
        migrate(bench)
        cluster.topics.migrate(Y, later)
        with cluster.consumer([z, TO, later], "s", start="earliest") as consumer:
            rows = list(consumer.messages(timeout=0))
            assert [m.value["n"] for m in rows] == [100, 1, 2, 3, 10, 20, 30]
            consumer.ack_cumulative(rows[0])
            assert consumer.lag().rows == 6
            consumer.ack_cumulative(rows[3])
            assert consumer.lag().rows == 3
            consumer.ack_cumulative(rows[4])
            assert consumer.lag().rows == 2
        with cluster.consumer([z, TO, later], "s") as consumer:
            assert [m.value["n"] for m in consumer.messages(timeout=0)] == [20, 30]


def test_a_subscription_of_a_trimmed_migrated_topic_has_the_remaining_rows(bench: SparkBench) -> None:
    for n in range(1, 4):
        bench.commit(X, [n])
    trimmer, reading = bench.client.instream.sweeper.trimmer, bench.client.instream.buffer.read(persistent_name(X))
    assert trimmer.trim_to(reading, next(reading.ledgers()).id) > 0
    migrate(bench)
    with connect(bench.url) as cluster:
        cluster.subscriptions.create(X, "s")
        assert left(cluster, X) == [2, 3]
        cluster.subscriptions.seek(X, "s", "latest")
        cluster.subscriptions.seek(X, "s", "earliest")
        assert left(cluster, TO) == [2, 3]
        assert bench.numbers(TO, subscription="s") == [2, 3]


@pytest.mark.parametrize("topic", [X, TO])
def test_a_transaction_reads_the_same_rows_under_either_name(bench: SparkBench, topic: str) -> None:
    """The plan of `txn.read` has the same rows and acks under both names."""
    bench.commit(X, [1, 2])
    bench.commit(X, [3])
    with connect(bench.url) as cluster:
        with cluster.consumer(X, "s", start="earliest") as consumer:
            consumer.ack(next(consumer.messages(timeout=0)))
        before = unread(bench.client, ReadOptions.parse({**bench.options(X), "subscription": "s"}, streaming=False))
        migrate(bench)
        send(cluster, 4)
        given = ReadOptions.parse({**bench.options(topic), "subscription": "s"}, streaming=False)
        found = unread(bench.client, given)
        with cluster.begin() as txn:
            txn.acknowledge(found.acks)
            assert bench.numbers(topic, **found.options()) == [2, 3, 4]
            txn.commit()
        assert bench.numbers(topic, **found.options()) == [2, 3, 4]  # the offsets give the same rows after the commit
        assert bench.numbers(X, **before.options()) == [2, 3]
        assert left(cluster, topic) == []
        with cluster.begin() as txn:
            txn.acknowledge(before.acks)
            with pytest.raises(AckConflict):
                txn.commit()


def test_a_reading_transaction_continues_over_a_migration(bench: SparkBench) -> None:
    """A transaction reads rows before the migration. It commits the acks of these rows, and new rows under the old name, after the
    migration.
    """
    bench.commit(X, [1, 2])
    with connect(bench.url) as cluster:
        cluster.subscriptions.create(X, "s")
        for _ in range(2):
            given = ReadOptions.parse({**bench.options(X), "subscription": "s"}, streaming=False)
            with cluster.begin(app="etl", version=1) as txn:
                found = unread(bench.client, given)
                txn.append(X, pa.table({"n": [9]}))
                txn.acknowledge(found.acks)
                if bench.client.topics.find(topic_name(TO)) is None:
                    migrate(bench)
                txn.commit()
        assert left(cluster, X) == [9]
        assert bench.numbers(X) == bench.numbers(TO) == [1, 2, 9]


def test_a_pattern_of_the_old_name_reads_the_successor(bench: SparkBench) -> None:
    options = {"topicsPattern": "persistent://public/default/.*"}
    bench.commit(X, [1])
    with connect(bench.url) as cluster:
        query = bench.stream([], startingOffsets="earliest", **options)
        named = bench.stream([], subscription="s", **options)
        assert query.next() == named.next() == [1]
        bench.commit(X, [2])
        migrate(bench)
        send(cluster, 3)
        for one in (query, named):
            assert [n for some in one.rest() for n in some] == [2, 3]
        named.reader.commit(named.at)
        assert left(cluster, TO) == []
        assert sorted(row["n"] for row in bench.batch([], **options)) == [1, 2, 3]
        send(cluster, 4)
        assert again(bench, query, [], **options).next() == [4]
        assert [n for some in bench.stream([], subscription="other", **options).rest() for n in some] == [1, 2, 3, 4]


def test_times_of_publishing(bench: SparkBench) -> None:
    """Rows from before the migration have publish times of the topic's own log, later rows have those of the cluster's log. A read
    by timestamp works for both.
    """
    bench.commit(X, [1])
    first = bench.batch(X, includeMetadata="true")[0]["__publishTime"]
    pause(bench)
    bench.commit(X, [2])
    migrate(bench)
    pause(bench)
    with connect(bench.url) as cluster:
        send(cluster, 3)
    found = {row["n"]: row["__publishTime"] for row in bench.batch(X, includeMetadata="true")}
    assert found[1] == first < found[2] < found[3]
    for topic in (X, TO):
        for n, later in ((1, [1, 2, 3]), (2, [2, 3]), (3, [3])):
            at = found[n].isoformat()
            assert bench.numbers(topic, startingTimestamp=at) == later, (topic, n)
            assert bench.numbers(topic, endingTimestamp=at) == [m for m in (1, 2, 3) if m <= n], (topic, n)
            query = bench.stream(topic, startingTimestamp=at)
            assert [m for some in query.rest() for m in some] == later, (topic, n)


def pause(bench: SparkBench) -> None:
    """Wait until the store's clock has advanced."""
    store = bench.client.cluster.store
    now = time_ms(store)
    while time_ms(store) == now:
        continue


def test_the_successor_of_a_dropped_topic_is_added_only_if_no_row_is_unacknowledged(bench: SparkBench) -> None:
    """The query drops the persistent topic, and then the topic is migrated. The successor can be added to the query only if all
    migrated rows are acknowledged.
    """
    z = "topic://public/default/z"
    options = {"subscription": "s", "topicsChanged": "continue", "maxRowsPerTrigger": "1"}
    with connect(bench.url) as cluster:
        bench.commit(X, [1])
        bench.commit(X, [2])
        cluster.topics.create(z, schema="n bigint")
        for topic in (X, z):
            cluster.subscriptions.create(topic, "s")
        query = bench.stream([X, z], **options)
        assert query.next() == [1]
        query.reader.commit(query.at)
        query = again(bench, query, z, **options)
        migrate(bench)
        send(cluster, 100, 101, topic=z)
        assert [n for some in query.rest() for n in some] == [100, 101]
        query.reader.commit(query.at)
        assert query.at["log"] > 0
        query = again(bench, query, [TO, z], **options)
        with pytest.raises(OptionError, match=f"unacknowledged rows of {TO}"):
            query.next()
        assert left(cluster, TO) == [2]
