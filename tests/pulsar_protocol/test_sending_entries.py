"""A producer knows which entries were certainly not written when its segment is sealed, or when the broker closes it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_protocol import producer as module
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import ConnectionLost, Retriable, TimedOut, TopicTerminated
from pulsar_protocol.layout import Position
from pulsar_protocol.producer import Producer, open_shared
from tests.support.fake_broker import PATIENCE, Action, FakeBroker, Peer, answer, hang_up, refuse, silent

SEGMENT = "segment://a/b/c/0000-ffff-0"
OPENED = answer("producer_success", producer_name="p", last_sequence_id=-1, schema_version=b"")
SEALED = refuse(15)
ROWS = [Message(b"row")]


def layout(*, sealed: bool) -> Action:
    """Return the action that answers with the layout of the topic, which has one segment."""
    segment = {"segment_id": 0, "hash_start": 0, "hash_end": 0xFFFF, "state": int(sealed)}
    return lambda peer, body: peer.send(
        "scalable_topic_update", session_id=body.session_id, dag={"epoch": 1, "segments": [segment]}
    )


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBroker]:
    monkeypatch.setattr(module, "CLOSED_SECONDS", 0.3)
    with FakeBroker() as made:
        made.on("lookup_topic", answer("lookup_topic_response", response=1, broker_service_url=made.url, authoritative=True))
        made.on("close_producer", answer("success"))
        made.on("close_consumer", answer("success"))
        made.on("subscribe", answer("success"))
        made.on("producer", OPENED)
        made.on("scalable_topic_lookup", layout(sealed=False))
        yield made


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url, seconds=PATIENCE) as made:
        yield made


@pytest.fixture
def producer(client: PulsarClient) -> Iterator[Producer]:
    with Producer(client, SEGMENT) as made:
        yield made


def receipt(entry: int) -> Action:
    """Return the action that tells the producer that its entry was written. `entry`: the entry id in the receipt."""

    def act(peer: Peer, body: Any) -> None:
        place = {"ledger_id": 3, "entry_id": entry}
        peer.send("send_receipt", producer_id=body.producer_id, sequence_id=body.sequence_id, message_id=place)

    return act


def closed(peer: Peer, body: Any) -> None:
    """Tell the producer that the broker has closed it."""
    peer.send("close_producer", producer_id=body.producer_id, request_id=99)


def terminated(peer: Peer, body: Any) -> None:
    peer.send("send_error", producer_id=body.producer_id, sequence_id=body.sequence_id, error=15, message="terminated")


def then(*actions: Action) -> Action:
    def act(peer: Peer, body: Any) -> None:
        for one in actions:
            one(peer, body)

    return act


def ends_at(broker: FakeBroker, *places: Position) -> None:
    """Let the broker answer that the segment is sealed. `places`: its answers to questions for the end and the beginning of the
    segment.
    """
    broker.on("producer", SEALED)
    told = [one.message_id for one in places]
    broker.on(
        "get_last_message_id",
        *(answer("get_last_message_id_response", last_message_id=one, consumer_mark_delete_position=one) for one in told),
    )


def test_an_entry_that_was_refused_after_the_close_was_not_written(broker: FakeBroker, producer: Producer) -> None:
    broker.on("send", receipt(0), then(closed, terminated))
    assert producer.send(ROWS) == Position(3, 0)
    with pytest.raises(TopicTerminated):
        producer.send(ROWS)


def test_a_receipt_after_the_close_counts(broker: FakeBroker, producer: Producer) -> None:
    broker.on("send", then(closed, receipt(0)))
    assert producer.send(ROWS) == Position(3, 0)
    broker.on("producer", SEALED)
    with pytest.raises(TopicTerminated):
        producer.send(ROWS)
    assert broker.count("send") == 1, "a closed producer sends nothing"


def test_an_entry_without_an_answer_was_not_written_if_the_segment_ends_before_it(broker: FakeBroker, producer: Producer) -> None:
    broker.on("send", receipt(4), closed)
    producer.send(ROWS)
    ends_at(broker, Position(3, 4))
    with pytest.raises(TopicTerminated):
        producer.send(ROWS)


def test_an_entry_without_an_answer_was_not_written_if_the_segment_has_no_entry(broker: FakeBroker, producer: Producer) -> None:
    broker.on("send", closed)
    ends_at(broker, Position(3, -1))
    with pytest.raises(TopicTerminated):
        producer.send(ROWS)


def test_an_entry_without_an_answer_may_be_in_an_earlier_ledger_of_the_segment(broker: FakeBroker, producer: Producer) -> None:
    """The last ledger of the segment is empty. The segment begins with an earlier one."""
    broker.on("send", closed)
    ends_at(broker, Position(4, -1), Position(3, -1))
    with pytest.raises(ConnectionLost, match="did not say whether it has the entry"):
        producer.send(ROWS)


@pytest.mark.parametrize("first", [True, False])
def test_an_entry_without_an_answer_may_have_been_written_if_the_segment_ends_after_it(
    broker: FakeBroker, producer: Producer, first: bool
) -> None:
    """The last entry of the segment may be the entry without an answer, or an entry of another writer."""
    if not first:
        broker.on("send", receipt(4))
        producer.send(ROWS)
    broker.on("send", closed)
    ends_at(broker, Position(3, 5))
    with pytest.raises(ConnectionLost, match=r"did not say whether it has the entry\. The segment ends at 3:5"):
        producer.send(ROWS)


def test_a_producer_that_is_closed_while_it_is_idle_sends_nothing(
    broker: FakeBroker, client: PulsarClient, producer: Producer
) -> None:
    broker.on("send", then(receipt(0), closed))
    producer.send(ROWS)
    broker.on("producer", SEALED)
    client.broker_of(SEGMENT)  # the answer to this lookup comes after the close, on the same connection
    with pytest.raises(TopicTerminated):
        producer.send(ROWS)
    assert broker.count("send") == 1


def test_a_producer_that_is_closed_because_its_topic_moves_is_opened_again_by_the_caller(
    broker: FakeBroker, producer: Producer
) -> None:
    broker.on("send", closed)
    with pytest.raises(ConnectionLost, match="closed the producer"):
        producer.send(ROWS)


@pytest.mark.parametrize("fault", [refuse(6), hang_up], ids=["not ready", "connection lost"])
def test_a_shared_producer_is_asked_for_again_while_the_broker_seals_or_moves_the_segment(
    broker: FakeBroker, client: PulsarClient, fault: Action
) -> None:
    broker.on("producer", fault, fault, OPENED)
    broker.on("send", receipt(0))
    with open_shared(client, SEGMENT, pauses=lambda: itertools.repeat(0.0)) as made:
        assert made.send(ROWS) == Position(3, 0)
    assert broker.count("producer") == 3


def test_a_shared_producer_of_a_sealed_segment_is_refused_after_the_broker_has_sealed_it(
    broker: FakeBroker, client: PulsarClient
) -> None:
    broker.on("producer", refuse(6), SEALED)
    with pytest.raises(TopicTerminated):
        open_shared(client, SEGMENT, pauses=lambda: itertools.repeat(0.0))


def test_a_segment_that_the_layout_has_as_sealed_is_sealed_although_the_broker_is_not_ready(
    broker: FakeBroker, client: PulsarClient
) -> None:
    """A broker 5.0.0-M1 goes on refusing producers of some sealed segments for half a minute and longer."""
    broker.on("producer", refuse(6))
    broker.on("scalable_topic_lookup", layout(sealed=False), layout(sealed=True))
    with pytest.raises(TopicTerminated, match="is sealed"):
        open_shared(client, SEGMENT, pauses=lambda: itertools.repeat(0.0))
    assert broker.count("producer") == 2


def test_an_entry_in_flight_is_unknown_if_the_end_of_the_sealed_segment_is_not_told(broker: FakeBroker, producer: Producer) -> None:
    broker.on("send", closed)
    broker.on("producer", SEALED)
    broker.on("get_last_message_id", refuse(22))
    with pytest.raises(ConnectionLost, match="nor where the segment ends"):
        producer.send(ROWS)


def test_a_shared_producer_is_refused_at_last_if_the_segment_is_never_ready(broker: FakeBroker, client: PulsarClient) -> None:
    broker.on("producer", refuse(6))
    with pytest.raises(Retriable, match="ServiceNotReady"):
        open_shared(client, SEGMENT, pauses=lambda: iter([0.0, 0.0, 2 * PATIENCE]), seconds=PATIENCE)
    assert broker.count("producer") == 3


def test_an_attempt_to_open_a_shared_producer_takes_no_longer_than_the_time_that_is_left(
    broker: FakeBroker, client: PulsarClient
) -> None:
    broker.on("producer", silent)
    with pytest.raises(TimedOut, match=r"did not answer within 0\.[0-9]+ s"):
        open_shared(client, SEGMENT, seconds=0.5)
    broker.on("lookup_topic", silent)
    with pytest.raises(TimedOut, match=r"did not answer within 0\.[0-9]+ s"):
        open_shared(client, SEGMENT, seconds=0.5)


def test_a_layout_that_is_not_told_in_the_time_that_is_left_does_not_delay_the_error_of_a_producer(
    broker: FakeBroker, client: PulsarClient
) -> None:
    broker.on("producer", refuse(6))
    broker.on("scalable_topic_lookup", silent)
    started = time.monotonic()
    with pytest.raises(Retriable, match="ServiceNotReady"):
        open_shared(client, SEGMENT, seconds=0.5)
    assert time.monotonic() - started < PATIENCE / 2
