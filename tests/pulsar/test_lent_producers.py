"""Producers that stay open between their uses, on a real broker. A producer has one user at a time. A producer that the broker has
closed is not lent again.
"""

from __future__ import annotations

import uuid

import pytest

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import PulsarError, TopicTerminated
from pulsar_protocol.layout import Position
from pulsar_protocol.producers import lend
from tests.support.pulsar_reads import visible

pytestmark = pytest.mark.pulsar


@pytest.fixture
def segment(pulsar_broker: PulsarBroker, client: PulsarClient) -> str:
    topic = pulsar_broker.create(f"lent-{uuid.uuid4().hex}", 1)
    return client.layout(topic).active[0].name


def names(client: PulsarClient, segment: str) -> list[str]:
    return [entry.metadata.producer_name for _, entry in visible(client, segment)]


def send(client: PulsarClient, segment: str) -> Position:
    with lend(client, segment) as producer:
        return producer.send([Message(b"1")])


def test_the_next_caller_gets_the_producer_of_the_last_one(client: PulsarClient, segment: str) -> None:
    for _ in range(3):
        send(client, segment)
    found = names(client, segment)
    assert len(found) == 3
    assert len(set(found)) == 1


def test_two_callers_at_once_have_two_producers(client: PulsarClient, segment: str) -> None:
    with lend(client, segment) as one, lend(client, segment) as other:
        one.send([Message(b"1")])
        other.send([Message(b"2")])
    assert len(set(names(client, segment))) == 2


def test_a_producer_that_failed_is_not_used_again(client: PulsarClient, segment: str) -> None:
    send(client, segment)
    with lend(client, segment) as producer, pytest.raises(PulsarError):
        producer.send([Message(b"2")], TxnId(0, 1 << 40))
    send(client, segment)
    assert len(set(names(client, segment))) == 2


def test_the_producer_of_a_sealed_segment_is_not_lent(pulsar_broker: PulsarBroker, client: PulsarClient, segment: str) -> None:
    send(client, segment)
    topic = "topic://" + segment.partition("://")[2].rpartition("/")[0]
    pulsar_broker.split(topic, 0)
    with pytest.raises(TopicTerminated):
        send(client, segment)


def test_after_a_restart_of_the_broker_a_new_producer_is_lent(
    pulsar_broker: PulsarBroker, client: PulsarClient, segment: str
) -> None:
    send(client, segment)
    pulsar_broker.restart()
    send(client, segment)
    assert len(set(names(client, segment))) == 2
