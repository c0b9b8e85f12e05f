"""Subscriptions on a real broker: on the list of their topic, counted consumers, and deletions that were interrupted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from typer.testing import CliRunner

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.errors import TopicDamaged
from pulsar_protocol.owned_names import ack_log_name
from tests.support.pulsar_clusters import cluster, topic_with
from txnsegment.cli.app import build
from txnsegment.pulsar.cluster import PulsarCluster

__all__ = ["cluster"]
pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("id", pa.int64())])


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> str:
    return topic_with(pulsar_broker, cluster, COLUMNS, 1)


@pytest.fixture
def store(pulsar_broker: PulsarBroker) -> Iterator[KazooClient]:
    """The metadata store of the broker."""
    client = KazooClient(pulsar_broker.zookeeper.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def node(topic: str) -> str:
    return topic.replace("topic://", "/topics/")


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for what a broker does some time later."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.5)


def write(cluster: PulsarCluster, topic: str, *ids: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"id": pa.array(ids, pa.int64())}))
        txn.commit()


def consumed(cluster: PulsarCluster, topic: str, subscription: str, start: str | None = "earliest") -> list[int]:
    with cluster.consumer(topic, subscription, start=start) as consumer:
        found = list(consumer.messages(timeout=0))
        if found:
            consumer.ack_cumulative(found[-1])
    return [one.value["id"] for one in found]


def test_a_subscription_of_a_consumer_stays_on_the_list_of_its_topic(
    cluster: PulsarCluster, topic: str, store: KazooClient
) -> None:
    """ZooKeeper removes an empty node of a subscription some minutes after its last consumer. A node with data stays."""
    consumed(cluster, topic, "s")
    assert store.get(f"{node(topic)}/subscriptions/s")[0] == b'{"type":"STREAM"}'


def test_positions_are_not_shown_while_a_consumer_is_connected(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker
) -> None:
    with cluster.consumer(topic, "s", start="earliest"):
        found = CliRunner().invoke(build(), ["subscriptions", "describe", topic, "s", "--service-url", pulsar_broker.url])
    assert "A consumer is connected, so the positions are not shown." in found.stdout


def test_a_closed_consumer_is_forgotten_while_its_program_goes_on(cluster: PulsarCluster, topic: str) -> None:
    consumed(cluster, topic, "s")
    until(lambda: [one.consumers for one in cluster.subscriptions.list(topic)] == [0])


def test_a_subscription_that_the_broker_has_lost_is_said_and_put_on_the_list_again(
    cluster: PulsarCluster, topic: str, store: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    write(cluster, topic, 1)
    assert consumed(cluster, topic, "s") == [1]
    until(lambda: [one.consumers for one in cluster.subscriptions.list(topic)] == [0])
    store.delete(f"{node(topic)}/subscriptions/s", recursive=True)
    until(lambda: cluster.subscriptions.list(topic) == [])
    write(cluster, topic, 2)
    caplog.clear()
    assert consumed(cluster, topic, "s", start=None) == [2]
    assert "had lost the subscription s of" in caplog.text
    assert [one.name for one in cluster.subscriptions.list(topic)] == ["s"]


def deleted(cluster: PulsarCluster, topic: str, name: str) -> None:
    until(lambda: not any(one.consumers for one in cluster.subscriptions.list(topic) if one.name == name))
    cluster.subscriptions.delete(topic, name)


def test_a_deleted_subscription_is_made_again_from_its_start(cluster: PulsarCluster, topic: str) -> None:
    """A list of all subscriptions must not make a broker the controller of the logs of acknowledgements."""
    write(cluster, topic, 1, 2)
    for _ in range(2):
        assert consumed(cluster, topic, "s") == [1, 2]
        cluster.subscriptions.list()
        assert not cluster.client.layout(ack_log_name(topic, "s")).controlled
        deleted(cluster, topic, "s")
        assert cluster.subscriptions.list(topic) == []
        assert ack_log_name(topic, "s") not in cluster.client.topics("public/default")


def test_a_log_with_a_controller_is_emptied_in_place_of_a_deletion(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker
) -> None:
    """The broker 5.0.0-M1 leaves a part of a topic behind if it deletes one of which it is the controller."""
    write(cluster, topic, 1, 2)
    assert consumed(cluster, topic, "s") == [1, 2]
    log = ack_log_name(topic, "s")
    pulsar_broker.rest("GET", f"scalable/{log.removeprefix('topic://')}/stats")
    until(lambda: cluster.client.layout(log).controlled, 10)
    deleted(cluster, topic, "s")
    assert log in cluster.client.topics("public/default")
    assert cluster.subscriptions.list(topic) == []
    assert consumed(cluster, topic, "s") == [1, 2], "a new subscription knows nothing of the deleted one"


def test_a_damaged_log_is_named_and_the_others_go_on(
    cluster: PulsarCluster, topic: str, store: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.subscriptions.create(topic, "good")
    name = f"damaged-{uuid.uuid4().hex[:8]}"
    damaged = f"topic://public/default/{name}"
    store.create(f"{node(damaged)}/controller", b"", makepath=True)
    try:
        until(lambda: damaged in cluster.client.topics("public/default"), 10)
        assert (topic, "good") in [(one.topic, one.name) for one in cluster.subscriptions.list()]
        assert f"only a part of the topic {damaged}" in caplog.text
        caplog.clear()
        assert topic in [one.name for one in cluster.topics.list()]
        assert f"only a part of the topic {damaged}" in caplog.text
    finally:
        store.delete(node(damaged), recursive=True)


def test_a_deletion_whose_log_is_damaged_does_not_say_that_it_is_done(
    cluster: PulsarCluster, topic: str, store: KazooClient
) -> None:
    cluster.subscriptions.create(topic, "s")
    log = ack_log_name(topic, "s")
    store.create(f"{node(log)}/controller", b"", makepath=True)
    try:
        until(lambda: log in cluster.client.topics("public/default"), 10)
        for _ in range(2):
            with pytest.raises(TopicDamaged, match="the log of its acknowledgements is not deleted"):
                cluster.subscriptions.delete(topic, "s")
        assert cluster.subscriptions.list(topic) == []
    finally:
        store.delete(node(log), recursive=True)
    with pytest.raises(NoNodeError):
        store.get(node(log))
