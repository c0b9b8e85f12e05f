"""The subscription that holds a writers' log, while the log is split, or deleted and made again. A scripted broker answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.layout import Position
from pulsar_protocol.log_holding import forget, hold
from pulsar_protocol.sent_log import log_name
from spark_txn_sink.pulsar import admin
from spark_txn_sink.pulsar.attempts import opened
from spark_txn_sink.pulsar.many_topics import Topic, record_places
from tests.support.fake_broker import Action, FakeBroker, Peer, answer, refuse

TOPIC = "topic://a/b/orders"
LOG = log_name(TOPIC).partition("://")[2]
WHOLE, LOW, HIGH = f"segment://{LOG}/0000-ffff-0", f"segment://{LOG}/0000-7fff-1", f"segment://{LOG}/8000-ffff-2"
T = TxnId(1, 1)


def layout(*segments: dict[str, int]) -> Action:
    """Return the action that tells the layout of a topic."""

    def tell(peer: Peer, body: Any) -> None:
        peer.send("scalable_topic_update", session_id=body.session_id, dag={"epoch": 1, "segments": [*segments]})

    return tell


def segment(number: int, start: int, end: int, state: int = 0) -> dict[str, int]:
    return {"segment_id": number, "hash_start": start, "hash_end": end, "state": state}


MADE = layout(segment(0, 0, 0xFFFF))
SPLIT = layout(segment(0, 0, 0xFFFF, 1), segment(1, 0, 0x7FFF), segment(2, 0x8000, 0xFFFF))


def missing(peer: Peer, body: Any) -> None:
    peer.send("scalable_topic_update", session_id=body.session_id, error=11, message="TopicNotFound")


def receipt(peer: Peer, body: Any) -> None:
    place = Position(3, 0).message_id
    peer.send("send_receipt", producer_id=body.producer_id, sequence_id=body.sequence_id, message_id=place)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as started:
        started.on("lookup_topic", answer("lookup_topic_response", response=1, broker_service_url=started.url, authoritative=True))
        started.on("scalable_topic_lookup", MADE)
        started.on("subscribe", answer("success"))
        started.on("close_consumer", answer("success"))
        started.on("producer", answer("producer_success", producer_name="p", last_sequence_id=-1, schema_version=b""))
        started.on("send", receipt)
        yield started


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url) as made:
        yield made


def held(broker: FakeBroker) -> list[str]:
    """Return the segments in which the subscription was made, in order."""
    return [one.body.topic for one in broker.asked("subscribe")]


def test_the_subscription_is_made_once_for_the_segments_of_a_log(broker: FakeBroker, client: PulsarClient) -> None:
    for _ in range(3):
        hold(client, TOPIC, WHOLE)
    assert held(broker) == [WHOLE]


def test_a_log_that_was_split_is_held_in_its_new_segments_before_a_record_is_there(
    broker: FakeBroker, client: PulsarClient
) -> None:
    hold(client, TOPIC, WHOLE)
    broker.on("scalable_topic_lookup", SPLIT)
    for one in (LOW, HIGH, LOW):
        hold(client, TOPIC, one)
    assert held(broker) == [WHOLE, WHOLE, LOW, HIGH]


def test_a_log_that_is_forgotten_is_held_again(broker: FakeBroker, client: PulsarClient) -> None:
    hold(client, TOPIC, WHOLE)
    forget(client, TOPIC)
    hold(client, TOPIC, WHOLE)
    assert held(broker) == [WHOLE, WHOLE]


def test_a_log_that_was_deleted_and_made_again_is_held_again_by_the_next_write_of_spark(
    broker: FakeBroker, client: PulsarClient
) -> None:
    """Its segment has the name of the old one. The write learns of the deletion by its first record."""
    broker.on("producer", refuse(11, "TopicNotFound"), answer("producer_success", producer_name="p", last_sequence_id=-1))
    hold(client, TOPIC, WHOLE)
    hold(client, TOPIC, opened(client, TOPIC, None, T, "u").segment)
    assert held(broker) == [WHOLE, WHOLE]


def test_a_log_that_a_transaction_makes_again_is_held_again(
    broker: FakeBroker, client: PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [Topic(TOPIC, {"segment://a/b/orders/0000-ffff-0": (Position(1, 0), Position(1, 0))})]
    record_places(client, T, rows, None)
    broker.on("scalable_topic_lookup", missing)
    broker.on("partition_metadata", refuse(11, "TopicNotFound"))
    monkeypatch.setattr(admin, "create", lambda url, topic, segments: broker.on("scalable_topic_lookup", MADE))
    record_places(client, T, rows, "http://h:8080")
    assert held(broker) == [WHOLE, WHOLE]
