"""A consumer or transaction that ends gives its subscription free, whatever else fails meanwhile. No broker runs: the logs of the
subscriptions are models.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pulsar_protocol.client import PulsarClient
from tests.support.pulsar_ack_model import Broker, acks_of
from txnsegment.pulsar import transaction_acks
from txnsegment.pulsar.ack_log import AckLog, Clock
from txnsegment.pulsar.consumer import PulsarConsumer
from txnsegment.pulsar.feeding import Feeding
from txnsegment.pulsar.transaction_acks import TransactionAcks

TOPIC = "topic://public/default/one"


class Interrupted:
    """A stand-in for the cursors of a subscription, or for the reader of a consumer. The user interrupts its end."""

    service_url = "pulsar://one:6650"

    def __init__(self, *given: object) -> None:
        self.ends = 0

    def begin(self, rows: object, sent: object) -> None:
        pass

    def close(self) -> None:
        self.ends += 1
        raise KeyboardInterrupt


def owned_log() -> tuple[Broker, AckLog]:
    broker = Broker()
    log = acks_of(broker)
    log.move({}, {})
    assert broker.owner is not None
    return broker, log


def test_a_transaction_gives_its_subscription_free_although_its_cursors_were_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise every later consumer gets SubscriptionBusy, until the process ends."""
    monkeypatch.setattr(transaction_acks, "Subscription", Interrupted)
    broker, log = owned_log()
    acks = TransactionAcks(cast("PulsarClient", SimpleNamespace(url="pulsar://one:6650")), log, TOPIC, "s")
    with pytest.raises(KeyboardInterrupt):
        acks.close()
    assert broker.owner is None
    acks.close()


def test_a_consumer_gives_its_subscription_free_although_its_reader_was_not_closed() -> None:
    broker, log = owned_log()
    feeding: Any = Interrupted()
    consumer = PulsarConsumer(cast("Feeding", feeding), log, TOPIC, "s", Clock())
    consumer._rewind_due = True
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert broker.owner is None
    consumer.close()
    assert feeding.ends == 1
