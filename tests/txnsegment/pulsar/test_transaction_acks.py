"""The acknowledgements of a transaction of a Spark program, while several threads use the transaction. No broker runs: the logs of
the subscriptions are models.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from metadata.common.errors import OptionError
from metadata.records.row_ranges import Row, before
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import TimedOut
from pulsar_protocol.layout import Layout, Position
from spark_txn_sink.pulsar.many_topics import Application
from tests.support.pulsar_ack_model import Broker, T, acks_of
from tests.support.pulsar_layouts import layout_of
from txnsegment.pulsar import spark_transaction, transaction_acks
from txnsegment.pulsar.ack_log import AckLog
from txnsegment.pulsar.ack_records import RowsBySegment
from txnsegment.pulsar.spark_transaction import PulsarSparkTransaction
from txnsegment.pulsar.transaction_acks import TransactionAcks
from txnsegment.pulsar.unread import Unread

SECONDS = 20.0
"""After this time a test that waits for a thread fails."""
ONE, TWO = "topic://public/default/one", "topic://public/default/two"


def up_to(entry: int) -> RowsBySegment:
    return {"s0": before(Row(1, entry + 1, 0))}


class Client:
    """A stand-in for the client. The coordinator ends transactions of the models."""

    url = "pulsar://one:6650"

    def __init__(self, *brokers: Broker) -> None:
        self.brokers = brokers

    def layout(self, topic: str) -> Layout:
        return layout_of(0)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        for one in self.brokers:
            one.txns[txn] = "COMMITTED" if commit else "ABORTED"


class Cursors:
    """A stand-in for the subscription. `moved`: how far the cursors of its segments were moved."""

    moved: dict[str, Position]

    def __init__(self, client: object, topic: str, name: str, admin_url: str | None) -> None:
        self.moved = {}

    def hold(self, segments: list[str]) -> None:
        pass

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        self.moved |= positions

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def no_cursors_at_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_acks, "Subscription", Cursors)


def existing_log() -> tuple[Broker, AckLog]:
    """Return the model of a log of a subscription that exists, and its owner. The transaction T is open."""
    broker = Broker()
    broker.txns[T] = "OPEN"
    log = acks_of(broker)
    log.move({}, {})
    return broker, log


def acked(broker: Broker) -> RowsBySegment:
    """Return what is acknowledged, as the next consumer reads it."""
    return acks_of(broker).state().rows


def test_rows_that_are_claimed_after_the_acknowledgements_were_written_do_not_count() -> None:
    """Neither in the log nor for the cursors. Another thread has claimed them."""
    broker, log = existing_log()
    client = Client(broker)
    acks = TransactionAcks(cast("PulsarClient", client), log, ONE, "s")
    owner = SimpleNamespace(id=T.text)
    acks.claim(up_to(3))
    acks.begun(T)
    acks.prepare(owner, T)
    acks.claim(up_to(9), {"s0": Position(1, 9)})
    client.end(T, commit=True)
    acks.ended(owner, T, "committed")
    assert cast("Cursors", acks._cursors).moved == {"s0": Position(1, 2)}
    assert acked(broker) == up_to(3)


def test_a_transaction_that_acknowledges_nothing_moves_no_cursor() -> None:
    """It was committed by another thread before its rows were claimed."""
    broker, log = existing_log()
    acks = TransactionAcks(cast("PulsarClient", Client(broker)), log, ONE, "s")
    acks.claim(up_to(3))
    acks.ended(SimpleNamespace(id=T.text), T, "committed")
    assert cast("Cursors", acks._cursors).moved == {}
    assert acked(broker) == {}


class Spark:
    """A stand-in for a session that plans a read."""

    @property
    def read(self) -> Spark:
        return self

    def format(self, name: str) -> Spark:
        return self

    def options(self, **options: str) -> Spark:
        return self

    def load(self) -> str:
        return "the rows"


def transaction(monkeypatch: pytest.MonkeyPatch, logs: dict[str, AckLog], *brokers: Broker) -> PulsarSparkTransaction:
    """Return a transaction that was begun, and that finds the same unread rows in each topic."""
    rows = Unread(starts={}, ends={"s0": Position(1, 3)}, hidden={}, rows=up_to(3), held=("s0",), sent={})
    parsed = {topic: SimpleNamespace(topic=topic) for topic in logs}
    monkeypatch.setattr(spark_transaction, "parts_options", lambda *given: parsed)
    monkeypatch.setattr(spark_transaction, "unread", lambda *given: rows)
    monkeypatch.setattr(spark_transaction, "owned_acks", lambda client, subscriptions, topic, name: logs[topic])
    txn = PulsarSparkTransaction(cast("PulsarClient", Client(*brokers)), 60_000, lambda: "low", Application())
    txn._id = T
    return txn


def test_a_commit_of_another_thread_has_all_topics_of_a_read_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit is asked for while the second topic of the read takes part."""
    (one, log_of_one), (two, log_of_two) = existing_log(), existing_log()
    txn = transaction(monkeypatch, {ONE: log_of_one, TWO: log_of_two}, one, two)
    committing = threading.Thread(target=txn.commit)
    begin = AckLog.begin

    def slow_begin(self: AckLog, of: TxnId) -> None:
        if self is log_of_two:
            committing.start()
            committing.join(0.5)  # without the guard it would be over
        begin(self, of)

    monkeypatch.setattr(AckLog, "begin", slow_begin)
    assert cast("Any", txn.read(cast("Any", Spark()), [ONE, TWO], subscription="s")) == "the rows"
    committing.join(SECONDS)
    assert not committing.is_alive()
    assert (acked(one), acked(two)) == (up_to(3), up_to(3))


def test_a_read_whose_transaction_another_thread_ends_acknowledges_nothing_and_gives_the_subscription_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, log = existing_log()
    txn = transaction(monkeypatch, {ONE: log}, broker)
    load = Spark.load

    def load_during_commit(self: Spark) -> str:
        txn.commit()
        return load(self)

    monkeypatch.setattr(Spark, "load", load_during_commit)
    with pytest.raises(OptionError, match="has ended"):
        txn.read(cast("Any", Spark()), ONE, subscription="s")
    assert acked(broker) == {}


def test_a_read_that_cannot_acknowledge_positions_without_rows_acknowledges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first topic of the read has unread rows, the second one only positions without rows. The program goes on after the
    error, and commits.
    """
    (one, log_of_one), (two, log_of_two) = existing_log(), existing_log()
    txn = transaction(monkeypatch, {ONE: log_of_one, TWO: log_of_two}, one, two)
    rows = Unread(starts={}, ends={"s0": Position(1, 3)}, hidden={}, rows=up_to(3), held=("s0",), sent={})
    found = {ONE: rows, TWO: replace(rows, ends={})}
    monkeypatch.setattr(spark_transaction, "unread", lambda client, options, *given: found[options.topic])
    acknowledge = AckLog.acknowledge

    def fails(self: AckLog, rows: RowsBySegment) -> None:
        if self is log_of_two:
            raise TimedOut("The broker gave no answer.", advice="Try again.")
        acknowledge(self, rows)

    monkeypatch.setattr(AckLog, "acknowledge", fails)
    with pytest.raises(TimedOut):
        txn.read(cast("Any", Spark()), [ONE, TWO], subscription="s")
    txn.commit()
    assert (acked(one), acked(two)) == ({}, {})
