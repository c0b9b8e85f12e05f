"""The writers' log is read although the broker goes away for a moment, and comes back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from pulsar_protocol import sent_reader
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import ConnectionLost
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.sent_log import Sent, Settled, encode, log_name
from pulsar_protocol.sent_reader import SentLog
from tests.support.fake_broker import PATIENCE, FakeBroker, hang_up, refuse
from tests.support.fake_segment import LEDGER, FakeSegment

TOPIC = "topic://a/b/c"
DATA = "segment://a/b/c/0000-ffff-0"
LOG = "segment://a/b/" + log_name(TOPIC).rpartition("/")[2] + "/0000-ffff-0"


def sent(number: int) -> Sent:
    return Sent(TxnId(0, number), {DATA: (Position(LEDGER, number), Position(LEDGER, number))})


VALUES = [encode(one) for one in (sent(0), sent(1), Settled({LOG: Position(LEDGER, 0)}), sent(2))]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url, seconds=PATIENCE, pauses=lambda: itertools.repeat(0.0)) as made:
        yield made


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_reader, "AT_ONCE", 2)


Read = Callable[[SentLog], object]


@pytest.mark.parametrize("read", [SentLog.catch_up, SentLog.skip_settled])
def test_a_connection_that_is_lost_at_any_request_changes_nothing_of_what_is_read(
    broker: FakeBroker, client: PulsarClient, read: Read
) -> None:
    log = FakeSegment(broker, log_name(TOPIC), VALUES)
    expected = SentLog(client, TOPIC)
    read(expected)
    assert {TxnId(0, 1), TxnId(0, 2)} <= expected._sent.keys()
    for number in range(log.asked):
        log.fault, log.fault_at, log.asked = hang_up, number, 0
        found = SentLog(client, TOPIC)
        read(found)
        assert log.asked > number
        assert (found._sent, found._read, found._settled) == (expected._sent, expected._read, expected._settled), number


def test_a_broker_that_is_away_while_an_aborted_transaction_is_looked_for_is_asked_again(
    broker: FakeBroker, client: PulsarClient
) -> None:
    """The cut splits the transaction 0_1, so the reader asks whether its first entry is delivered."""
    log = FakeSegment(broker, log_name(TOPIC), [b"row"] * 4)
    log.fault = hang_up
    for number in range(3):
        reader = SentLog(client, TOPIC)
        reader._sent[TxnId(0, 1)] = Sent(TxnId(0, 1), {DATA: (Position(LEDGER, 1), Position(LEDGER, 3))})
        reader._places[TxnId(0, 1)] = LOG, Position(LEDGER, 1)
        log.fault_at, log.asked = number, 0
        assert reader.whole({DATA: Position(LEDGER, 2)}) == {DATA: Position(LEDGER, 0)}
        assert log.asked > number


def test_a_log_whose_broker_stays_away_is_an_error(
    broker: FakeBroker, client: PulsarClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_reader, "PATIENCE_SECONDS", 0.5)
    FakeSegment(broker, log_name(TOPIC), VALUES)
    broker.on("flow", hang_up)
    with pytest.raises(ConnectionLost):
        SentLog(client, TOPIC).catch_up()
    assert broker.count("flow") > 1


def test_a_log_that_may_not_be_read_is_an_error_at_once(broker: FakeBroker, client: PulsarClient) -> None:
    FakeSegment(broker, log_name(TOPIC), VALUES)
    broker.on("subscribe", refuse(4))
    reader = SentLog(client, TOPIC)
    with pytest.raises(Exception, match="AuthorizationError"):
        reader.catch_up()
    assert reader._read.get(LOG, EARLIEST) == EARLIEST
