"""Tests of the client with a real broker, not with the fake one. Some of them show that a real broker accepts the requests that the
client repeats after a lost connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.auth import shared
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import NotSupported, TopicMissing, TransactionEnded
from pulsar_protocol.producer import Producer
from pulsar_protocol.reader import entries

pytestmark = pytest.mark.pulsar


@pytest.fixture
def client(pulsar_broker: PulsarBroker) -> Iterator[PulsarClient]:
    with shared(pulsar_broker.url) as opened:
        yield opened


def disconnect(client: PulsarClient) -> None:
    """Lose the connections, as after a restart of the broker."""
    client.channel().close()
    client.any_broker().close()


@pytest.mark.parametrize("commit", [True, False])
def test_the_same_end_of_a_transaction_again_succeeds_also_over_new_connections(client: PulsarClient, commit: bool) -> None:
    txn = client.begin(600_000)
    disconnect(client)
    client.end(txn, commit=commit)
    disconnect(client)
    client.end(txn, commit=commit)
    with pytest.raises(TransactionEnded, match=f"transaction {txn.text}"):
        client.end(txn, commit=not commit)


def test_rows_of_a_transaction_are_read_after_connections_were_lost(client: PulsarClient, pulsar_broker: PulsarBroker) -> None:
    topic = pulsar_broker.create(f"client-{uuid.uuid4().hex[:8]}")
    (segment,) = client.layout(topic).active
    txn = client.begin(600_000)
    with Producer(client, segment.name) as producer:
        place = producer.send([Message(b"one"), Message(b"two")], txn)
    disconnect(client)
    client.end(txn, commit=True)
    disconnect(client)
    rows = [one.value for _, entry in entries(client, segment.name, to=place) for one in entry.messages()]
    assert rows == [b"one", b"two"]


def test_an_unknown_topic_and_an_unknown_coordinator_are_errors_at_once(client: PulsarClient) -> None:
    with pytest.raises(TopicMissing, match="topic://public/default/no-such-topic"):
        client.layout("topic://public/default/no-such-topic")
    with pytest.raises(NotSupported, match="no transaction coordinator 999"):
        client.end(TxnId(999, 0), commit=True)


def test_a_broker_accepts_a_connection_that_names_a_proxy_target(client: PulsarClient) -> None:
    assert client.channel(through_proxy_to="elsewhere:6650").ready.server == client.channel().ready.server


def test_an_acknowledgement_before_the_cursor_changes_nothing(client: PulsarClient, pulsar_broker: PulsarBroker) -> None:
    """The broker refuses it, because it says that all up to there is acknowledged already."""
    topic = pulsar_broker.create(f"client-{uuid.uuid4().hex[:8]}")
    (segment,) = client.layout(topic).active
    with Producer(client, segment.name) as producer:
        first, last = (producer.send([Message(value)]) for value in (b"one", b"two"))
    with Consumer.durable(client.broker_of(segment.name), segment.name, "s") as consumer:
        for place in (last, first, last):
            consumer.acknowledge(place)
        assert consumer.position == last


def test_an_entry_of_a_transaction_that_has_ended_is_refused_as_such(client: PulsarClient, pulsar_broker: PulsarBroker) -> None:
    topic = pulsar_broker.create(f"client-{uuid.uuid4().hex[:8]}")
    (segment,) = client.layout(topic).active
    txn = client.begin(600_000)
    client.end(txn, commit=False)
    with Producer(client, segment.name) as producer, pytest.raises(TransactionEnded, match="already ABORTED"):
        producer.send([Message(b"late")], txn)


@pytest.mark.parametrize("entries_before", [0, 1])
def test_a_sealed_segment_tells_whether_it_has_an_entry(
    client: PulsarClient, pulsar_broker: PulsarBroker, entries_before: int
) -> None:
    """A producer whose first entry was in flight when its segment was sealed asks for this."""
    topic = pulsar_broker.create(f"client-{uuid.uuid4().hex[:8]}")
    (segment,) = client.layout(topic).active
    with Producer(client, segment.name) as producer:
        for _ in range(entries_before):
            producer.send([Message(b"row")])
        pulsar_broker.split(topic, segment.id)
    sealed = Segment(client, segment.name)
    assert sealed.is_empty(sealed.last()) is (entries_before == 0)
