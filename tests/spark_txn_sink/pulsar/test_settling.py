"""From time to time a writer appends a `Settled` to a topic's log. It says which records of the log later readers do not need."""

from __future__ import annotations

import itertools
import logging
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol import sent_reader
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import ConnectionLost
from pulsar_protocol.layout import Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.reader import entries
from pulsar_protocol.sent_log import Sent, Settled, decode, encode, log_name, log_segment, record_sent
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.whole_cuts import settled
from spark_txn_sink.pulsar import settling
from spark_txn_sink.pulsar.attempts import Attempt, Opened
from spark_txn_sink.pulsar.settling import EVERY, is_due, settle
from spark_txn_sink.pulsar.writer import BatchWriter


def test_one_write_is_due_for_each_five_hundred_records_and_for_each_ledger() -> None:
    ends = [Position(7, entry) for entry in range(2, 3 * EVERY, 6)]
    assert [two for one, two in itertools.pairwise(ends) if is_due(one, two)] == [Position(7, 500), Position(7, 1004)]
    writes = [(Position(7, entry), Position(7, entry + 4)) for entry in range(5, 3 * EVERY, 5)]
    assert [last for first, last in writes if is_due(first, last)] == [Position(7, 499), Position(7, 999), Position(7, 1499)]
    assert is_due(Position(7, 10), Position(9, 0))
    assert is_due(Position(9, 0), Position(9, 4)), "earlier ledgers may be gone"


def test_a_record_of_what_is_settled_is_the_same_after_json_and_no_attempt_of_a_task() -> None:
    record = Settled({"segment://t/n/log/0000-ffff-0": Position(4, -1)})
    assert decode(encode(record)) == record
    assert Attempt.decoded(encode(record)).partition is None


def test_a_failure_after_the_commit_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: Any) -> Settled:
        raise ConnectionLost("The broker is away.", advice="Try again.")

    monkeypatch.setattr(settling, "settled", lost)
    monkeypatch.setattr(settling, "log_segment", lambda *_: "log")
    with caplog.at_level(logging.WARNING):
        settle(object(), "topic://a/b/c", Opened(TxnId(1, 1), "log", Position(7, 0)), Position(7, EVERY))
    assert "the write is committed, but what is settled was not recorded: The broker is away." in caplog.text


@pytest.fixture
def client(pulsar: str) -> Iterator[PulsarClient]:
    with PulsarClient(pulsar) as found:
        yield found


class Topic:
    """A topic with two segments, and the log of this topic."""

    def __init__(self, client: PulsarClient, broker: PulsarBroker) -> None:
        self.name = broker.create(f"topic://public/default/settled-{uuid.uuid4().hex[:8]}", 2)
        broker.create(log_name(self.name), 1)
        self.client = client
        self.a, self.b = (one.name for one in client.layout(self.name).active)
        self.log = log_segment(client, self.name)

    def send(self, segment: str, txn: TxnId | None) -> Position:
        with Producer(self.client, segment) as producer:
            return producer.send([Message(b"row")], txn)

    def transaction(self) -> tuple[TxnId, Position]:
        """Commit one row in each segment, and wait until the row in A is visible. Return the transaction's id and the position of
        its record.
        """
        txn = self.client.begin(600_000)
        places = {segment: self.send(segment, txn) for segment in (self.a, self.b)}
        at = record_sent(self.client, self.log, Sent(txn, {segment: (place, place) for segment, place in places.items()}))
        self.client.end(txn, commit=True)
        Segment(self.client, self.a).first_after(Position(places[self.a].ledger, places[self.a].entry - 1))
        return txn, at


def until_settled(topic: Topic, record: Position) -> None:
    """Wait until a record is settled. A segment applies a decision a moment after the coordinator has answered."""
    deadline = time.monotonic() + 60
    while settled(topic.client, topic.name).after[topic.log] < record:
        assert time.monotonic() < deadline


@pytest.mark.pulsar
def test_a_write_records_what_is_settled(pulsar_broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `EVERY` = 1 each write is due to record what is settled."""
    monkeypatch.setattr(settling, "EVERY", 1)
    topic = f"topic://public/default/settled-{uuid.uuid4().hex[:8]}"
    schema = StructType([StructField("value", BinaryType())])
    options = {"serviceUrl": pulsar_broker.url, "adminUrl": pulsar_broker.admin_url, "topic": topic}
    for _ in range(2):
        writer = BatchWriter(options, schema, overwrite=False)
        writer.__getstate__()
        rows = pa.RecordBatch.from_pydict({"value": [b"one", b"two"]})
        writer.commit([writer.write(iter([rows]))])
    with PulsarClient(pulsar_broker.url) as client:
        segment = log_segment(client, topic)
        found = [
            decode(message.value or b"")
            for _, entry in entries(client, segment, to=Segment(client, segment).cut().position)
            for message in entry.messages()
        ]
    assert [type(one) for one in found if one is not None] == [Sent, Settled, Sent, Settled]


@pytest.mark.pulsar
def test_records_are_settled_up_to_the_first_hidden_transaction(
    client: PulsarClient, pulsar_broker: PulsarBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_reader, "AT_ONCE", 2)
    topic = Topic(client, pulsar_broker)
    for _ in range(6):
        _, last = topic.transaction()
    until_settled(topic, last)
    other = client.begin(600_000)
    topic.send(topic.b, other)
    hidden, at = topic.transaction()
    topic.transaction()
    now = settled(client, topic.name)
    assert now.after == {topic.log: Position(at.ledger, at.entry - 1)}
    record_sent(client, topic.log, now)
    newest = SentLog(client, topic.name)
    newest.skip_settled()
    cut = {topic.a: Segment(client, topic.a).cut().position, topic.b: Segment(client, topic.b).cut().position}
    every = SentLog(client, topic.name)
    every.catch_up()
    assert newest.whole(cut) == every.whole(cut)
    assert hidden in newest._sent
    assert len(newest._sent) < len(every._sent) == 8
    client.end(other, commit=False)
    _, last = topic.transaction()
    until_settled(topic, last)
    newest.catch_up()
    every.catch_up()
    assert newest.needed_after(cut)[topic.log] == every.needed_after(cut)[topic.log]
