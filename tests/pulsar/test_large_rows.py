"""Rows above `maxMessageSize`, on a real broker: the sink and `connect` send them in chunks, and Spark and Java read whole rows."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from typing import get_args

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from conformance.pulsar_java import How, JavaClient
from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.values import codec_for
from spark_txn_sink.pulsar.writer import BatchWriter
from spark_txn_source.pulsar.batch import BatchReader
from tests.support.pulsar_reads import visible
from txnsegment.pulsar.cluster import PulsarCluster

pytestmark = pytest.mark.pulsar
CONSUMERS: Sequence[How] = get_args(How)
COLUMNS = T.StructType([T.StructField("value", T.BinaryType())])


@pytest.fixture
def topic(pulsar_broker: PulsarBroker) -> str:
    return pulsar_broker.create(f"large-{uuid.uuid4().hex[:8]}")


def table(*values: bytes) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary())})


def read(url: str, topic: str) -> list[bytes]:
    reader = BatchReader({"serviceUrl": url, "topic": topic}, COLUMNS)
    return [one for task in reader.partitions() for batch in reader.read(task) for one in batch.column(0).to_pylist()]


def chunks(client: PulsarClient, topic: str) -> list[bool]:
    """Return for each visible entry of a topic's only segment whether it is a chunk."""
    (segment,) = client.layout(topic).active
    return [entry.is_chunk for _, entry in visible(client, segment.name)]


def test_connect_sends_a_large_row_in_chunks_and_an_aborted_one_is_read_by_nobody(cluster: PulsarCluster, topic: str) -> None:
    limit = cluster.client.channel().ready.max_message_size
    values = [b"before", os.urandom(2 * limit + 1), b"between", os.urandom(limit), b"after"]
    with cluster.begin() as txn:
        txn.append(topic, table(os.urandom(limit + 1)))
    with cluster.begin() as txn:
        txn.append(topic, table(*values))
        assert read(cluster.url, topic) == []
        txn.commit()
    assert read(cluster.url, topic) == values
    assert chunks(cluster.client, topic).count(True) >= 5


def test_the_sink_sends_a_large_row_in_chunks(cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker) -> None:
    limit = cluster.client.channel().ready.max_message_size
    values = [os.urandom(1000), os.urandom(limit + 1), bytes(2 * limit), os.urandom(1000)]
    options = {"serviceUrl": cluster.url, "adminUrl": pulsar_broker.admin_url, "topic": topic, "valueFormat": "binary"}
    for commit in (False, True):
        writer = BatchWriter(options, COLUMNS, overwrite=False)
        writer.__getstate__()  # plans, as Spark does before it starts tasks
        report = writer.write(iter(table(*values).to_batches()))
        if commit:
            writer.commit([report])
        else:
            writer.abort([report])
    assert read(cluster.url, topic) == values
    assert 0 < chunks(cluster.client, topic).count(True) < len(chunks(cluster.client, topic))


@pytest.mark.parametrize("how", CONSUMERS)
def test_java_reads_a_large_row_of_a_committed_transaction_only(
    cluster: PulsarCluster, topic: str, java: JavaClient, how: How
) -> None:
    limit = cluster.client.channel().ready.max_message_size
    (segment,) = cluster.client.layout(topic).active
    cluster.client.register(segment.name, codec_for(pa.schema([("value", pa.string())]), "primitive").schema)
    values = ["small", "x" * (limit + 1), "after"]
    for rows, commit in ((["aborted", "y" * (limit + 1)], False), (values, True)):
        with cluster.begin() as txn:
            txn.append(topic, pa.table({"value": rows}))
            if commit:
                txn.commit()
    assert [row["value"] for row in java.read(topic, count=3, how=how)] == values
