"""A consumer or producer that is closed raises no error of the broker, and all other connections are closed nevertheless."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.producer import Producer
from pulsar_protocol.subscription import Subscription
from tests.support.fake_broker import Action, FakeBroker, answer, hang_up, refuse, silent

TOPIC = "topic://a/b/c"
SEGMENT = "segment://a/b/c/0000-ffff-0"
FAULTS = [
    pytest.param(silent, "did not answer", id="the broker hangs"),
    pytest.param(refuse(0), "UnknownError", id="the broker refuses"),
    pytest.param(hang_up, "", id="the connection ends"),
]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        made.on("lookup_topic", answer("lookup_topic_response", response=1, broker_service_url=made.url, authoritative=True))
        made.on("producer", answer("producer_success", producer_name="p", last_sequence_id=-1, schema_version=b""))
        made.on("subscribe", answer("success"))
        made.on("scalable_topic_subscribe", answer("scalable_topic_subscribe_response"))
        yield made


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url, seconds=0.5) as made:
        yield made


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_the_close_of_a_consumer_only_logs_what_the_broker_answers(
    broker: FakeBroker, client: PulsarClient, fault: Action, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on("close_consumer", fault)
    consumer = Consumer.durable(client.channel(), SEGMENT, "s")
    with caplog.at_level(logging.WARNING):
        consumer.close()
        consumer.close()
    assert not consumer.alive
    assert broker.count("close_consumer") == 1
    assert (f"the consumer of {SEGMENT} was not closed" in caplog.text) == bool(said)
    assert said in caplog.text


@pytest.mark.parametrize(("fault", "said"), FAULTS)
def test_the_close_of_a_producer_only_logs_what_the_broker_answers(
    broker: FakeBroker, client: PulsarClient, fault: Action, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on("close_producer", fault)
    producer = Producer(client, SEGMENT)
    with caplog.at_level(logging.WARNING):
        producer.close()
        producer.close()
    assert not producer.alive
    assert broker.count("close_producer") == 1
    assert (f"the producer of {SEGMENT} was not closed" in caplog.text) == bool(said)
    assert said in caplog.text


@pytest.mark.parametrize("interrupted", [False, True])
def test_the_close_of_a_subscription_ends_all_its_consumers_and_connections(
    broker: FakeBroker, client: PulsarClient, interrupted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`interrupted`: the user interrupts the program while the first consumer closes."""
    broker.on("close_consumer", refuse(0))
    made: list[PulsarClient] = []
    another = PulsarClient.another

    def noted(self: PulsarClient) -> PulsarClient:
        made.append(another(self))
        return made[-1]

    monkeypatch.setattr(PulsarClient, "another", noted)
    subscription = Subscription(client, TOPIC, "s", None)
    subscription.hold([SEGMENT, f"{SEGMENT}1"])
    closed = list[str]()
    close = Consumer.close

    def interrupted_once(self: Consumer) -> None:
        close(self)
        closed.append(self.topic)
        if len(closed) == 1 and interrupted:
            raise KeyboardInterrupt

    monkeypatch.setattr(Consumer, "close", interrupted_once)
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            subscription.close()
    else:
        subscription.close()
    assert sorted(closed) == [SEGMENT, f"{SEGMENT}1", TOPIC]
    assert [one.closed for one in made] == [True]
