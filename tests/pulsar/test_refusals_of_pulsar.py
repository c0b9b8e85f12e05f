"""Bad input on a real broker. Each kind of bad input has an error of its own, which says what to do. `test_secured.py` tests wrong
tokens.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest

from conformance.harness.spark_start import spark_environment
from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import OutcomeUnknown, SchemaError, TxnConflict
from pulsar_protocol.auth import BadCredentials
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import (
    MessageTooLarge,
    OlderModel,
    ScalableTopicsOff,
    SchemaRefused,
    TopicMissing,
    TransactionsOff,
    Unreachable,
)
from pulsar_protocol.messages import Schema
from pulsar_protocol.producer import Producer
from pulsar_protocol.values import codec_for
from spark_txn_sink.pulsar.admin import found_or_created
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from txnsegment import connect
from txnsegment.pulsar import transaction
from txnsegment.pulsar.cluster import PulsarCluster

pytestmark = pytest.mark.pulsar

ROWS = pa.table({"id": pa.array([1], pa.int64()), "who": ["ann"]})
FEW_SECONDS = 20.0
"""A few seconds on a quiet machine, with room for a busy one."""


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, client: PulsarClient, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic with the schema of ROWS. The variable of the REST interface is set."""
    monkeypatch.setenv(ADMIN_VARIABLE, pulsar_broker.admin_url)
    name = pulsar_broker.create(f"bad-{uuid.uuid4().hex[:8]}", 2)
    client.register(client.layout(name).active[0].name, codec_for(ROWS.schema, "avro").schema)
    return name


@pytest.fixture(scope="module")
def plain_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    """A broker with transactions and scalable topics switched off."""
    settings = {
        "transactionCoordinatorEnabled": False,
        "transactionCoordinatorScalableTopicsEnabled": False,
        "scalableTopicsEnabled": False,
    }
    with PulsarBroker(tmp_path_factory.mktemp("plain"), settings=settings) as broker:
        yield broker


def closed_port() -> tuple[socket.socket, int]:
    """Return a port at which nobody listens, and a socket that keeps it from other processes."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    return held, held.getsockname()[1]


# --- the broker is away ---


def test_a_port_without_a_broker_is_told_within_seconds() -> None:
    held, port = closed_port()
    begun = time.monotonic()
    with held, pytest.raises(Unreachable) as found:
        connect(f"pulsar://127.0.0.1:{port}")
    assert time.monotonic() - begun < FEW_SECONDS
    assert f"127.0.0.1:{port}" in found.value.message
    assert "Connection refused" in found.value.message
    assert "service URL" in found.value.advice


def test_a_host_without_an_address_is_told_within_seconds() -> None:
    begun = time.monotonic()
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:6650"):
        connect("pulsar://no-such-host.invalid")
    assert time.monotonic() - begun < FEW_SECONDS


def test_spark_tells_in_few_lines_that_no_broker_is_there() -> None:
    held, port = closed_port()
    program = f"""
        import time
        from pyspark.sql import SparkSession

        spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
        rows = spark.createDataFrame([(1,)], "id int")
        for what in (
            lambda: spark.read.format("txnsegment").option("serviceUrl", "pulsar://127.0.0.1:{port}").load("x"),
            lambda: rows.write.format("txnsegment").mode("append").option("serviceUrl", "pulsar://127.0.0.1:{port}").save("x"),
        ):
            begun = time.monotonic()
            try:
                what()
            except Exception as error:
                print(time.monotonic() - begun, len(str(error)), "Unreachable" in str(error), "127.0.0.1:{port}" in str(error))
    """
    with held:
        ended = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env=os.environ | spark_environment() | {"PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=True,
        )
    found = [line.split() for line in ended.stdout.splitlines()]
    assert [line[2:] for line in found] == [["True", "True"]] * 2
    assert all(float(seconds) < 2 * FEW_SECONDS and int(length) < 2_000 for seconds, length, *_ in found)


def test_a_client_that_has_reached_the_cluster_waits_for_its_broker(pulsar_broker: PulsarBroker, topic: str) -> None:
    with PulsarClient(pulsar_broker.url, seconds=240) as client:
        assert client.layout(topic).epoch == 0
        pulsar_broker.kill()
        pulsar_broker.launch()  # in the background; it serves after some 10 s
        assert client.layout(topic).epoch == 0
    pulsar_broker.wait()


def test_a_broker_that_is_lost_before_a_commit_leaves_nothing_visible(pulsar_broker: PulsarBroker, topic: str) -> None:
    with PulsarClient(pulsar_broker.url, seconds=10) as made, PulsarCluster(made).begin() as txn:
        txn.append(topic, ROWS, key="who")
        pulsar_broker.suspend()
        try:
            with pytest.raises(TxnConflict, match="was not committed, because the broker was lost before") as found:
                txn.commit()
        finally:
            pulsar_broker.resume()
        assert "Run it again" in found.value.advice
    assert rows_of(pulsar_broker.url, topic) == 0


def test_a_broker_that_is_lost_in_a_commit_leaves_it_unknown_until_it_is_asked_again(
    pulsar_broker: PulsarBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PulsarClient(pulsar_broker.url, seconds=10) as made, PulsarCluster(made).begin() as txn:
        txn.append(topic, ROWS, key="who")

        def suspended(*_: object) -> dict[str, Opened]:  # just before the commit
            pulsar_broker.suspend()
            return {}

        monkeypatch.setattr(transaction, "record_places", suspended)
        try:
            with pytest.raises(OutcomeUnknown, match="It is unknown whether the Pulsar transaction") as found:
                txn.commit()
        finally:
            pulsar_broker.resume()
            monkeypatch.undo()
        assert found.value.advice == "Call commit() again: it asks the broker, and commits at most once."
        assert txn.commit().rows == 1
    assert rows_of(pulsar_broker.url, topic) == 1


def rows_of(url: str, topic: str) -> int:
    with connect(url) as cluster:
        return len(list(cluster.rows(topic).rows))


# --- topics ---


def test_an_unknown_topic(pulsar: str) -> None:
    with connect(pulsar) as cluster:
        for name in ("nobody-made-this", "topic://public/default/nobody-made-this"):
            with pytest.raises(TopicMissing, match="topic://public/default/nobody-made-this") as found:
                cluster.topics.describe(name)
            assert found.value.advice == "Check the name of the topic, or create it."
            assert not isinstance(found.value, OlderModel)


def test_a_topic_of_the_older_model(pulsar_broker: PulsarBroker, client: PulsarClient) -> None:
    name = f"older-{uuid.uuid4().hex[:8]}"
    pulsar_broker.rest("PUT", f"persistent/public/default/{name}")
    topic = f"topic://public/default/{name}"
    for call in (
        lambda: client.layout(topic),
        lambda: found_or_created(client, topic, pulsar_broker.admin_url, 1),
    ):
        with pytest.raises(OlderModel, match=f"persistent://public/default/{name} of the older model") as found:
            call()
        assert f"/admin/v2/scalable/public/default/{name}/migrate" in found.value.advice
    with Producer(client, f"persistent://public/default/{name}") as producer:
        assert producer.name
    pulsar_broker.rest("POST", f"scalable/public/default/{name}/migrate?force=true")
    assert len(client.layout(topic).segments) == 2


# --- rows ---


def test_a_schema_that_does_not_fit(pulsar: str, topic: str, client: PulsarClient) -> None:
    with connect(pulsar) as cluster, cluster.begin() as txn, pytest.raises(SchemaError, match="price"):
        txn.append(topic, pa.table({"price": [1.5]}))
    other: Schema = codec_for(pa.schema([("id", pa.string()), ("more", pa.float64())]), "avro").schema
    with pytest.raises(SchemaRefused, match="IncompatibleSchema"):
        client.register(client.layout(topic).active[0].name, other)


def test_a_key_above_the_largest_message(pulsar_broker: PulsarBroker, client: PulsarClient) -> None:
    """A value is divided into chunks, but its key is in the metadata of each chunk."""
    topic = pulsar_broker.create(f"large-{uuid.uuid4().hex[:8]}")
    limit = client.channel().ready.max_message_size
    with Producer(client, client.layout(topic).active[0].name) as producer:
        with pytest.raises(MessageTooLarge, match=r"fit into one entry of [\d,]+ bytes, by maxMessageSize") as found:
            producer.send_large(Message(b"value", os.urandom(limit), key_is_binary=True))
        assert "Make the row smaller" in found.value.advice
        producer.send([Message(b"small")])  # nothing was sent, and the connection stands


# --- features ---


def test_transactions_are_switched_off(plain_broker: PulsarBroker) -> None:
    with PulsarClient(plain_broker.url) as client, pytest.raises(TransactionsOff, match="has no transactions") as found:
        client.begin(600_000)
    assert "transactionCoordinatorEnabled=true" in found.value.advice


def test_scalable_topics_are_switched_off(plain_broker: PulsarBroker) -> None:
    plain_broker.rest("PUT", "persistent/public/default/plain")
    with connect(plain_broker.url) as cluster:
        for call in (lambda: cluster.topics.list(), lambda: cluster.topics.describe("x")):
            with pytest.raises(ScalableTopicsOff, match="has no scalable topics") as found:
                call()
            assert "scalableTopicsEnabled=true" in found.value.advice
    with PulsarClient(plain_broker.url) as client:
        assert client.partitions("persistent://public/default/plain") == 0


def test_a_file_without_a_token(pulsar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXNSEGMENT_PULSAR_TOKEN_FILE", "/no/such/file")
    with pytest.raises(BadCredentials, match="/no/such/file"):
        connect(pulsar)
