"""Reads return each transaction of txnsegment's writers as a whole or not at all, on a real broker.

Segment B is pinned by an open transaction of another program. A transaction in A and B that is committed after it is visible in A
and hidden in B.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.layout import Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import Sent, log_name, record_sent
from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.stream import StreamReader

pytestmark = pytest.mark.pulsar

VALUE = StructType([StructField("value", BinaryType())])
VISIBLE_SECONDS = 30.0


@dataclass
class Place:
    """A topic with two segments, and the topic's log of writers."""

    client: PulsarClient
    url: str
    topic: str

    def __post_init__(self) -> None:
        self.a, self.b = (one.name for one in self.client.layout(self.topic).active)
        self.log = self.client.layout(log_name(self.topic)).active[0].name

    def send(self, segment: str, value: str, txn: TxnId | None = None) -> Position:
        with Producer(self.client, segment) as producer:
            return producer.send([Message(value.encode())], txn)

    def transaction(self, name: str, *, recorded: bool = True, commit: bool = True) -> None:
        """Write one row into each segment in one transaction, and end it."""
        txn = self.client.begin(60_000)
        places = {segment: self.send(segment, f"{name}-{segment[-1]}", txn) for segment in (self.a, self.b)}
        if recorded:
            record_sent(self.client, self.log, Sent(txn, {segment: (at, at) for segment, at in places.items()}))
        self.client.end(txn, commit=commit)

    @property
    def options(self) -> dict[str, str]:
        return {"serviceUrl": self.url, "topic": self.topic, "startingOffsets": "earliest", "valueFormat": "binary"}

    def read(self) -> list[str]:
        """Return the rows of a batch read."""
        reader = BatchReader(self.options, VALUE)
        return values(reader, reader.partitions())

    def read_until(self, wanted: list[str]) -> None:
        """Read until these rows are there. The broker shows a decision a moment after it has answered."""
        deadline = time.monotonic() + VISIBLE_SECONDS
        while (found := sorted(self.read())) != wanted:
            assert time.monotonic() < deadline, found


def values(reader: BatchReader | StreamReader, partitions: object) -> list[str]:
    return [
        value.decode()
        for partition in partitions  # type: ignore[attr-defined]
        for batch in reader.read(partition)
        for value in batch.column("value").to_pylist()
    ]


@pytest.fixture
def place(pulsar_broker: PulsarBroker) -> Iterator[Place]:
    topic = f"topic://public/default/whole-{uuid.uuid4().hex[:8]}"
    pulsar_broker.create(topic, 2)
    pulsar_broker.create(log_name(topic), 1)
    with PulsarClient(pulsar_broker.url) as client:
        yield Place(client, pulsar_broker.url, topic)


def test_a_batch_has_all_rows_of_a_transaction_or_none(place: Place) -> None:
    place.transaction("first")
    place.read_until(["first-0", "first-1"])
    other = place.client.begin(60_000)
    place.send(place.b, "other", other)
    place.transaction("second")
    place.send(place.a, "plain")
    for _ in range(3):
        assert sorted(place.read()) == ["first-0", "first-1"], "the second transaction is hidden in one segment"
    place.client.end(other, commit=False)
    place.read_until(["first-0", "first-1", "plain", "second-0", "second-1"])


def test_a_transaction_of_another_program_is_read_segment_by_segment(place: Place) -> None:
    """Nobody has recorded its rows, so no reader can know that it is split. docs/pulsar.md says so."""
    other = place.client.begin(60_000)
    place.send(place.b, "other", other)
    place.transaction("foreign", recorded=False)
    place.read_until(["foreign-0"])
    place.client.end(other, commit=True)
    place.read_until(["foreign-0", "foreign-1", "other"])


def test_an_aborted_transaction_holds_nothing_back(place: Place) -> None:
    """Its rows are the last ones of segment B, and segment A has later rows."""
    place.transaction("first")
    place.transaction("gone", commit=False)
    place.send(place.a, "plain")
    place.read_until(["first-0", "first-1", "plain"])


def test_micro_batches_split_no_transaction(place: Place) -> None:
    """With a limit of one row, each micro-batch still has whole transactions."""
    for number in range(4):
        place.transaction(f"t{number}")
    place.read_until(sorted(f"t{number}-{segment}" for number in range(4) for segment in (0, 1)))
    reader = StreamReader(place.options | {"maxRowsPerTrigger": "1"}, VALUE)
    offset, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(offset, ReadMaxRows(1))) != offset:
        batches.append(sorted(values(reader, reader.partitions(offset, end))))
        offset = end
    assert batches == [[f"t{number}-0", f"t{number}-1"] for number in range(4)]


def test_a_stream_waits_for_the_rest_of_a_transaction(place: Place) -> None:
    reader = StreamReader(place.options, VALUE)
    other = place.client.begin(60_000)
    place.send(place.b, "other", other)
    place.send(place.a, "plain")
    place.transaction("second")
    deadline = time.monotonic() + VISIBLE_SECONDS
    start = offset = reader.initialOffset()
    while (end := reader.latestOffset(offset, ReadAllAvailable())) == offset:
        assert time.monotonic() < deadline
    assert values(reader, reader.partitions(offset, end)) == ["plain"]
    place.client.end(other, commit=True)
    offset, found = end, []
    while len(found) < 3:
        assert time.monotonic() < deadline
        end = reader.latestOffset(offset, ReadAllAvailable())
        part = values(reader, reader.partitions(offset, end)) if end != offset else []
        assert ("second-0" in part) == ("second-1" in part), part
        found, offset = found + part, end
    assert sorted(found) == ["other", "second-0", "second-1"]
    assert start != offset
