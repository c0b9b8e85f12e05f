"""A broker with Pulsar's default retention removes the entries that no subscription needs. The writers' log of a topic must outlast
that, and what is removed must not stop a read.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import Sent, log_name, log_segment, record_sent
from pulsar_protocol.sent_reader import SentLog

pytestmark = pytest.mark.pulsar


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    """A broker with Pulsar's default retention, which removes entries after seconds. A ledger has four entries."""
    settings = {
        "defaultRetentionTimeInMinutes": 0,
        "defaultRetentionSizeInMB": 0,
        "retentionCheckIntervalInSeconds": 2,
        "managedLedgerMaxEntriesPerLedger": 4,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    }
    with PulsarBroker(tmp_path_factory.mktemp("short"), settings=settings) as started:
        yield started


@pytest.fixture
def client(broker: PulsarBroker) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url) as opened:
        yield opened


def until(true: Callable[[], bool], seconds: float = 150) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_a_log_whose_entries_are_all_removed_is_read_to_its_end(broker: PulsarBroker, client: PulsarClient) -> None:
    topic = broker.create(f"removed-{uuid.uuid4().hex[:8]}", 1)
    broker.create(log_name(topic), 1)
    log = log_segment(client, topic)
    places = [record_sent(client, log, Sent(TxnId(1, number), {})) for number in range(3)]
    broker.rest("PUT", "namespaces/public/default/unload")
    segment = Segment(client, log)
    until(lambda: Segment(client, log).before_first().ledger > places[-1].ledger)
    last = segment.last()
    assert last == places[-1], "the broker names a last entry that is removed"
    began = time.monotonic()
    cut = segment.cut()
    assert (cut.position, cut.whole) == (EARLIEST, True)
    assert Segment(client, log).cut(places[0]).whole
    SentLog(client, topic).catch_up()
    newest = SentLog(client, topic)
    newest.skip_settled()
    assert time.monotonic() - began < 20
    with Producer(client, log) as producer:
        after = producer.send([Message(b"{}")])
    assert Segment(client, log).cut().position == after


def test_an_open_transaction_after_removed_entries_is_waited_for(broker: PulsarBroker, client: PulsarClient) -> None:
    (segment,) = client.layout(broker.create(f"removed-{uuid.uuid4().hex[:8]}", 1)).active
    with Producer(client, segment.name) as producer:
        places = [producer.send([Message(b"row")]) for _ in range(8)]
        txn = client.begin(600_000)
        until(lambda: Segment(client, segment.name).before_first().ledger > places[0].ledger)
        at = producer.send([Message(b"row")], txn)
    cut = Segment(client, segment.name).cut()
    assert (cut.position < at, cut.whole, cut.last) == (True, False, at)
    client.end(txn, commit=True)
    Segment(client, segment.name).first_after(Position(at.ledger, at.entry - 1))
    assert Segment(client, segment.name).cut().position == at
