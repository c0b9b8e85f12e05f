"""`schemaVersion`: a topic of a real Pulsar broker is read into the columns of one version of its schema."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from ledgers.errors import SchemaError
from pulsar_protocol.entries import Message
from pulsar_protocol.producer import Producer
from pulsar_protocol.values import codec_for
from pyspark_txnsegment import DefaultSource
from spark_txn_source.pulsar.batch import BatchReader
from tests.support.pulsar_topics import Topic, new_topic

pytestmark = pytest.mark.pulsar

OLD = pa.schema([("id", pa.int64()), ("name", pa.string())])
NEW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("more", pa.int32())])


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> Iterator[Topic]:
    """A topic with a row of each of its two schema versions."""
    with new_topic(pulsar_broker) as found:
        for columns, row in ((OLD, {"id": 1, "name": "a"}), (NEW, {"id": 2, "name": "b", "more": 7})):
            values = codec_for(columns, "avro")
            with Producer(found.client, found.segment(), schema=values.schema) as producer:
                producer.send([Message(one) for one in values.encode(pa.RecordBatch.from_pylist([row], columns))])
        yield found


def rows(topic: Topic, **options: str) -> list[dict[str, object]]:
    given = topic.options(**options)
    reader = BatchReader(given, DefaultSource(given).schema())
    return [row for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]


def test_the_columns_are_those_of_the_version(topic: Topic) -> None:
    assert rows(topic, schemaVersion="0") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    newest = [{"id": 1, "name": "a", "more": None}, {"id": 2, "name": "b", "more": 7}]
    assert rows(topic, schemaVersion="1") == newest
    assert rows(topic) == newest
    assert rows(topic, schemaVersion="0", columns="name") == [{"name": "a"}, {"name": "b"}]


def test_a_stream_reads_by_the_version(topic: Topic) -> None:
    reader = topic.stream_reader(schemaVersion="0", startingOffsets="earliest")
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = [row for one in reader.partitions(start, end) for batch in reader.read(one) for row in batch.to_pylist()]
    assert found == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_a_version_that_is_not_there_is_named(topic: Topic) -> None:
    with pytest.raises(SchemaError, match=f"{topic.name} has no schema version 9"):
        rows(topic, schemaVersion="9")
