"""A broker with Pulsar's default retention removes the entries that no subscription needs. The writers' log of a topic must outlast
that, and what is removed must not stop a read.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import LogDamaged, RecordsGone
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.log_holding import hold
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import Sent, log_name, log_segment, record_sent
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.subscription import Subscription
from spark_txn_sink.pulsar.attempts import Attempt, Opened
from spark_txn_sink.pulsar.control import Begin, Record, Take, encode
from spark_txn_sink.pulsar.control_topic import ControlTopic
from spark_txn_sink.pulsar.many_topics import Topic as Rows
from spark_txn_sink.pulsar.many_topics import record_places
from spark_txn_sink.pulsar.settling import settle
from spark_txn_sink.pulsar.writer import BatchWriter
from tests.support.short_retention import SETTINGS, until

pytestmark = pytest.mark.pulsar


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    with PulsarBroker(tmp_path_factory.mktemp("short"), settings=SETTINGS) as started:
        yield started


@pytest.fixture
def client(broker: PulsarBroker) -> Iterator[PulsarClient]:
    with PulsarClient(broker.url) as opened:
        yield opened


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


class Written:
    """A topic of two segments, and its log, which is held as writers hold it."""

    def __init__(self, broker: PulsarBroker, client: PulsarClient) -> None:
        self.name = broker.create(f"removed-{uuid.uuid4().hex[:8]}", 2)
        broker.create(log_name(self.name), 1)
        self.client, self.log = client, log_segment(client, self.name)
        self.a, self.b = (one.name for one in client.layout(self.name).active)
        subscription = Subscription(client, self.name, "rows", None)  # the rows must stay, as those that nobody has read yet
        subscription.hold([self.a, self.b])
        subscription.close()

    def send(self, segment: str, txn: TxnId | None) -> Position:
        with Producer(self.client, segment) as producer:
            return producer.send([Message(b"row")], txn)

    def transaction(self) -> dict[str, Position]:
        """Commit one row in each segment, and return the positions."""
        txn = self.client.begin(600_000)
        places = {segment: self.send(segment, txn) for segment in (self.a, self.b)}
        at = record_sent(self.client, self.log, Sent(txn, {segment: (place, place) for segment, place in places.items()}))
        self.client.end(txn, commit=True)
        first = places[self.a]
        Segment(self.client, self.a).first_after(Position(first.ledger, first.entry - 1))
        settle(self.client, self.name, Opened(txn, self.log, at), at)
        return places

    def fill_log(self, number: int) -> Position:
        """Write records that no reader needs into the log, and return the last position."""
        with Producer(self.client, self.log) as producer:
            return [producer.send([Message(Attempt("1_1", "x", 0).encoded())]) for _ in range(number)][-1]

    def kept_from(self) -> Position:
        return Segment(self.client, self.log).before_first()


def test_records_of_a_hidden_transaction_are_held(broker: PulsarBroker, client: PulsarClient) -> None:
    topic = Written(broker, client)
    hold(client, topic.name, topic.log)
    topic.transaction()
    first = topic.kept_from()
    pin = client.begin(600_000)
    topic.send(topic.b, pin)
    hidden = topic.transaction()
    topic.fill_log(12)
    broker_removes(broker, client)
    for _ in range(3):
        topic.transaction()
    reader = SentLog(client, topic.name)
    reader.skip_settled()
    cuts = {name: Segment(client, name).cut().position for name in (topic.a, topic.b)}
    reader.catch_up()
    whole = reader.whole(cuts)
    assert cuts[topic.a] >= hidden[topic.a], "the row of the hidden transaction is visible in one segment"
    assert whole[topic.a] < hidden[topic.a], "the read takes nothing of it"
    client.end(pin, commit=False)
    until(lambda: bool(topic.transaction()) and topic.kept_from() > first)


def broker_removes(broker: PulsarBroker, client: PulsarClient) -> None:
    """Wait until the broker has removed entries of a new log without a subscription."""
    topic = Written(broker, client)
    first = topic.fill_log(1)
    topic.fill_log(11)
    until(lambda: topic.kept_from().ledger > first.ledger)


def test_a_reader_says_that_records_it_needs_are_gone(broker: PulsarBroker, client: PulsarClient) -> None:
    topic = Written(broker, client)
    start = topic.fill_log(2)
    topic.fill_log(10)
    until(lambda: topic.kept_from().ledger > start.ledger)
    reader = SentLog(client, topic.name, {topic.log: start})
    with pytest.raises(RecordsGone, match="records up to"):
        reader.catch_up()
    at = topic.fill_log(1)
    settle(client, topic.name, Opened(TxnId(1, 1), topic.log, Position(at.ledger, 0)), at)
    again = SentLog(client, topic.name, {topic.log: start})
    again.catch_up()
    assert again.incomplete
    cut = {name: Segment(client, name).cut().position for name in (topic.a, topic.b)}
    assert again.limited({}, cut) == cut, "a read that lacks records takes all up to the cut"
    again.forget_to(cut)
    assert not again.incomplete


@pytest.mark.parametrize("writer", ["Spark", "connect"])
def test_each_writer_holds_the_log_before_it_commits(broker: PulsarBroker, client: PulsarClient, writer: str) -> None:
    topic = Written(broker, client)
    first = topic.fill_log(1)
    if writer == "Spark":
        options = {"serviceUrl": broker.url, "adminUrl": broker.admin_url, "topic": topic.name}
        BatchWriter(options, StructType([StructField("value", BinaryType())]), overwrite=False).__getstate__()
    else:
        record_places(client, TxnId(1, 1), [Rows(topic.name, {topic.a: (Position(1, 0), Position(1, 0))})], broker.admin_url)
    topic.fill_log(12)
    broker_removes(broker, client)
    assert topic.kept_from().ledger == first.ledger


def moved_control(broker: PulsarBroker, client: PulsarClient, number: int) -> tuple[ControlTopic, list[Record]]:
    """Return a new reader of a control topic, and its records: a `take`, and so many others. Its subscription was moved behind all
    of them, as message expiry (TTL) does.
    """
    topic, app = f"topic://public/default/t-{uuid.uuid4().hex[:8]}", "app"
    written: list[Record] = [Take("a"), *(Begin(TxnId(1, version), version, "a") for version in range(number))]
    control = ControlTopic(client.another, app, topic, broker.admin_url)
    control.take("a")
    places = [control.append(record) for record in written[1:]]
    control.keep_from(places[-1])
    control.drop()
    return ControlTopic(client.another, app, topic, broker.admin_url), written


def test_records_of_an_application_count_after_message_expiry(broker: PulsarBroker, client: PulsarClient) -> None:
    control, written = moved_control(broker, client, 2)
    taken = control.take("b")
    assert [record for _, record in control.read(taken)] == [*written, Take("b")]
    control.drop()


def test_removed_records_of_an_application_are_missed(broker: PulsarBroker, client: PulsarClient) -> None:
    control, written = moved_control(broker, client, 3)
    segment = client.layout(control.name).active[0].name
    first = Segment(client, segment).before_first()
    broker.rest("PUT", "namespaces/public/default/unload")
    until(lambda: Segment(client, segment).before_first().ledger > first.ledger)
    with Producer(client, segment) as producer:
        producer.send([Message(encode(written[-1]))])
    with pytest.raises(LogDamaged, match=f"{control.name}: the records before .* are gone"):
        list(control.read())
    control.drop()
