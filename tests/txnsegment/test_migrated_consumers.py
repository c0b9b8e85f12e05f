"""A consumer that runs during a migration of its topics keeps the order of the log, like a consumer created afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from metadata.common.errors import DataLoss, TopicNotFound
from metadata.read.reading import Reading
from metadata.read.selection import LOG
from txnsegment import Cluster, Consumer, connect
from txnsegment.feeds import Feed

X, Y, Z = "persistent://public/default/x", "topic://public/default/y", "topic://public/default/z"
U, V = "persistent://public/default/u", "topic://public/default/v"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with connect(f"file://{tmp_path}") as made:
        for name in (X, U, Z):
            made.topics.create(name, schema="n bigint")
        yield made


def write(cluster: Cluster, n: int, *topics: str) -> None:
    with cluster.begin() as txn:
        for topic in topics:
            txn.append(topic, pa.table({"n": pa.array([n], pa.int64())}))
        txn.commit()


def numbers(consumer: Consumer) -> list[int]:
    return [message.value["n"] for message in consumer.messages(timeout=0)]


def left(cluster: Cluster, *topics: str) -> list[int]:
    """Return the rows that a new consumer of the subscription gets. It starts at earliest in topics new to the subscription."""
    with cluster.consumer(topics, "s", start="earliest") as consumer:
        return numbers(consumer)


def test_a_running_consumer_keeps_the_log_order_over_a_migration(cluster: Cluster) -> None:
    write(cluster, 1, X)
    with cluster.consumer([X, Z], "s", start="earliest") as consumer:
        assert numbers(consumer) == [1]
        cluster.topics.migrate(X, Y, segments=2)
        for n, topic in enumerate([Z, Y, Z, Y, Z, Y], 100):
            write(cluster, n, topic)
        write(cluster, 106, Z, Y)
        assert numbers(consumer) == [100, 101, 102, 103, 104, 105, 106, 106]
        write(cluster, 107, Y)
        write(cluster, 108, Z)
        assert numbers(consumer) == [107, 108]
        consumer.rewind()
        assert numbers(consumer) == left(cluster, Z, X) == [1, 100, 101, 102, 103, 104, 105, 106, 106, 107, 108]


def test_rows_undelivered_before_the_migration_come_in_their_order(cluster: Cluster) -> None:
    write(cluster, 1, X)
    write(cluster, 2, Z)
    with cluster.consumer([Z, X], "s", start="earliest") as consumer:
        assert sorted(numbers(consumer)) == [1, 2]
        write(cluster, 3, Z)
        for n in (4, 5):
            write(cluster, n, X)
        cluster.topics.migrate(X, Y)
        write(cluster, 6, Z)
        write(cluster, 7, X)
        assert numbers(consumer) == [3, 4, 5, 6, 7]
        assert numbers(consumer) == []
    assert left(cluster, X, Z) == [2, 3, 1, 4, 5, 6, 7]


@pytest.mark.parametrize("log", [LOG, X])
def test_a_migration_between_two_polls_loses_no_row(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, log: str) -> None:
    """The topic is migrated just before a poll reads the log `log`. No row is lost, and rows of `topic://` topics are not delivered
    before rows of the successor that have lower numbers.
    """
    read: Callable[[Feed], Reading] = Feed.look
    moved = False

    def reading(self: Feed) -> Reading:
        nonlocal moved
        if not moved and self.reading.log == log:
            moved = True
            cluster.topics.migrate(X, Y)
            for n, topic in enumerate([Z, Y, Z, Y], 3):
                write(cluster, n, topic)
        return read(self)

    write(cluster, 1, X)
    with cluster.consumer([X, U, Z], "s", start="earliest") as consumer:
        assert numbers(consumer) == [1]
        write(cluster, 2, U)
        monkeypatch.setattr(Feed, "look", reading)
        found = numbers(consumer)
        assert moved
        assert [n for n in found if n != 2] == [3, 4, 5, 6]
        assert found.count(2) == 1


def test_two_topics_that_are_migrated_one_after_the_other(cluster: Cluster) -> None:
    for n, topic in enumerate([X, U, X, U], 1):
        write(cluster, n, topic)
    with cluster.consumer([U, X], "s", start="earliest") as consumer:
        assert sorted(numbers(consumer)) == [1, 2, 3, 4]
        write(cluster, 5, U)
        cluster.topics.migrate(X, Y, segments=2)
        write(cluster, 6, Y)
        cluster.topics.migrate(U, V)
        for n, topic in enumerate([V, Y, V, Y], 7):
            write(cluster, n, topic)
        assert numbers(consumer) == [6, 5, 7, 8, 9, 10]
        write(cluster, 11, X, U)
        assert numbers(consumer) == [11, 11]
        assert consumer.lag().rows == 12


def test_a_batch_begun_before_the_migration_is_delivered_once(cluster: Cluster) -> None:
    with cluster.consumer([X, Z], "s", start="earliest") as consumer:
        for n in (1, 2, 3):
            write(cluster, n, X)
        rows = consumer.messages(timeout=0)
        first = next(rows)
        cluster.topics.migrate(X, Y)
        write(cluster, 4, Z)
        write(cluster, 5, Y)
        assert consumer.lag().rows == 4  # row 5 is not counted until the consumer has delivered the rows from before the migration
        assert [first.value["n"], *(m.value["n"] for m in rows), *numbers(consumer)] == [1, 2, 3, 4, 5]
        assert consumer.lag().rows == 5


def test_rows_read_ahead_before_the_migration_are_delivered_once_after_it(cluster: Cluster) -> None:
    """The consumer has read a batch ahead. After the migration it delivers the rest of this batch first, and only once."""
    with cluster.consumer([X, Z], "s", start="earliest") as consumer:
        with cluster.begin() as txn:
            txn.append(X, pa.table({"n": pa.array([1, 2, 3], pa.int64())}))
            txn.commit()
        first = next(consumer.messages(timeout=0))
        cluster.topics.migrate(X, Y, segments=2)
        write(cluster, 4, Z, Y)
        second = next(consumer.messages(timeout=0))
        assert (first.value["n"], second.value["n"]) == (1, 2)
        consumer.ack_cumulative(second)
        assert numbers(consumer) == [3, 4, 4]
        assert left(cluster, X, Z) == [3, 4, 4]


def test_cumulative_acknowledgements_after_a_migration(cluster: Cluster) -> None:
    """A cumulative ack of a row that was delivered before the migration covers rows of the persistent topic only. A cumulative ack
    of a row that was delivered after the migration covers earlier rows of all topics, in the order of the cluster's log.
    """
    write(cluster, 1, X)
    with cluster.consumer([X, Z], "s", start="earliest") as consumer:
        (one,) = consumer.messages(timeout=0)
        write(cluster, 2, Z)
        write(cluster, 3, X)
        (two, three) = sorted(consumer.messages(timeout=0), key=lambda message: message.value["n"])
        cluster.topics.migrate(X, Y)
        for n, topic in enumerate([Y, Z, Y, Z], 4):
            write(cluster, n, topic)
        rows = list(consumer.messages(timeout=0))
        assert [message.value["n"] for message in rows] == [4, 5, 6, 7]
        consumer.ack_cumulative(one)
        assert left(cluster, X, Z) == [2, 3, 4, 5, 6, 7]
        consumer.ack_cumulative(three)
        assert left(cluster, X, Z) == [2, 4, 5, 6, 7]
        with cluster.begin() as txn:
            consumer.ack_cumulative(rows[2], txn=txn)
            txn.commit()
        assert left(cluster, X, Z) == [7]
        consumer.rewind()
        assert numbers(consumer) == [7]
        assert consumer.lag().rows == 1
    assert two.topic == Z
    cursors = {found.segment: found for name in (Y, Z) for found in cluster.subscriptions.describe(name, "s").cursors}
    assert not any(found.acked for found in cursors.values())


def test_rows_that_were_delivered_before_the_migration_are_not_missed(cluster: Cluster) -> None:
    """Retention trims rows after the migration. A consumer that has delivered these rows before continues. A consumer that has not
    delivered them gets DataLoss.
    """
    for n in (1, 2):
        write(cluster, n, X)
    with (
        cluster.consumer([X, Z], "s", start="earliest") as consumer,
        cluster.consumer([X, Z], "other", start="earliest") as other,
    ):
        assert numbers(consumer) == [1, 2]
        write(cluster, 3, Z)
        cluster.topics.migrate(X, Y)
        cluster.retention.set(Y, keep_bytes=1, keep=timedelta(days=1), despite_subscriptions=True)
        assert cluster.retention.trim(Y).rows == 2
        write(cluster, 4, Y)
        assert numbers(consumer) == [3, 4]
        with pytest.raises(DataLoss, match="trimmed by retention"):
            numbers(other)


def test_rows_deleted_with_the_successor_are_a_loss(cluster: Cluster) -> None:
    write(cluster, 1, X)
    with (
        cluster.consumer([X, Z], "s", start="earliest") as consumer,
        cluster.consumer([X, Z], "other", start="earliest") as other,
    ):
        assert numbers(consumer) == [1]
        cluster.topics.migrate(X, Y)
        cluster.topics.delete(Y)
        write(cluster, 2, Z)
        with pytest.raises(TopicNotFound, match=f"migrated to {Y}, which was deleted"):
            numbers(consumer)
        cluster.topics.create(Y, schema="n bigint")
        for name in ("s", "other"):
            cluster.subscriptions.create(Y, name)
        write(cluster, 3, X)
        assert numbers(consumer) == [2, 3]
        with pytest.raises(DataLoss, match=f"{X} was migrated to {Y}, which was deleted"):
            numbers(other)


def test_rows_of_a_recreated_successor_are_a_loss(cluster: Cluster) -> None:
    write(cluster, 1, X)
    with cluster.consumer(X, "s", start="earliest") as consumer:
        assert numbers(consumer) == [1]
        cluster.topics.migrate(X, Y)
        write(cluster, 2, X)
        cluster.topics.delete(Y)
        cluster.topics.create(Y, schema="n bigint")
        cluster.subscriptions.create(Y, "s")
        write(cluster, 3, X)
        with pytest.raises(DataLoss, match=f"{Y} was deleted by the seal"):
            numbers(consumer)
        consumer.rewind()
