"""Spark reads the rows that Pulsar's own Java client (v5) writes, and each of the three Java consumers reads the rows that Spark
writes. No reader gets rows of aborted transactions.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from pyspark.errors import PySparkException

from conformance.pulsar_java import Compression, How, JavaClient, Schema
from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.pulsar

TEXT = "Grüße an alle, die dies lesen. " * 150
"""A text of more than 4 KiB, because Pulsar's Java client compresses only entries of at least 4 KiB."""
ORDERS = [
    {"id": 1, "name": "Ölkanne", "price": 2.5},
    {"id": 2**40, "name": None, "price": None},
    {"id": None, "name": "", "price": -0.5},
]
PAIRS = [{"key": f"k{number}", "value": one} for number, one in enumerate(ORDERS)]
CONSUMERS: Sequence[How] = get_args(How)


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> str:
    """Return a new topic with two segments."""
    return pulsar_broker.create(f"spark-and-java-{uuid.uuid4().hex[:8]}", 2)


class Spark:
    """Reads and writes topics of one broker with Spark."""

    def __init__(self, spark: SparkSession, broker: PulsarBroker, folder: Path) -> None:
        self.session, self._broker, self._folder = spark, broker, folder

    def read(self, topic: str, **options: str) -> DataFrame:
        return self.session.read.format("txnsegment").option("serviceUrl", self._broker.url).options(**options).load(topic)

    def stream(self, topic: str, **options: str) -> list[Any]:
        """Read a topic as a stream with `Trigger.AvailableNow`. Return all rows."""
        rows: list[Any] = []
        source = self.session.readStream.format("txnsegment").option("serviceUrl", self._broker.url).options(**options)
        writer = source.load(topic).writeStream.foreachBatch(lambda found, _: rows.extend(found.collect()))
        query = writer.option("checkpointLocation", str(self._folder / uuid.uuid4().hex)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()
        return rows

    def write(self, topic: str, rows: DataFrame, **options: str) -> None:
        given = {"serviceUrl": self._broker.url, "adminUrl": self._broker.admin_url, **options}
        rows.write.format("txnsegment").mode("append").options(**given).save(topic)


@pytest.fixture
def in_spark(spark: SparkSession, pulsar_broker: PulsarBroker, tmp_path: Path) -> Spark:
    return Spark(spark, pulsar_broker, tmp_path)


def rows_from(first: int, count: int = 10, text: str = TEXT) -> list[dict[str, Any]]:
    numbers = range(first, first + count)
    return [
        {"key": f"k{n % 5}", "value": f"{n} {text}", "properties": {"n": str(n), "ü": "ß"}, "event_ms": 1000 + n} for n in numbers
    ]


def shown(row: Any) -> dict[str, Any]:
    return {
        "key": bytes(row["__key"]).decode(),
        "value": row["value"],
        "properties": row["__properties"],
        "event_ms": row["event_ms"],
    }


def settled(client: PulsarClient, java: JavaClient, topic: str, count: int) -> None:
    """Wait until the broker delivers all `count` committed rows. A segment applies the end of a transaction after the coordinator
    has answered.
    """
    assert len(java.read(topic, count=count, how="checkpoint")) == count


def test_rows_of_java_are_read_by_a_batch_and_a_stream(java: JavaClient, client: PulsarClient, in_spark: Spark, topic: str) -> None:
    """Java writes rows with each compression, in batches and one by one, with and without transactions, and large
    rows in chunks.
    """
    first, written = 0, []
    for compression in get_args(Compression):
        for batch in (0, 7):
            for end in (None, "commit", "abort"):
                rows = rows_from(first, 5)
                java.write(topic, rows, compression=compression, batch=batch, end=end)
                written += [] if end == "abort" else rows
                first += 5
    large = rows_from(first, 3, "x" * 200_000)
    java.write(topic, large, chunk=50_000)
    written += large
    settled(client, java, topic, len(written))
    options = {"includeMetadata": "true"}
    found = in_spark.read(topic, **options).selectExpr("*", "unix_millis(__eventTime) AS event_ms").collect()
    assert sorted(map(shown, found), key=lambda row: int(row["properties"]["n"])) == written
    for key in {bytes(row["__key"]) for row in found}:
        mine = [row for row in found if bytes(row["__key"]) == key]
        mine.sort(key=lambda row: (row["__segment"], *map(int, row["__messageId"].split(":"))))
        numbers = [int(row["__properties"]["n"]) for row in mine]
        assert numbers == sorted(numbers), "the rows of a key are in order"
    streamed = in_spark.stream(topic, startingOffsets="earliest", maxBytesPerTrigger="200k")
    assert sorted(row["value"] for row in streamed) == sorted(row["value"] for row in written)


VALUES: dict[Schema, list[Any]] = {"avro": ORDERS, "json": ORDERS, "inline": PAIRS, "separated": PAIRS}


@pytest.mark.parametrize("schema", VALUES)
def test_values_with_a_schema_of_java_are_columns(java: JavaClient, in_spark: Spark, topic: str, schema: Schema) -> None:
    java.write(topic, [{"value": value} for value in VALUES[schema]], schema=schema)
    found = [row.asDict(recursive=True) for row in in_spark.read(topic).collect()]
    assert sorted(found, key=str) == sorted(VALUES[schema], key=str)


@pytest.mark.parametrize("schema", VALUES)
def test_columns_of_spark_are_read_by_java(java: JavaClient, in_spark: Spark, topic: str, schema: Schema) -> None:
    """The Java client has given the topic a schema. Spark writes its columns by this schema."""
    java.write(topic, [{"value": VALUES[schema][0]}], schema=schema)
    rows = in_spark.read(topic)
    in_spark.write(topic, in_spark.session.createDataFrame(VALUES[schema], rows.schema))
    expected = sorted([VALUES[schema][0], *VALUES[schema]], key=str)
    for how in CONSUMERS:
        assert sorted((row["value"] for row in java.read(topic, count=4, how=how, schema=schema)), key=str) == expected, how


def test_keyed_rows_of_spark_are_read_by_java_and_those_of_a_failed_job_are_not(
    java: JavaClient, in_spark: Spark, topic: str
) -> None:
    """The topic has no schema. The first write gives it one: an AVRO record of the columns."""
    columns = ["id", "concat('n', id % 3) AS name", "id / 2 AS price"]
    in_spark.write(topic, in_spark.session.range(30).selectExpr(*columns), keyColumn="name", compression="zstd")
    failing = in_spark.session.range(30, 60).repartition(2).selectExpr("if(id = 55, raise_error('stop'), id) AS id")
    with pytest.raises(PySparkException, match="stop"):
        in_spark.write(topic, failing.selectExpr(*columns), keyColumn="name", entryRows="2")
    in_spark.write(topic, in_spark.session.range(60, 70).selectExpr(*columns), keyColumn="name")
    for how in CONSUMERS:
        found = java.read(topic, count=40, how=how, schema="avro")
        assert sorted(row["value"]["id"] for row in found) == [*range(30), *range(60, 70)], how
        assert {(row["key"], row["value"]["name"]) for row in found} == {(f"n{n}", f"n{n}") for n in range(3)}
        if how != "queue":
            for key in ("n0", "n1", "n2"):
                ids = [row["value"]["id"] for row in found if row["key"] == key]
                assert [one for one in ids if one >= 60] == ids[-len([one for one in ids if one >= 60]) :], "jobs are in order"


def test_rows_of_a_stream_of_spark_are_read_by_java(
    java: JavaClient, in_spark: Spark, pulsar_broker: PulsarBroker, topic: str, tmp_path: Path
) -> None:
    source = pulsar_broker.create(f"{topic}-source", 2)
    java.write(source, [{"key": "k", "value": one} for one in ORDERS], schema="avro")
    stream = in_spark.session.readStream.format("txnsegment").option("serviceUrl", pulsar_broker.url)
    rows = stream.option("startingOffsets", "earliest").load(source)
    given = {"serviceUrl": pulsar_broker.url, "adminUrl": pulsar_broker.admin_url, "topic": topic}
    writer = rows.writeStream.format("txnsegment").outputMode("append").options(**given)
    query = writer.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(240)
    finally:
        query.stop()
    for how in CONSUMERS:
        found = java.read(topic, count=3, how=how, schema="avro")
        assert sorted((row["value"] for row in found), key=str) == sorted(ORDERS, key=str), how
