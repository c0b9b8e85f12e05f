"""Tests of consumers and producers in plain Python programs: order, acks, transactions, splits, wake-ups."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from metadata.common.errors import AckConflict, DataLoss, NotDelivered, SubscriptionNotFound, TxnConflict, ValueFormatError
from metadata.records.names import topic_name
from metadata.records.row_ranges import texts
from metadata.rules.acks import done
from txnsegment import Cluster, Consumer, UncommittedTransaction, connect

NAME = topic_name("t")
NOW = 0.0
"""A timeout of 0: a read returns the rows that are there and does not wait."""


@pytest.fixture
def topic(cluster: Cluster) -> Cluster:
    cluster.topics.create("t", segments=2, key="k", schema="k string, n bigint")
    return cluster


def rows(first: int, count: int = 4) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"k": [f"k{n % 4}" for n in numbers], "n": pa.array(numbers, pa.int64())})


def write(cluster: Cluster, first: int, count: int = 4) -> int:
    with cluster.begin() as txn:
        txn.append("t", rows(first, count))
        number = txn.commit().number
    assert number is not None
    return number


def numbers(consumer: Consumer) -> list[int]:
    return [message.value["n"] for message in consumer.messages(timeout=NOW)]


def marks(cluster: Cluster, name: str = "s") -> list[list[str]]:
    cursors = cluster.client.subscriptions.cursors(cluster.client.topics.get(NAME), name)
    return [texts(done(cursor)) for cursor in cursors.values()]


@pytest.fixture
def consumer(topic: Cluster) -> Iterator[Consumer]:
    with topic.consumer("t", "s", start="earliest") as made:
        yield made


def test_rows_come_in_the_order_of_their_transactions(topic: Cluster, consumer: Consumer) -> None:
    for first in range(0, 40, 4):
        write(topic, first)
    found = list(consumer.messages(timeout=NOW))
    assert sorted(m.value["n"] for m in found) == list(range(40))
    assert [m.value["n"] // 4 for m in found] == [i // 4 for i in range(40)]
    assert all(m.id == f"{m.id.split(':')[0]}:0:{m.id.split(':')[2]}" for m in found)
    assert numbers(consumer) == []
    write(topic, 40)
    assert sorted(numbers(consumer)) == [40, 41, 42, 43]


def test_batches_are_arrow(topic: Cluster, consumer: Consumer) -> None:
    number = write(topic, 0)
    found = list(consumer.batches(timeout=NOW))
    assert [b.ledger for b in found] == [number, number]
    table = pa.Table.from_batches([b.rows for b in found])
    assert table.schema.names == ["k", "n"]
    assert sorted(table.column("n").to_pylist()) == [0, 1, 2, 3]
    assert found[0].ids == [f"{number}:0:{i}" for i in range(found[0].rows.num_rows)]


def test_a_value_outside_the_range_of_python_blocks_no_earlier_row(cluster: Cluster) -> None:
    """Spark can write a date that Python cannot represent. The consumer still delivers the rows before this date. A batch delivers
    the date as an Arrow value.
    """
    cluster.topics.create("days", schema="day date")
    with cluster.begin() as txn:
        txn.append("days", pa.table({"day": pa.array([0, -(10**6), 1], pa.date32())}))
        txn.commit()
    with cluster.consumer("days", "s", start="earliest") as consumer:
        assert next(consumer.messages(timeout=NOW)).id == "1:0:0"
        for _ in range(2):
            with pytest.raises(ValueFormatError, match=r"row 1:0:1 of segment://.* Python cannot represent.*Consumer\.batches"):
                next(consumer.messages(timeout=NOW))
        (batch,) = consumer.batches(timeout=NOW)
        assert batch.ids == ["1:0:1", "1:0:2"]
        with pytest.raises(ValueFormatError, match="row 1:0:1 of"):
            list(batch.messages())
        consumer.ack_cumulative(batch)
        assert consumer.lag().rows == 0


def test_unacknowledged_rows_are_delivered_again(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    write(topic, 4)
    for message in consumer.messages(timeout=NOW):
        if message.value["n"] % 2:
            consumer.ack(message)
    with topic.consumer("t", "s") as other:
        assert sorted(numbers(other)) == [0, 2, 4, 6]
        assert consumer.lag().rows == 4
        other.rewind()
        other.ack(list(other.messages(timeout=NOW)))
    assert consumer.lag().rows == 0
    assert all(len(mark) == 1 for mark in marks(topic)), "acks of all single rows, in any order, join to one range"
    consumer.rewind()
    assert numbers(consumer) == []


def test_acks_of_every_row_close_up_over_the_gaps_of_other_segments(topic: Cluster, consumer: Consumer) -> None:
    topic.topics.create("other", schema="n bigint")
    for first in range(0, 12, 4):
        write(topic, first)
        with topic.begin() as txn:
            txn.append("other", pa.table({"n": [1]}))
            txn.commit()
    for message in consumer.messages(timeout=NOW):
        consumer.ack(message)
    assert all(len(mark) == 1 and mark[0].startswith("0") for mark in marks(topic))


def test_a_cumulative_ack_covers_all_earlier_rows(topic: Cluster, consumer: Consumer) -> None:
    for first in range(0, 12, 4):
        write(topic, first)
    found = list(consumer.messages(timeout=NOW))
    consumer.ack_cumulative(found[6])
    consumer.ack_cumulative(found[3])  # this row is acknowledged already, so the call changes nothing
    left = [m.value["n"] for m in found[7:]]
    with topic.consumer("t", "s") as other:
        assert numbers(other) == left


def test_a_cumulative_ack_of_a_row_in_a_removed_segment_is_an_error(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    (first, *_) = list(consumer.messages(timeout=NOW))
    topic.topics.delete("t")
    topic.topics.create("t", segments=2, key="k", schema="k string, n bigint")
    topic.subscriptions.create("t", "s")
    write(topic, 4)
    (again, *_) = list(consumer.messages(timeout=NOW))
    with pytest.raises(DataLoss, match=re.escape(f"{first.segment} of {first.topic} has gone since {first.id} was delivered")):
        consumer.ack_cumulative(first)
    consumer.ack_cumulative(again)


def test_one_row_is_acknowledged_once(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    with topic.consumer("t", "s") as other:
        mine, theirs = list(consumer.messages(timeout=NOW)), list(other.messages(timeout=NOW))
        consumer.ack(mine[1])
        with pytest.raises(AckConflict, match="already"):
            other.ack(theirs[1])
        other.ack(theirs[0])


def test_acks_and_rows_in_one_transaction(topic: Cluster, consumer: Consumer) -> None:
    topic.topics.create("out", schema="n bigint")
    write(topic, 0)
    with topic.begin() as txn:
        found = list(consumer.messages(timeout=NOW))
        txn.append("out", pa.table({"n": [m.value["n"] * 10 for m in found]}))
        consumer.ack_cumulative(found[-1], txn=txn)
        txn.commit()
    assert consumer.lag().rows == 0
    assert sum(1 for _ in topic.consumer("out", "x", start="earliest").messages(timeout=NOW)) == 4


def test_an_uncommitted_transaction_returns_its_rows(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    txn = topic.begin()
    given = list(consumer.messages(timeout=NOW))
    consumer.ack(given, txn=txn)
    with pytest.warns(UncommittedTransaction, match="acknowledgements in 2 segments do not count"), txn:
        pass
    assert sorted(numbers(consumer)) == [0, 1, 2, 3]
    with pytest.raises(TxnConflict):
        consumer.ack(given[0], txn=txn)


@pytest.mark.parametrize("cumulative", [True, False])
def test_a_skipped_transaction_returns_its_rows(topic: Cluster, consumer: Consumer, cumulative: bool) -> None:
    """The program died after its commit and runs the version again. The second commit is skipped. It acknowledges none of the rows
    that the second run has read, so these rows are delivered again.
    """

    def step(reader: Consumer, version: int) -> tuple[list[int], bool]:
        with topic.begin(app="etl", version=version) as txn:
            given = list(reader.messages(timeout=NOW))
            if cumulative:
                reader.ack_cumulative(given[-1], txn=txn)
            else:
                reader.ack(given, txn=txn)
            return sorted(message.value["n"] for message in given), txn.commit().skipped

    write(topic, 0)
    assert step(consumer, 1) == ([0, 1, 2, 3], False)
    write(topic, 4)
    with topic.consumer("t", "s") as again:
        assert step(again, 1) == ([4, 5, 6, 7], True)
        write(topic, 8)
        assert step(again, 2) == ([4, 5, 6, 7, 8, 9, 10, 11], False)
    with topic.consumer("t", "s") as last:
        assert numbers(last) == []


def test_one_of_two_transactions_that_ack_the_same_row_wins(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    with topic.consumer("t", "s") as other, topic.begin() as first, topic.begin() as second:
        consumer.ack(list(consumer.messages(timeout=NOW)), txn=first)
        other.ack(list(other.messages(timeout=NOW)), txn=second)
        second.append("t", rows(100))
        first.commit()
        with pytest.raises(AckConflict):
            second.commit()
    assert numbers(consumer) == []
    assert consumer.lag().rows == 0


def test_a_transaction_of_acks_alone(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    with topic.begin(app="a", version=1) as txn:
        consumer.ack(list(consumer.messages(timeout=NOW)), txn=txn)
        committed = txn.commit()
    assert (committed.number, committed.skipped) == (None, False)
    assert committed.txn_id is not None
    with topic.begin(app="a", version=1) as again:
        assert again.commit().skipped


def test_parents_come_before_children(topic: Cluster, consumer: Consumer) -> None:
    expected: dict[str, list[int]] = {f"k{i}": [] for i in range(4)}
    at = 0
    for step in range(6):
        write(topic, at, 8)
        for n in range(at, at + 8):
            expected[f"k{n % 4}"].append(n)
        at += 8
        active = [s.id for s in topic.topics.describe("t").segments if s.sealed_ms is None]
        if step == 3:
            topic.topics.merge("t", active[0], active[1])
        else:
            topic.topics.split("t", active[-1])
    found: dict[str, list[int]] = {f"k{i}": [] for i in range(4)}
    for message in consumer.messages(timeout=NOW):
        found[message.value["k"]].append(message.value["n"])
        consumer.ack(message)
    assert found == expected
    assert consumer.lag().rows == 0
    consumer.rewind()
    assert numbers(consumer) == []


def test_a_new_column_appears_with_the_next_batch(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    assert len(numbers(consumer)) == 4
    with topic.begin() as txn:
        txn.append("t", pa.table({"k": ["a"], "n": [9], "more": ["x"]}), merge_schema=True)
        txn.commit()
    assert [m.value for m in consumer.messages(timeout=NOW)] == [{"k": "a", "n": 9, "more": "x"}]
    with topic.consumer("t", "s", columns=["n"]) as narrow:
        assert next(narrow.messages(timeout=NOW)).value.keys() == {"n"}


def test_a_commit_wakes_a_waiting_consumer(topic: Cluster, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer without rows sleeps for ten minutes here. The registration or the events of a commit wake it earlier."""
    monkeypatch.setattr("txnsegment.consumer.IDLE_SECONDS", 600.0)
    monkeypatch.setattr("txnsegment.consumer.UNDECIDED_SECONDS", 600.0)
    waiting = threading.Event()
    got: list[int] = []

    def follow() -> None:
        with connect(url) as mine, mine.consumer("t", "s", start="earliest") as consumer:
            waiting.set()
            for message in consumer.messages():
                got.append(message.value["n"])
                if len(got) == 4:
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    assert waiting.wait(60)
    write(topic, 0)
    thread.join(60)
    assert not thread.is_alive()
    assert sorted(got) == [0, 1, 2, 3]


def test_a_consumer_of_a_missing_subscription_is_refused(topic: Cluster) -> None:
    with pytest.raises(SubscriptionNotFound, match=r"subscriptions create topic://public/default/t nope"):
        topic.consumer("t", "nope")


def test_a_producer_commits_the_sent_rows(topic: Cluster, consumer: Consumer) -> None:
    with topic.producer("t") as producer:
        producer.send({"k": "a", "n": 1})
        producer.send({"k": "b", "n": 2})
        assert numbers(consumer) == []
        committed = producer.flush()
        assert committed is not None
        assert committed.rows == 2
        assert producer.flush() is None
        assert sorted(numbers(consumer)) == [1, 2]
        producer.write(rows(10))
        assert sorted(numbers(consumer)) == [10, 11, 12, 13]
        with topic.begin() as txn:
            producer.write(rows(20), txn=txn)
            txn.abort()
        producer.send({"k": "c", "n": 3})
    assert numbers(consumer) == [3]


def test_a_producer_whose_block_raises_drops_its_rows(topic: Cluster, consumer: Consumer) -> None:
    def fail() -> None:
        with topic.producer("t") as producer:
            producer.send({"k": "a", "n": 1})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert numbers(consumer) == []


def trim(topic: Cluster) -> None:
    """Fold all registrations by a sweep, which also trims, and trim once more."""
    inner = topic.client.cluster
    inner.settings = inner.settings.model_copy(update={"fold_after_registrations": 1})
    topic.sweep()
    topic.retention.trim("t")


def test_trimmed_rows_acknowledged_by_another_consumer_are_no_loss(topic: Cluster, consumer: Consumer) -> None:
    """Another consumer acknowledges rows, and retention trims them. The first consumer continues after these rows. Formerly it got
    DataLoss (found by `make surface`).
    """
    write(topic, 0)
    assert sorted(numbers(consumer)) == [0, 1, 2, 3]
    write(topic, 4)
    with topic.consumer("t", "s") as other:
        given = list(other.messages(timeout=NOW))
        other.ack_cumulative(given[-1])
    topic.retention.set("t", keep_bytes=1)
    trim(topic)
    write(topic, 8)
    assert sorted(numbers(consumer)) == [8, 9, 10, 11]


def test_trimmed_unacknowledged_rows_are_a_loss(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0)
    assert sorted(numbers(consumer)) == [0, 1, 2, 3]
    write(topic, 4)
    topic.retention.set("t", keep_bytes=1, despite_subscriptions=True)
    trim(topic)
    write(topic, 8)
    with pytest.raises(DataLoss, match="trimmed by retention"):
        numbers(consumer)


def test_undelivered_rows_of_a_recreated_topic_are_a_loss(topic: Cluster, consumer: Consumer) -> None:
    topic.topics.create("u", schema="n bigint")
    with topic.consumer(["t", "u"], "s", start="earliest") as both:
        write(topic, 0, count=1)
        assert numbers(both) == [0]
        write(topic, 1, count=2)
        topic.topics.delete("t")
        topic.topics.create("t", schema="k string, n bigint")
        write(topic, 3, count=1)
        for _ in range(2):
            with pytest.raises(DataLoss, match=r"was deleted by the seal .*rewind"):
                numbers(both)
        with pytest.raises(SubscriptionNotFound):
            both.rewind()
        topic.subscriptions.create("t", "s", start="earliest")
        both.rewind()
        assert numbers(both) == [3]


def test_a_topic_deleted_after_its_last_delivery_is_no_loss(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0, count=2)
    first, second = consumer.messages(timeout=NOW)
    consumer.ack(second)
    consumer.rewind()
    assert numbers(consumer) == [first.value["n"]]
    topic.topics.delete("t")
    topic.topics.create("t", schema="k string, n bigint")
    write(topic, 2, count=1)
    assert numbers(consumer) == [2]


@pytest.mark.parametrize("end", ["abort", "skip"])
def test_a_consumer_that_resets_itself_reports_the_deleted_rows(topic: Cluster, consumer: Consumer, end: str) -> None:
    with topic.begin(app="etl", version=1) as txn:
        txn.commit()
    write(topic, 0, count=1)
    (first,) = consumer.messages(timeout=NOW)
    with topic.begin(app="etl", version=1) as txn:
        consumer.ack(first, txn=txn)
        write(topic, 1, count=1)
        topic.topics.delete("t")
        topic.topics.create("t", schema="k string, n bigint")
        topic.subscriptions.create("t", "s", start="earliest")
        if end == "abort":
            txn.abort()
        else:
            assert txn.commit().skipped
    for _ in range(2):
        with pytest.raises(DataLoss, match="was deleted by the seal"):
            numbers(consumer)
    write(topic, 2, count=1)
    consumer.rewind()
    assert numbers(consumer) == [2]


def test_deleted_rows_acknowledged_by_another_consumer_are_no_loss(topic: Cluster, consumer: Consumer) -> None:
    write(topic, 0, count=3)
    with topic.consumer("t", "s") as other:
        other.ack(other.messages(timeout=NOW))
    topic.topics.delete("t")
    topic.topics.create("t", schema="k string, n bigint")
    write(topic, 3, count=1)
    assert numbers(consumer) == [3]


def test_a_cumulative_ack_spares_rows_returned_by_a_skipped_transaction(topic: Cluster, consumer: Consumer) -> None:
    with topic.begin(app="etl", version=1) as txn:
        txn.commit()
    write(topic, 0, count=2)
    first, second = consumer.messages(timeout=NOW)
    with topic.begin(app="etl", version=1) as txn:
        consumer.ack_cumulative(first, txn=txn)
        assert txn.commit().skipped
    with pytest.raises(NotDelivered, match="was skipped"):
        consumer.ack_cumulative(second)
    *_, last = consumer.messages(timeout=NOW)
    consumer.ack_cumulative(last)
    consumer.rewind()
    assert numbers(consumer) == []
