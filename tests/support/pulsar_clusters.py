"""A cluster object of the real broker, and topics with a schema. Each conftest that needs the fixture imports it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.values import codec_for
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from txnsegment.pulsar.cluster import PulsarCluster, open_pulsar


@pytest.fixture
def cluster(pulsar_broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[PulsarCluster]:
    """A cluster object. The variable of the REST interface is set."""
    monkeypatch.setenv(ADMIN_VARIABLE, pulsar_broker.admin_url)
    with open_pulsar(pulsar_broker.url, None) as opened:
        yield opened


def topic_with(
    broker: PulsarBroker, cluster: PulsarCluster, columns: pa.Schema, segments: int = 2, namespace: str = "public/default"
) -> str:
    """Return a new topic whose schema is that of the columns."""
    name = f"topic://{namespace}/with-{uuid.uuid4().hex[:8]}"
    broker.create(name, segments)
    register(cluster, name, columns)
    return name


def register(cluster: PulsarCluster, topic: str, columns: pa.Schema) -> None:
    cluster.client.register(cluster.client.layout(topic).active[0].name, codec_for(columns, "avro").schema)
