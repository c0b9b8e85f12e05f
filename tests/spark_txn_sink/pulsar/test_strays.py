"""The control topic finds the transactions that earlier drivers of its application have opened. A fake broker has the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulsar_protocol import reader
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import LogDamaged, TimedOut
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import Attempt, Opened
from spark_txn_sink.pulsar.control_topic import ControlTopic
from tests.support.fake_broker import FakeBroker
from tests.support.fake_segment import LEDGER, FakeSegment

APP, TOPIC, LOG = "app", "topic://a/b/c", "topic://a/b/log"
OWN = TxnId(0, 9)
VALUES = [
    Attempt(TxnId(0, number).text, "x", app=app).encoded() for number, app in ((1, APP), (2, "another"), (3, APP), (OWN.least, APP))
]
NONE_PASSED = 0


@pytest.fixture
def log() -> Iterator[FakeSegment]:
    with FakeBroker() as broker:
        yield FakeSegment(broker, LOG, VALUES)


@pytest.fixture
def control(log: FakeSegment) -> Iterator[ControlTopic]:
    made = ControlTopic(lambda: PulsarClient(log.url, seconds=5.0), APP, TOPIC, None)
    yield made
    made.drop()


def opened(log: FakeSegment) -> Opened:
    return Opened(OWN, log.name, Position(LEDGER, len(log.values) - 1))


def test_the_earlier_transactions_of_the_application_are_found_until_they_are_passed(
    log: FakeSegment, control: ControlTopic
) -> None:
    assert control.strays(opened(log)) == [TxnId(0, 1), TxnId(0, 3)]
    control.passed(opened(log))
    assert control.strays(opened(log)) == []
    assert [*log.cursors.values()] == [len(VALUES)]


def test_a_slow_broker_hides_no_earlier_transaction(
    log: FakeSegment, control: ControlTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller would pass over the transactions of the records that have not come, and they would hide rows until they time
    out.
    """
    monkeypatch.setattr(reader, "ANSWER_SECONDS", 1.5)
    log.held_at = 2
    with pytest.raises(TimedOut, match="7:3 was not reached"):
        control.strays(opened(log))
    assert [*log.cursors.values()] == [NONE_PASSED]
    log.held_at = None
    assert control.strays(opened(log)) == [TxnId(0, 1), TxnId(0, 3)]


def test_a_record_that_cannot_be_read_is_an_error(log: FakeSegment, control: ControlTopic) -> None:
    log.values[1] = b"junk"
    with pytest.raises(LogDamaged, match=r"/log/.*junk"):
        control.strays(opened(log))
