"""Rows in topics of a real Pulsar broker, for tests of the source."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Compression, Message
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.producer import Producer
from pyspark_txnsegment import DefaultSource
from spark_txn_source.pulsar.batch import BatchReader
from spark_txn_source.pulsar.several_streams import SeveralStreamReader
from spark_txn_source.pulsar.stream import StreamReader


class Topic:
    """One topic and its producers. The value of each row is a number as text."""

    def __init__(self, broker: PulsarBroker, client: PulsarClient, name: str) -> None:
        self.broker, self.client, self.name = broker, client, name
        self._producers: dict[str, Producer] = {}

    def segment(self, number: int = 0) -> str:
        """Return the name of a segment, by its id."""
        return self.client.layout(self.name).segments[number].name

    def send(
        self, segment: str, numbers: Sequence[int], txn: TxnId | None = None, compression: Compression = "none", **fields: Any
    ) -> Position:
        """Write the numbers to a segment as one entry."""
        if segment not in self._producers:
            self._producers[segment] = Producer(self.client, segment)
        return self._producers[segment].send([Message(b"%d" % one, **fields) for one in numbers], txn, compression)

    def decided(self, segment: str, at: Position) -> None:
        """Wait until the broker delivers a committed entry. `at`: the position of this entry."""
        found = Segment(self.client, segment).first_after(Position(at.ledger, at.entry - 1) if at.entry else EARLIEST)
        assert found.position == at

    def split(self, number: int = 0) -> None:
        self._producers.clear()
        self.broker.split(self.name, number)

    def unload(self, path: str) -> None:
        """Let the broker close the topic and its ledger. `path`: the path of the topic in the REST interface."""
        self._producers.clear()
        self.broker.rest("PUT", f"{path}/unload")

    def options(self, **more: str) -> dict[str, str]:
        return {"serviceUrl": self.broker.url, "topic": self.name, **more}

    def rows(self, **options: str) -> list[int]:
        """Read the topic in a batch, without Spark."""
        reader = self.reader(**options)
        return _numbers(reader, reader.partitions())

    def reader(self, **options: str) -> BatchReader:
        """Return the reader of a batch."""
        given = self.options(**options)
        return BatchReader(given, DefaultSource(given).schema())

    def stream(self, **options: str) -> Stream:
        return Stream(self.stream_reader(**options))

    def stream_reader(self, **options: str) -> StreamReader:
        given = self.options(**options)
        return StreamReader(given, DefaultSource(given).schema())


class Stream:
    """A stream reader that is called as Spark calls it, and its checkpoint: the ends of its batches."""

    def __init__(self, reader: StreamReader | SeveralStreamReader) -> None:
        self.reader = reader
        self.ends: list[dict[str, Any]] = []

    def batch(self, limit: ReadLimit | None = None) -> list[int]:
        """Plan and read the next micro-batch. Return its rows; none if there is nothing new to read."""
        start = self.ends[-1] if self.ends else self.reader.initialOffset()
        end = self.reader.latestOffset(start, limit or ReadAllAvailable())
        if end == start and self.ends:
            return []
        rows = self.read(start, end)
        self.ends.append(json.loads(json.dumps(end)))
        self.reader.commit(end)
        return rows

    def batches(self, limit: ReadLimit | None = None) -> Iterator[list[int]]:
        """Yield the rows of micro-batches until there is nothing more to read."""
        while found := self.batch(limit):
            yield found

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
        return _numbers(self.reader, self.reader.partitions(start, end))


def _numbers(reader: Any, partitions: Sequence[Any]) -> list[int]:
    batches = itertools.chain.from_iterable(reader.read(one) for one in partitions)
    return [int(value) for batch in batches for value in batch.column("value").to_pylist()]


@contextmanager
def new_topic(broker: PulsarBroker, segments: int = 1) -> Iterator[Topic]:
    with PulsarClient(broker.url) as client:
        yield Topic(broker, client, broker.create(f"source-{uuid.uuid4().hex[:12]}", segments))
