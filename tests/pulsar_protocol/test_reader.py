"""A read of a range ends without an error only when it has reached the end of the range."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message, encode_batch
from pulsar_protocol.errors import ConnectionLost, ProtocolError, TopicMissing
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.reader import entries
from tests.support.fake_broker import PATIENCE, Action, FakeBroker, Peer, answer, hang_up, refuse

TOPIC = "segment://a/b/c/0000-ffff-0"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        made.on("lookup_topic", answer("lookup_topic_response", response=1, broker_service_url=made.url, authoritative=True))
        made.on("subscribe", answer("success"))
        yield made


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url, seconds=PATIENCE, pauses=lambda: itertools.repeat(0.0)) as made:
        yield made


def deliver(*numbers: int, then: Action | None = None) -> Action:
    """Return the action that delivers entries with these entry ids, and then carries out `then`."""

    def action(peer: Peer, body: Any) -> None:
        for number in numbers:
            entry = encode_batch([Message(b"%d" % number)], producer="p", sequence=number, publish_ms=1)
            peer.send("message", entry, consumer_id=body.consumer_id, message_id={"ledger_id": 7, "entry_id": number})
        if then is not None:
            then(peer, body)

    return action


def close_consumer(peer: Peer, body: Any) -> None:
    peer.send("close_consumer", consumer_id=body.consumer_id, request_id=0)


def damaged(peer: Peer, body: Any) -> None:
    peer.send("message", b"no entry", consumer_id=body.consumer_id, message_id={"ledger_id": 7, "entry_id": 1})


def test_a_broker_that_goes_in_the_middle_of_a_range_is_an_error(broker: FakeBroker, client: PulsarClient) -> None:
    """A broker that shuts down closes its consumers first."""
    broker.on("flow", deliver(0, 1, then=close_consumer))
    reading = entries(client, TOPIC, EARLIEST, Position(7, 3))
    assert [next(reading)[0].entry, next(reading)[0].entry] == [0, 1]
    with pytest.raises(ConnectionLost, match="closed the consumer"):
        next(reading)
    assert broker.count("close_consumer") == 0


def test_a_connection_that_ends_while_the_consumer_closes_hides_no_error(broker: FakeBroker, client: PulsarClient) -> None:
    """A damaged entry is the first error, and the loss of the connection the second one. The reader must get the first error,
    because it says that the read is incomplete.
    """
    broker.on("flow", deliver(0, then=damaged))
    broker.on("close_consumer", hang_up)
    with pytest.raises(ProtocolError):
        list(entries(client, TOPIC, EARLIEST, Position(7, 3)))
    broker.wait("close_consumer")


def test_a_range_ends_at_its_last_entry_although_the_broker_goes_then(broker: FakeBroker, client: PulsarClient) -> None:
    broker.on("flow", deliver(0, 1, 2))
    broker.on("close_consumer", hang_up)
    assert [place.entry for place, _ in entries(client, TOPIC, EARLIEST, Position(7, 1))] == [0, 1]


def test_a_subscription_that_the_broker_refuses_is_its_error(broker: FakeBroker, client: PulsarClient) -> None:
    broker.on("subscribe", refuse(11))
    with pytest.raises(TopicMissing):
        list(entries(client, TOPIC, EARLIEST, Position(7, 1)))
    assert broker.count("close_consumer") == 0


@pytest.mark.parametrize("code", [0, 6])
def test_a_read_is_opened_again_while_a_segment_is_sealed(broker: FakeBroker, client: PulsarClient, code: int) -> None:
    """The broker 5.0.0-M1 answers with ServiceNotReady (6) while it seals a segment, and with an UnknownError (0) if the ledger of
    the segment has no first position.
    """
    broker.on("subscribe", refuse(code, ""), refuse(code, ""), answer("success"))
    broker.on("flow", deliver(0))
    broker.on("close_consumer", answer("success"))
    assert [place.entry for place, _ in entries(client, TOPIC, EARLIEST, Position(7, 0))] == [0]
    assert broker.count("subscribe") == 3


def test_a_read_follows_its_segment_to_another_broker(broker: FakeBroker, client: PulsarClient) -> None:
    """A broker that does not have a segment any more answers ServiceNotReady, too. The lookup says which broker has it."""
    with FakeBroker() as other:
        moved_to(other, broker)
        broker.on("subscribe", refuse(6))
        assert [place.entry for place, _ in entries(client, TOPIC, EARLIEST, Position(7, 0))] == [0]
        assert (broker.count("subscribe"), other.count("subscribe")) == (1, 1)


def test_a_search_follows_its_segment_to_another_broker(broker: FakeBroker, client: PulsarClient) -> None:
    with FakeBroker() as other:
        broker.on("subscribe", refuse(6))
        segment = Segment(client, TOPIC)
        moved_to(other, broker)
        assert segment.first_after(EARLIEST).position == Position(7, 0)
        assert other.count("subscribe") == 1


def moved_to(other: FakeBroker, broker: FakeBroker) -> None:
    """Let another broker have the segment, after the next lookup."""
    broker.on(
        "lookup_topic",
        *(answer("lookup_topic_response", response=1, broker_service_url=one.url, authoritative=True) for one in (broker, other)),
    )
    other.on("subscribe", answer("success"))
    other.on("flow", deliver(0))
    other.on("close_consumer", answer("success"))


def test_a_read_of_a_missing_topic_is_not_opened_again(broker: FakeBroker, client: PulsarClient) -> None:
    broker.on("subscribe", refuse(11))
    with pytest.raises(TopicMissing):
        next(entries(client, TOPIC, EARLIEST, Position(7, 0)))
    assert broker.count("subscribe") == 1
