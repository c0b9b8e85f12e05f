"""A subscription that is created at `latest`, or moved there, while a transaction is open, delivers the rows of the transaction
after its commit. A move that is interrupted loses no row. On a real broker.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from conformance.pulsar_server import PulsarBroker
from metadata.common.errors import SubscriptionExists
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.entries import Message as Row
from pulsar_protocol.layout import Position
from pulsar_protocol.owned_names import ack_log_name
from pulsar_protocol.producer import Producer
from tests.support.pulsar_clusters import topic_with
from txnsegment.pulsar.ack_log import AckLog, Clock, SubscriptionBusy, ack_log
from txnsegment.pulsar.cluster import PulsarCluster
from txnsegment.pulsar.feeding import read_options, rows_before
from txnsegment.pulsar.subscriptions import PulsarSubscriptions

pytestmark = pytest.mark.pulsar

COLUMNS = pa.schema([("id", pa.int64())])
MOVED = {"earliest": [1, 2], "latest": []}
"""The rows of two that are left after a move."""


@pytest.fixture
def topic(pulsar_broker: PulsarBroker, cluster: PulsarCluster) -> str:
    return topic_with(pulsar_broker, cluster, COLUMNS, 1)


def table(*ids: int) -> pa.Table:
    return pa.table({"id": ids}, COLUMNS)


def write(cluster: PulsarCluster, topic: str, *ids: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, table(*ids))
        txn.commit()


def unread(cluster: PulsarCluster, topic: str) -> list[int]:
    """Return the rows that the subscription `s` has not acknowledged."""
    with cluster.consumer(topic, "s") as consumer:
        return [one.value["id"] for one in consumer.messages(timeout=0)]


def cursor(cluster: PulsarCluster, topic: str) -> Position:
    """Return the position of the subscription `s` in the only segment of a topic."""
    (found,) = (cluster.subscriptions.positions(topic, "s") or {}).values()
    return found


@pytest.mark.parametrize("where", ["latest", "a later time"])
def test_a_subscription_that_is_created_while_a_transaction_is_open_gets_its_rows(
    cluster: PulsarCluster, topic: str, where: str
) -> None:
    write(cluster, topic, 1)
    with cluster.begin() as txn:
        txn.append(topic, table(10))
        cluster.subscriptions.create(topic, "s", start="latest" if where == "latest" else datetime(2100, 1, 1, tzinfo=UTC))
        txn.commit()
    write(cluster, topic, 20)
    assert unread(cluster, topic) == [10, 20]


@pytest.mark.parametrize("logged", [False, True], ids=["cursors only", "with a log"])
def test_a_seek_to_latest_passes_no_row_of_an_open_transaction(cluster: PulsarCluster, topic: str, logged: bool) -> None:
    write(cluster, topic, 1)
    if logged:
        cluster.consumer(topic, "s", start="earliest").close()
    else:
        cluster.subscriptions.create(topic, "s")
    with cluster.begin() as txn:
        txn.append(topic, table(10))
        ((first, _),) = txn._places[topic].values()
        cluster.subscriptions.seek(topic, "s", "latest")
        assert cursor(cluster, topic) < first, "the broker keeps the rows of the transaction for the subscription"
        txn.commit()
    write(cluster, topic, 20)
    assert unread(cluster, topic) == [10, 20]


@pytest.mark.parametrize("step", ["move", "_forward"])
@pytest.mark.parametrize("where", ["earliest", "latest"])
def test_a_move_that_is_interrupted_leaves_the_old_or_the_new_place(
    cluster: PulsarCluster, topic: str, where: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program ends before this step. The log decides the place, and no cursor has passed a row that the log has not."""
    write(cluster, topic, 1)
    write(cluster, topic, 2)
    with cluster.consumer(topic, "s", start="earliest") as consumer:
        first, second = consumer.messages(timeout=0)
        consumer.ack(first)

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(AckLog if step == "move" else PulsarSubscriptions, step, ended)
        with pytest.raises(KeyboardInterrupt):
            cluster.subscriptions.seek(topic, "s", where)
    left, passed = [2] if step == "move" else MOVED[where], cursor(cluster, topic)
    for one in (first, second):
        assert one.value["id"] not in left or passed < Position.parse(one.id.rpartition(":")[0])
    assert unread(cluster, topic) == left


def test_a_subscription_is_moved_back_to_a_time_exactly(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1)
    cluster.subscriptions.create(topic, "s", start="latest")
    write(cluster, topic, 2)
    with cluster.consumer(topic, "other", start="earliest") as consumer:
        _, second = consumer.messages(timeout=0)
    write(cluster, topic, 3)
    cluster.subscriptions.seek(topic, "s", "latest")
    cluster.subscriptions.seek(topic, "s", datetime.fromtimestamp(second.publish_ms / 1000, UTC))
    assert unread(cluster, topic) == [2, 3]


@pytest.mark.parametrize("logged", [False, True], ids=["cursors only", "with a log"])
def test_a_subscription_is_moved_over_a_split_and_back(
    cluster: PulsarCluster, topic: str, pulsar_broker: PulsarBroker, logged: bool
) -> None:
    """A transaction is open during the split, with a row in the sealed segment. So this segment has not ended at `latest`."""
    write(cluster, topic, 1)
    if logged:
        cluster.consumer(topic, "s", start="earliest").close()
    else:
        cluster.subscriptions.create(topic, "s")
    with cluster.begin() as txn:
        txn.append(topic, table(10))
        pulsar_broker.split(topic, 0)
        write(cluster, topic, 2)
        cluster.subscriptions.seek(topic, "s", "latest")
        txn.commit()
    write(cluster, topic, 3)
    found = unread(cluster, topic)
    assert [one for one in found if one != 2] == [10, 3], "the row 2 was decided, but its parent segment was not"
    cluster.subscriptions.seek(topic, "s", "earliest")
    assert unread(cluster, topic)[:2] == [1, 10]
    cluster.subscriptions.seek(topic, "s", "latest")
    write(cluster, topic, 4)
    assert unread(cluster, topic) == [4]


def test_a_subscription_of_a_persistent_topic_begins_at_each_place(cluster: PulsarCluster) -> None:
    name = f"persistent://public/default/places-{uuid.uuid4().hex[:8]}"
    with Producer(cluster.client, name) as producer:
        places = [producer.send([Row(value)]) for value in (b"a", b"b")]
    for place, where in ((None, "earliest"), (places[1].text, "latest")):
        made = cluster.subscriptions.create(name, where, start=where)
        assert [one.mark_delete for one in made.cursors] == [place]
    assert [one.mark_delete for one in cluster.subscriptions.seek(name, "latest", "earliest").cursors] == [None]


def test_a_log_that_an_interrupted_deletion_has_left_is_not_taken_over(cluster: PulsarCluster, topic: str) -> None:
    write(cluster, topic, 1, 2)
    log = ack_log(cluster.url, topic, "s", Clock())
    log.move(*rows_before(read_options(cluster.url, topic), "latest"))
    log.close()
    with pytest.raises(SubscriptionExists, match=r"no subscription 's' of .*, but a log has acknowledgements of it") as raised:
        cluster.subscriptions.create(topic, "s")
    assert "cluster.subscriptions.delete" in raised.value.advice
    cluster.subscriptions.delete(topic, "s")
    cluster.subscriptions.create(topic, "s")
    assert unread(cluster, topic) == [1, 2]


def test_a_log_without_acknowledgements_is_no_obstacle(cluster: PulsarCluster, topic: str) -> None:
    """A consumer was killed before it recorded that the subscription exists."""
    write(cluster, topic, 1)
    log = ack_log(cluster.url, topic, "s", Clock())
    assert not log.state().exists
    log.close()
    cluster.subscriptions.create(topic, "s", start="latest")
    write(cluster, topic, 2)
    assert unread(cluster, topic) == [2]


def test_a_consumer_without_a_log_is_of_another_client_or_its_log_is_gone(cluster: PulsarCluster, topic: str) -> None:
    said = f"log of acknowledgements {ack_log_name(topic, 's')} does not exist"
    with (
        Consumer.registered(cluster.client.channel(), topic, "s", name="other"),
        pytest.raises(SubscriptionBusy, match=said) as raised,
    ):
        cluster.consumer(topic, "s")
    assert "another client" in raised.value.advice
    assert "deleted the log" in raised.value.advice
