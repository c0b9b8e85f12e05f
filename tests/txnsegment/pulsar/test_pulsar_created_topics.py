"""Tests that programs create the topics of a Pulsar cluster that they write to, by the same rule as Spark's writes."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from metadata.common.errors import SchemaError
from pulsar_protocol.errors import TopicMissing
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from txnsegment.pulsar.cluster import PulsarCluster

pytestmark = pytest.mark.pulsar

ROWS = [{"who": "ann", "n": 1}, {"who": "bob", "n": 2}]


@pytest.fixture
def name() -> str:
    return f"topic://public/default/new-{uuid.uuid4().hex[:8]}"


def found(cluster: PulsarCluster, name: str) -> list[dict[str, object]]:
    return sorted(cluster.rows(name).rows, key=lambda row: row["n"])


def test_the_first_rows_create_the_topic_with_their_columns(cluster: PulsarCluster, name: str) -> None:
    with cluster.begin() as txn:
        txn.append(name, ROWS, key="who", segments=2)
        txn.commit()
    assert len(cluster.topics.describe(name).segments) == 2
    assert found(cluster, name) == ROWS


def test_a_transaction_that_aborts_leaves_an_empty_topic(cluster: PulsarCluster, name: str) -> None:
    with cluster.begin() as txn:
        txn.append(name, ROWS)
        txn.abort()
    assert len(cluster.topics.describe(name).segments) == 1
    assert found(cluster, name) == []


def test_a_producer_creates_its_topic_with_the_first_flush(cluster: PulsarCluster, name: str) -> None:
    with cluster.producer(name, key="who", segments=2) as producer:
        with pytest.raises(TopicMissing):
            cluster.topics.describe(name)
        for row in ROWS:
            producer.send(row)
    assert found(cluster, name) == ROWS
    with cluster.begin() as txn:
        producer.write(pa.Table.from_pylist([{"who": "cid", "n": 3}]), txn=txn)
        txn.commit()
    assert len(found(cluster, name)) == 3


def test_no_topic_is_created_on_request_or_for_rows_that_no_topic_takes(
    cluster: PulsarCluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.begin() as txn:
        with pytest.raises(TopicMissing):
            txn.append(name, ROWS, auto_create=False)
        with pytest.raises(TopicMissing):
            txn.append(name, [])
        with pytest.raises(SchemaError, match="no column 'x' for the key"):
            txn.append(name, ROWS, key="x")
        with pytest.raises(SchemaError, match="The column u"):
            txn.append(name, pa.table({"u": pa.array([1], pa.uint64())}))
        txn.abort()
    with pytest.raises(TopicMissing):
        cluster.producer(name, auto_create=False)
    monkeypatch.delenv(ADMIN_VARIABLE)
    with cluster.begin() as txn, pytest.raises(TopicMissing) as raised:
        txn.append(name, ROWS)
    assert ADMIN_VARIABLE in raised.value.advice
    with pytest.raises(TopicMissing):
        cluster.topics.describe(name)
