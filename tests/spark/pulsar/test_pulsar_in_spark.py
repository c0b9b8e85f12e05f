"""Tests of topics of a real Pulsar broker in `spark.read` and `spark.readStream`."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.entries import Message
from pulsar_protocol.producer import Producer
from pulsar_protocol.values import codec_for
from tests.support.pulsar_topics import Topic, new_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.pulsar


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> Iterator[Topic]:
    with new_topic(pulsar_broker, 2) as found:
        yield found


def read(spark: SparkSession, topic: Topic, **options: str) -> DataFrame:
    return spark.read.format("txnsegment").option("serviceUrl", topic.broker.url).options(**options).load(topic.name)


def rows_of(found: DataFrame) -> list[int]:
    return sorted(int(row["value"]) for row in found.collect())


class Query:
    """A streaming query that collects the rows of each micro-batch."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path, **options: str) -> None:
        self._given = {"serviceUrl": topic.broker.url, "startingOffsets": "earliest", **options}
        self._spark, self._topic, self._folder = spark, topic, folder
        self.batches: list[list[int]] = []

    def run(self) -> list[list[int]]:
        """Run the query with what is available now, from its checkpoint. Return the rows of its new micro-batches."""
        before = len(self.batches)
        stream = self._spark.readStream.format("txnsegment").options(**self._given).load(self._topic.name)
        writer = stream.writeStream.foreachBatch(lambda found, _: self.batches.append(rows_of(found)))
        query = writer.option("checkpointLocation", str(self._folder)).trigger(availableNow=True).start()
        try:
            query.awaitTermination(120)
        finally:
            query.stop()
        return [one for one in self.batches[before:] if one]


def test_a_batch_reads_committed_rows(spark: SparkSession, topic: Topic) -> None:
    topic.send(topic.segment(0), [1, 2])
    txn = topic.client.begin(600_000)
    topic.send(topic.segment(1), [3], txn, "snappy")
    topic.send(topic.segment(1), [4])
    assert rows_of(read(spark, topic)) == [1, 2]
    topic.client.end(txn, commit=True)
    topic.decided(topic.segment(1), topic.send(topic.segment(1), [5]))
    assert rows_of(read(spark, topic)) == [1, 2, 3, 4, 5]
    assert read(spark, topic).dtypes == [("value", "binary")]


def test_the_columns_are_those_of_the_schema(spark: SparkSession, topic: Topic) -> None:
    columns = pa.schema([("n", pa.int64()), ("name", pa.string())])
    values = codec_for(columns, "avro")
    rows = pa.RecordBatch.from_pylist([{"n": 1, "name": "a"}, {"n": 2, "name": None}], columns)
    with Producer(topic.client, topic.segment(0), schema=values.schema) as producer:
        producer.send([Message(one) for one in values.encode(rows)])
    assert sorted(map(tuple, read(spark, topic).collect())) == [(1, "a"), (2, None)]
    assert [tuple(row) for row in read(spark, topic).where("n = 2").select("name", "n").collect()] == [(None, 2)]
    assert [row[0] for row in read(spark, topic, columns="name").orderBy("name").collect()] == [None, "a"]
    assert read(spark, topic, valueFormat="binary").dtypes == [("value", "binary")]
    given = spark.read.format("txnsegment").option("serviceUrl", topic.broker.url).schema("name string").load(topic.name)
    assert sorted(row["name"] or "" for row in given.collect()) == ["", "a"]


def test_metadata_columns(spark: SparkSession, topic: Topic) -> None:
    segment = topic.segment(1)
    txn = topic.client.begin(600_000)
    fields: dict[str, Any] = {"key": b"k", "properties": {"p": "1", "q": ""}, "event_ms": 1_700_000_000_123, "ordering_key": b"o"}
    place = topic.send(segment, [7, 8], txn, **fields)
    topic.client.end(txn, commit=True)
    topic.decided(segment, place)
    topic.send(segment, [9])
    first, second, third = sorted(read(spark, topic, includeMetadata="true").collect(), key=lambda row: bytes(row["value"]))
    assert (first["__topic"], first["__segment"], first["__txnId"]) == (topic.name, segment, txn.text)
    assert [first["__messageId"], second["__messageId"]] == [f"{place.text}:0", f"{place.text}:1"]
    assert (bytes(first["__key"]), first["__properties"], bytes(first["__orderingKey"])) == (b"k", {"p": "1", "q": ""}, b"o")
    assert first["__eventTime"] == datetime.datetime(2023, 11, 14, 22, 13, 20, 123000)
    assert abs(first["__publishTime"] - datetime.datetime.now(datetime.UTC).replace(tzinfo=None)) < datetime.timedelta(minutes=5)
    assert [third[name] for name in ("__key", "__properties", "__eventTime", "__orderingKey", "__txnId")] == [
        None,
        {},
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("by", ["probes", "records"])
def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, topic: Topic, tmp_path: Path, by: str) -> None:
    options = {"metadataUrl": topic.broker.metadata_url} if by == "records" else {}
    query = Query(spark, topic, tmp_path / "checkpoint", **options)
    topic.send(topic.segment(0), [1])
    topic.send(topic.segment(1), [2])
    assert query.run() == [[1, 2]]
    assert query.run() == []
    txn = topic.client.begin(600_000)
    topic.send(topic.segment(0), [3], txn)
    topic.send(topic.segment(1), [4])
    assert query.run() == [[4]]
    topic.client.end(txn, commit=True)
    topic.decided(topic.segment(0), topic.send(topic.segment(0), [5]))
    assert query.run() == [[3, 5]]


def test_a_query_with_a_limit_over_a_split(spark: SparkSession, topic: Topic, tmp_path: Path) -> None:
    for number in range(6):
        topic.send(topic.segment(number % 2), range(number * 10, number * 10 + 10))
    topic.split(0)
    topic.send(topic.segment(2), [100])
    topic.send(topic.segment(3), [101])
    found = Query(spark, topic, tmp_path / "checkpoint", maxRowsPerTrigger="20").run()
    assert sorted(number for one in found for number in one) == [*range(60), 100, 101]
    assert len(found) >= 4
    assert not {100, 101} & {number for one in found[:3] for number in one}


def test_errors_reach_the_user(spark: SparkSession, topic: Topic) -> None:
    with pytest.raises(PySparkException, match="cannot be used with a Pulsar cluster"):
        read(spark, topic, timestampTimeoutMs="5")
    topic.name = "topic://public/default/not-there"
    with pytest.raises(PySparkException, match="not-there"):
        read(spark, topic)
