"""Several tasks read one segment of a real Pulsar broker: `minPartitions` and `maxPartitionBytes`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import DataLoss
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.producer import Producer
from spark_txn_source.pulsar.dividing import runs_of
from spark_txn_source.pulsar.pieces import Run
from spark_txn_source.pulsar.tasks import PulsarTask
from tests.support.pulsar_topics import Topic, new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> Iterator[Topic]:
    with new_topic(pulsar_broker, 2) as found:
        yield found


def tasks_of(topic: Topic, **options: str) -> list[PulsarTask]:
    found = topic.reader(**options).partitions()
    assert all(isinstance(one, PulsarTask) for one in found)
    return [one for one in found if isinstance(one, PulsarTask)]


def rows_by_task(topic: Topic, **options: str) -> list[list[int]]:
    reader = topic.reader(**options)
    return [
        [int(value) for batch in reader.read(one) for value in batch.column("value").to_pylist()] for one in reader.partitions()
    ]


def test_several_tasks_read_one_segment_in_order(topic: Topic) -> None:
    one, two = topic.segment(0), topic.segment(1)
    for number in range(40):
        topic.send(one, [2 * number, 2 * number + 1])
    topic.send(two, [1000])
    found = rows_by_task(topic, minPartitions="5")
    assert len(found) == 5
    assert [row for rows in found for row in rows] == [*range(80), 1000], "the tasks of a segment follow one another"
    assert {len(rows) for rows in found[:-1]} == {20}, "they have equal numbers of entries"
    assert [len(rows) for rows in rows_by_task(topic)] == [80, 1], "few small entries need no second task"
    assert len(tasks_of(topic, minPartitions="1000")) == 41, "a task has at least one entry"


def test_the_size_of_a_task_is_limited(topic: Topic) -> None:
    one = topic.segment(0)
    with Producer(topic.client, one) as producer:
        for _ in range(20):
            producer.send([Message(b"1" * 10_000)])
    found = tasks_of(topic, maxPartitionBytes="50k")
    assert 4 <= len(found) <= 6
    assert len(tasks_of(topic, maxPartitionBytes="1m")) == 1
    assert len(tasks_of(topic, maxPartitionBytes="50k", minPartitions="10")) == 10


def test_aborted_and_open_transactions_change_no_row(topic: Topic) -> None:
    """The entries of aborted and open transactions count when a segment is divided, and a piece may end at one of them."""
    one = topic.segment(0)
    for number in range(30):
        if number % 3 == 0:
            txn = topic.client.begin(600_000)
            last = topic.send(one, [-number], txn)
            topic.client.end(txn, commit=False)
        else:
            last = topic.send(one, [number])
    topic.decided(one, last)
    wanted = [number for number in range(30) if number % 3]
    txn = topic.client.begin(600_000)
    topic.send(one, [100], txn)
    for least in ("2", "7", "30"):
        assert [row for rows in rows_by_task(topic, minPartitions=least) for row in rows] == wanted
    topic.client.end(txn, commit=False)


def test_a_message_in_chunks_is_in_one_task(topic: Topic) -> None:
    """The test tries every number of pieces, so that pieces begin and end between all chunks."""
    one = topic.segment(0)
    with Producer(topic.client, one) as producer:
        for number in range(4):
            topic.send(one, [number])
            last = producer.send_chunks(Message(b"0" * 700 + b"%d" % (10 + number)), 100)
    count = last.entry + 1
    assert count >= 30
    wanted = [row for number in range(4) for row in (number, 10 + number)]
    for least in range(1, count + 1):
        assert [row for rows in rows_by_task(topic, minPartitions=str(least)) for row in rows] == wanted
    assert len(tasks_of(topic, minPartitions=str(count))) == count


def test_ledgers_are_counted_from_the_end(topic: Topic) -> None:
    """Each unload of a topic begins a new ledger."""
    topic.name = name = topic.name.replace("topic://", "persistent://")
    path = name.replace("://", "/")
    topic.broker.rest("PUT", path)
    places = []
    for ledger in range(3):
        if ledger:
            topic.unload(path)
        places += [topic.send(name, [number]) for number in range(5 * ledger, 5 * ledger + 5)]
    first, second, third = sorted({one.ledger for one in places})
    segment = Segment(topic.client, name)
    assert runs_of(segment, EARLIEST, places[-1]) == [Run(first, 0, 4), Run(second, 0, 4), Run(third, 0, 4)]
    assert runs_of(segment, places[2], places[11]) == [Run(first, 3, 4), Run(second, 0, 4), Run(third, 0, 1)]
    assert runs_of(segment, places[4], places[9]) == [Run(second, 0, 4)]
    assert rows_by_task(topic, minPartitions="4") == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9, 10], [11, 12, 13, 14]]


def test_a_stream_and_its_replay_have_the_same_rows(topic: Topic) -> None:
    one = topic.segment(0)
    for number in range(24):
        topic.send(one, [number])
    stream = topic.stream(startingOffsets="earliest", minPartitions="3")
    first = stream.reader.initialOffset()
    batches = list(stream.batches(ReadMaxRows(1000)))
    assert batches == [list(range(24))]
    assert len(stream.reader.partitions(first, stream.ends[-1])) == 3
    for least in ("1", "7"):
        again = topic.stream(startingOffsets="earliest", minPartitions=least)
        assert again.read(first, stream.ends[-1]) == list(range(24))
    with_one = topic.stream(startingOffsets="earliest")
    assert len(with_one.reader.partitions(first, stream.ends[-1])) == 1, "a stream has one task for a segment by default"


def test_the_tasks_of_parents_are_before_those_of_their_children(topic: Topic) -> None:
    for number in range(8):
        topic.send(topic.segment(0), [number])
        topic.send(topic.segment(1), [100 + number])
    topic.split(0)
    for number in range(4):
        topic.send(topic.segment(2), [50 + number])
        topic.send(topic.segment(3), [60 + number])
    found = rows_by_task(topic, minPartitions="9")
    assert len(found) >= 9
    rows = [row for task in found for row in task]
    for row in (50, 60):
        assert [one for one in rows if one < 8 or row <= one < row + 4] == [*range(8), *range(row, row + 4)]
    assert [row for row in rows if row >= 100] == list(range(100, 108))


def test_entries_that_retention_has_deleted_are_data_loss_with_several_tasks(topic: Topic) -> None:
    one = topic.segment(0)
    last: Any = [topic.send(one, [number]) for number in range(6)][-1]
    lost = json.dumps({"segments": {one: Position(last.ledger - 1, 7).text}})
    with pytest.raises(DataLoss, match=one):
        topic.rows(startingOffsets=lost, minPartitions="3")
    assert topic.rows(startingOffsets=lost, minPartitions="3", failOnDataLoss="false") == list(range(6))
    with pytest.raises(DataLoss, match=one):
        topic.stream(startingOffsets=lost, minPartitions="3").batch()


def test_spark_reads_a_segment_with_several_tasks(spark: SparkSession, topic: Topic) -> None:
    one = topic.segment(0)
    for number in range(12):
        topic.send(one, [number])
    given = {"serviceUrl": topic.broker.url, "minPartitions": "4"}
    found = spark.read.format("txnsegment").options(**given).load(topic.name)
    assert found.rdd.getNumPartitions() == 4
    assert [int(row["value"]) for row in found.collect()] == list(range(12))
