"""The schema of a topic is gone, and rows that were written with it are there.

The broker 5.0.0-M1 deletes the schema of a topic together with a sealed segment. A test deletes it by the REST interface, at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from ledgers.errors import SchemaError
from pulsar_protocol.entries import Message
from pulsar_protocol.first_schema import register_first
from pulsar_protocol.producer import Producer
from pulsar_protocol.values import codec_for
from spark_txn_sink.pulsar.rows import row_format
from tests.support.pulsar_clusters import cluster, topic_with
from tests.support.pulsar_topics import Topic
from txnsegment.pulsar.cluster import PulsarCluster

__all__ = ["cluster"]
pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("bought", pa.int64()), ("sold", pa.int64())])
SWAPPED = pa.schema([("sold", pa.int64()), ("bought", pa.int64())])
ROWS = pa.table({"bought": [1, 2], "sold": [1000, 2000]}, COLUMNS)


def forget_schema(broker: PulsarBroker, topic: str) -> None:
    """Delete the schema of a topic with all its versions, as the broker does when it deletes a sealed segment."""
    broker.rest("DELETE", f"schemas/{topic.removeprefix('topic://')}/schema?force=true")


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> Topic:
    """A topic with two rows of a schema, which is gone."""
    name = topic_with(pulsar_broker, cluster, COLUMNS, 1)
    with cluster.begin() as txn:
        txn.append(name, ROWS)
        txn.commit()
    forget_schema(pulsar_broker, name)
    assert cluster.client.schema(name) is None
    return Topic(pulsar_broker, cluster.client, name)


def batch(topic: Topic, cluster: PulsarCluster) -> None:
    reader = topic.reader()
    for one in reader.partitions():
        list(reader.read(one))


def stream(topic: Topic, cluster: PulsarCluster) -> None:
    topic.stream(startingOffsets="earliest").batch()


def consumer(topic: Topic, cluster: PulsarCluster) -> None:
    with cluster.consumer(topic.name, "etl", start="earliest") as found:
        list(found.messages(timeout=0))


def looked_at(topic: Topic, cluster: PulsarCluster) -> None:
    list(cluster.rows(topic.name).rows)


@pytest.mark.parametrize("read", [batch, stream, consumer, looked_at])
def test_rows_whose_schema_is_gone_are_not_guessed(
    topic: Topic, cluster: PulsarCluster, read: Callable[[Topic, PulsarCluster], None]
) -> None:
    with pytest.raises(SchemaError, match=f"version 0 of {topic.name}") as caught:
        read(topic, cluster)
    assert "valueFormat=binary" in caught.value.advice
    assert "retention" in caught.value.advice


def test_the_bytes_of_rows_whose_schema_is_gone_can_be_read(topic: Topic, cluster: PulsarCluster) -> None:
    reader = topic.reader(valueFormat="binary")
    found = [value for one in reader.partitions() for part in reader.read(one) for value in part.column("value").to_pylist()]
    assert found == codec_for(COLUMNS, "avro").encode(ROWS.to_batches()[0])
    with cluster.consumer(topic.name, "bytes", start="earliest", value_format="binary") as consumed:
        assert [one.value["value"] for one in consumed.messages(timeout=0)] == found


def test_rows_can_be_read_again_when_their_schema_is_registered_again(topic: Topic, cluster: PulsarCluster) -> None:
    cluster.client.register(topic.segment(), codec_for(COLUMNS, "avro").schema)
    reader = topic.reader()
    assert [row for one in reader.partitions() for part in reader.read(one) for row in part.to_pylist()] == ROWS.to_pylist()


def plan(cluster: PulsarCluster, topic: str, columns: pa.Schema) -> None:
    row_format(cluster.client, topic, cluster.client.layout(topic).active[0].name, columns, None, "columns")


def test_a_write_registers_no_schema_beside_rows_of_a_schema_that_is_gone(topic: Topic, cluster: PulsarCluster) -> None:
    with pytest.raises(SchemaError, match=f"version 0 of {topic.name}") as caught:
        plan(cluster, topic.name, SWAPPED)
    assert "retention" in caught.value.advice
    assert cluster.client.schema(topic.name) is None


def test_a_write_registers_no_schema_beside_such_rows_in_a_sealed_segment(topic: Topic, cluster: PulsarCluster) -> None:
    topic.split()
    with pytest.raises(SchemaError, match=f"version 0 of {topic.name}"):
        plan(cluster, topic.name, SWAPPED)


def test_a_write_registers_no_schema_while_rows_are_undecided(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> None:
    name = topic_with(pulsar_broker, cluster, COLUMNS, 1)
    with cluster.begin() as txn:
        txn.append(name, ROWS)
        forget_schema(pulsar_broker, name)
        with pytest.raises(SchemaError, match="open or aborted transaction"):
            plan(cluster, name, SWAPPED)
    with Producer(cluster.client, cluster.client.layout(name).active[0].name) as producer:
        producer.send([Message(b"1")])  # after a row that is decided, the broker passes the rows of the aborted transaction
    plan(cluster, name, SWAPPED)
    assert cluster.client.schema(name) is not None


def test_a_schema_that_another_writer_registers_meanwhile_is_no_first_one(topic: Topic, cluster: PulsarCluster) -> None:
    values = codec_for(COLUMNS, "avro")
    cluster.client.register(topic.segment(), values.schema)
    register_first(cluster.client, topic.name, topic.segment(), values.schema)


def test_a_topic_with_rows_of_no_schema_gets_one(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> None:
    name = pulsar_broker.create(f"plain-{uuid.uuid4().hex[:8]}", 2)
    with Producer(cluster.client, cluster.client.layout(name).active[0].name) as producer:
        producer.send([Message(b"1")])
    plan(cluster, name, COLUMNS)
    assert cluster.client.schema(name) is not None
