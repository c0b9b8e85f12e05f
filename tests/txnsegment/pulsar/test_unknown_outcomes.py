"""A Pulsar transaction is ended, and the connection breaks before the reply to the end arrives. No broker runs: a stand-in for the
client answers, and loses requests or replies. The control topic of an application is that of a model of a broker.
"""

from __future__ import annotations

import random
from typing import cast

import pyarrow as pa
import pytest

from metadata.common.errors import Fenced, OptionError, OutcomeUnknown, TxnConflict, VersionConflict
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import ConnectionLost, TransactionEnded, broker_error
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.control import Begin, Done, Record, Take, decode, encode
from spark_txn_sink.pulsar.many_topics import Application
from tests.support.pulsar_control_model import End, ModelControl, World
from txnsegment.batches import Batches, rows_given
from txnsegment.producer import Producer
from txnsegment.pulsar import ending, transaction
from txnsegment.pulsar.ending import Owner
from txnsegment.pulsar.transaction import PulsarTransaction
from txnsegment.transaction import Transaction, TransactionAborted


class Broker:
    """A stand-in for the client, with the transaction coordinator of a broker. `lost`: the fault of each of the next calls of
    `end`. Its request is lost, or its reply is lost, or the broker has forgotten the transaction. `unknown` and `denied`: the
    broker carries out the request, and all that the client learns is an UnknownError, or that it may not connect again. `state`:
    the transaction's state.
    """

    url = "pulsar://one:6650,two:6650"

    def __init__(self, *lost: str) -> None:
        self.lost, self.state = list(lost), "OPEN"

    def end(self, txn: TxnId, *, commit: bool) -> None:
        lost = self.lost.pop(0) if self.lost else ""
        wanted = "COMMITTED" if commit else "ABORTED"
        if lost == "forgotten":
            self.state = "FORGOTTEN"
        if lost != "request" and self.state == "OPEN":
            self.state = wanted
        if lost in ("request", "reply"):
            raise ConnectionLost("The connection broke.")
        if lost == "unknown":
            raise broker_error(0, "", "end txn")
        if lost == "denied":
            raise broker_error(9, "the token has expired", "connect")
        if self.state == "FORGOTTEN":
            raise broker_error(24, "unknown", "end txn")
        if self.state != wanted:
            raise broker_error(21, f"is {self.state}", "end txn")


def begun(broker: Broker, seconds: float = 0.0) -> PulsarTransaction:
    """Return a transaction that was begun so many seconds ago."""
    clock = [0.0]
    txn = PulsarTransaction(cast("PulsarClient", broker), 60_000, lambda: "low", now=lambda: clock[0])
    txn._id, clock[0] = TxnId(0, 7), seconds
    return txn


@pytest.mark.parametrize("lost", ["request", "reply", "unknown", "denied"])
def test_a_second_commit_learns_the_outcome(lost: str) -> None:
    broker = Broker(lost)
    txn = begun(broker)
    with pytest.raises(OutcomeUnknown, match="unknown whether the Pulsar transaction 0_7 is committed"):
        txn.commit()
    assert txn.commit().txn_id == "0_7"
    assert broker.state == "COMMITTED"


@pytest.mark.parametrize("lost", ["reply", "unknown", "denied"])
def test_a_block_that_ends_by_an_unknown_outcome_says_that_the_rows_are_visible(lost: str) -> None:
    broker = Broker(lost)
    with pytest.raises(OutcomeUnknown) as raised, begun(broker) as txn:
        txn.commit()
    assert broker.state == "COMMITTED"
    assert raised.value.__notes__ == ["The Pulsar transaction 0_7 IS committed: its rows are visible. Do not run it again."]


def test_a_block_that_ends_by_an_unknown_outcome_says_that_nothing_is_visible() -> None:
    broker = Broker("request")
    with pytest.raises(OutcomeUnknown) as raised, begun(broker) as txn:
        txn.commit()
    assert broker.state == "ABORTED"
    assert raised.value.__notes__ == ["The Pulsar transaction 0_7 is aborted: nothing of it is visible. It can be run again."]


def test_a_forgotten_transaction_stays_unknown() -> None:
    """The reply to the first commit is lost. The broker then deletes its record of the transaction, as it does some time after the
    end. So a second commit cannot learn the outcome of the first.
    """
    txn = begun(Broker("reply", "forgotten"))
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="has forgotten it"):
            txn.commit()


def test_a_transaction_that_the_broker_ended_first_is_a_conflict() -> None:
    broker = Broker()
    broker.state = "ABORTED"
    with pytest.raises(TxnConflict, match=r"aborted by its timeout of 60000 ms: it was open for 60\.5 s") as raised:
        begun(broker, 60.5).commit()
    assert "with a longer timeout" in raised.value.advice
    with pytest.raises(TxnConflict, match=r"by another program, 3\.0 s after its begin and before its timeout") as raised:
        begun(broker, 3.0).commit()
    assert "txnsegment txns abort" in raised.value.advice


def test_nothing_is_appended_after_a_commit_was_sent() -> None:
    """The commit may be there already, and its record of the positions has only the rows before it."""
    txn = begun(Broker("request"))
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    with pytest.raises(OptionError, match="is being committed: it cannot append"):
        txn.append("t", pa.table({"value": [b"late"]}))
    assert txn.commit().txn_id == "0_7"


class Consumer:
    """A stand-in for a consumer. `fails`: the call that raises."""

    service_url = "pulsar://two:6650"

    def __init__(self, fails: str = "") -> None:
        self.fails, self.told = fails, list[object]()

    def begun(self, txn: TxnId) -> None:
        if self.fails == "begun":
            raise ConnectionLost("The log of the subscription was lost.")

    def prepare(self, owner: Owner, txn: TxnId) -> None:
        pass

    def ended(self, owner: Owner, txn: TxnId | None, outcome: object) -> None:
        self.told.append(outcome)
        if self.fails == "ended":
            raise KeyboardInterrupt


def test_an_acknowledgement_that_cannot_be_recorded_aborts_the_transaction() -> None:
    """Otherwise the rows would be committed without it, and the log would have a begin without an end."""
    broker = Broker()
    txn = begun(broker)
    with pytest.raises(ConnectionLost, match="log of the subscription"):
        txn.join(Consumer("begun"))
    assert broker.state == "ABORTED"
    with pytest.raises(OptionError, match="has ended"):
        txn.commit()


def test_a_consumer_of_another_cluster_is_refused_and_the_transaction_goes_on() -> None:
    """Otherwise its log would name a transaction of the other cluster."""
    txn, other = begun(Broker()), Consumer()
    other.service_url = "pulsar://three:6650"
    with pytest.raises(OptionError, match="pulsar://three:6650 cannot be acknowledged by a transaction of pulsar://one:6650"):
        txn.join(other)
    txn.join(Consumer())
    assert txn.commit().txn_id == "0_7"
    assert other.told == []


def test_every_consumer_is_told_the_outcome_once_though_one_of_them_fails() -> None:
    txn = begun(Broker())
    consumers = [Consumer("ended"), Consumer()]
    for one in consumers:
        txn.join(one)
    with pytest.raises(KeyboardInterrupt):
        txn.abort()
    txn.abort()
    assert [one.told for one in consumers] == [["aborted"], ["aborted"]]


def test_an_interrupt_after_the_commit_says_that_the_rows_are_visible() -> None:
    txn = begun(Broker())
    txn.join(Consumer("ended"))
    with pytest.raises(KeyboardInterrupt) as raised:
        txn.commit()
    assert raised.value.__notes__ == ["The Pulsar transaction 0_7 IS committed: its rows are visible. Do not run it again."]
    assert txn.commit().txn_id == "0_7"


def test_a_commit_while_append_takes_rows_is_refused() -> None:
    """It would commit the rows that were sent so far."""
    txn = begun(Broker())
    txn._appending = 1
    with pytest.raises(OptionError, match="cannot commit while append runs"):
        txn.commit()


# --- with an application --------------------------------------------------------------------------------------------------------


class Control(ModelControl):
    """The control topic of an application. `lost`: what is lost of the first commit, the request or the reply."""

    def __init__(self, world: World, lost: str = "") -> None:
        super().__init__(world)
        self.lost = lost

    def end(self, txn: TxnId, *, commit: bool) -> None:
        if self.lost != "request" or not commit:
            super().end(txn, commit=commit)
        if self.lost and commit:
            raise ConnectionLost(f"The {self.lost} was lost.")


class Client:
    """A stand-in for the client, whose coordinator is that of the model."""

    url = "pulsar://one:6650"

    def __init__(self, world: World) -> None:
        self.world = world

    def end(self, txn: TxnId, *, commit: bool) -> None:
        self.world.end(txn, "committed" if commit else "aborted")


class Acks:
    """A stand-in for a consumer. `met`: what it met when it wrote its acknowledgements: the state of the transaction, and the kinds
    of the records of the control topic. `told`: the outcomes that it was told.
    """

    service_url = Client.url

    def __init__(self, world: World) -> None:
        self.world = world
        self.met: list[tuple[End, list[type[Record]]]] = []
        self.told: list[object] = []

    def begun(self, txn: TxnId) -> None:
        pass

    def prepare(self, owner: Owner, txn: TxnId) -> None:
        self.met.append((self.world.txns[txn], kinds(self.world)))

    def ended(self, owner: Owner, txn: TxnId | None, outcome: object) -> None:
        self.told.append(outcome)


def kinds(world: World) -> list[type[Record]]:
    return [type(decode(data)) for data, _ in world.log]


@pytest.fixture
def world() -> World:
    return World(random.Random(0), 0.0)


def version(world: World, monkeypatch: pytest.MonkeyPatch, number: int = 1, lost: str = "") -> tuple[PulsarTransaction, Acks]:
    """Return a transaction that is a version of the application `etl`, and the consumer that takes part in it."""
    monkeypatch.setattr(ending, "ControlTopic", lambda *given: Control(world, lost))
    monkeypatch.setattr(ending, "PATIENCE_SECONDS", 0.0)
    txn = PulsarTransaction(cast("PulsarClient", Client(world)), 60_000, lambda: "low", Application("etl", number))
    txn._id = world.begin(number)
    txn._opened = Opened(txn._id, "segment://public/default/journal/0000-ffff-0", Position(0, 0))
    acks = Acks(world)
    txn.join(acks)
    return txn, acks


def committed_before(world: World, number: int) -> TxnId:
    """Commit a version of the application by another program."""
    txn = world.begin(number)
    world.write(encode(Take(txn.text)), None)
    world.write(encode(Begin(txn, number, txn.text)), None)
    world.write(encode(Done(txn, number, txn.text, "t", {}, 1)), txn)
    world.end(txn, "committed")
    return txn


def test_the_acknowledgements_of_a_version_are_written_after_its_begin_and_before_its_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its `begin` the version is known to be new. After its commit nothing can be written in the transaction."""
    txn, acks = version(world, monkeypatch)
    assert (txn.commit().txn_id, txn.commit().skipped) == ("0_1", False)
    assert acks.met == [("open", [Take, Begin])]
    assert (kinds(world), world.txns, acks.told) == ([Take, Begin, Done], {TxnId(0, 1): "committed"}, ["committed"])


def test_the_repetition_of_a_version_is_skipped_and_acknowledges_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = committed_before(world, 1)
    txn, acks = version(world, monkeypatch)
    assert txn.commit().skipped
    assert world.txns == {first: "committed", TxnId(0, 2): "aborted"}
    assert (acks.met, acks.told) == ([], ["aborted"])


def test_a_version_below_the_committed_one_is_refused_and_acknowledges_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = committed_before(world, 2)
    txn, acks = version(world, monkeypatch)
    with pytest.raises(VersionConflict, match="below the committed version 2"):
        txn.commit()
    assert world.txns == {first: "committed", TxnId(0, 2): "aborted"}
    assert (acks.met, acks.told) == ([], ["aborted"])


def test_a_program_that_is_replaced_while_it_writes_acknowledgements_is_fenced(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_over(self: Acks, owner: Owner, txn: TxnId) -> None:
        world.epoch += 1
        world.write(encode(Take("another program")), None)
        world.end(txn, "aborted")

    monkeypatch.setattr(Acks, "prepare", take_over)
    txn, acks = version(world, monkeypatch)
    with pytest.raises(Fenced, match="has taken over"):
        txn.commit()
    assert (kinds(world), world.txns, acks.told) == ([Take, Begin, Take], {TxnId(0, 1): "aborted"}, ["aborted"])


def test_a_transaction_that_has_ended_is_a_conflict_although_its_control_topic_is_damaged(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that the reason could not be looked up."""
    txn, _ = version(world, monkeypatch)
    world.write(b"junk", None)
    ended = broker_error(21, "is ABORTED", "end txn")
    assert isinstance(txn._ended_early(cast("TransactionEnded", ended)), TxnConflict)
    assert "could not be read: A record cannot be read: b'junk'" in str(ended.__notes__)


@pytest.mark.parametrize("lost", ["request", "reply"])
def test_a_second_commit_of_a_version_learns_the_outcome(world: World, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    txn, acks = version(world, monkeypatch, lost=lost)
    with pytest.raises(OutcomeUnknown, match="It is unknown whether version 1 of the application etl"):
        txn.commit()
    assert acks.told == []
    assert (txn.commit().txn_id, txn.commit().skipped) == ("0_1", False)
    assert (world.txns, acks.told) == ({TxnId(0, 1): "committed"}, ["committed"])
    assert len(acks.met) == 1


class Accepting(PulsarTransaction):
    """A transaction whose rows go nowhere. `rows`: how many it has."""

    rows = 0

    def append(self, topic: str, batches: Batches, **_: object) -> None:
        self.rows += sum(one.num_rows for one in rows_given(batches).batches)


def producer_of(broker: Broker, made: list[Accepting]) -> Producer:
    """Return a producer. `made`: gets its transactions."""

    def begin() -> Transaction:
        made.append(Accepting(cast("PulsarClient", broker), 60_000, lambda: "low"))
        made[-1]._id = TxnId(0, len(made))
        return cast("Transaction", made[-1])

    return Producer(begin, "topic://public/default/t")


def test_a_producer_writes_the_rows_of_an_aborted_transaction_again() -> None:
    """The outcome of the first flush is unknown. The second one learns that the broker has aborted the transaction."""
    broker, made = Broker("request"), list[Accepting]()
    producer = producer_of(broker, made)
    producer.send({"id": 1})
    with pytest.raises(OutcomeUnknown):
        producer.flush()
    producer.send({"id": 2})
    broker.state = "ABORTED"
    with pytest.raises(TxnConflict, match="0_1 was aborted"):
        producer.flush()
    assert [one.rows for one in made] == [1], "no row is written again before the outcome is known"
    broker.state = "OPEN"
    assert (committed := producer.flush()) is not None
    assert (committed.txn_id, [one.rows for one in made]) == ("0_2", [1, 2])
    assert producer.flush() is None


@pytest.mark.parametrize("sent", [False, True])
def test_a_producer_goes_on_after_an_interrupt_of_its_flush(sent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sent`: the interrupt comes when the commit was carried out. Otherwise it comes before the commit was sent, and aborts the
    transaction, so that the rows are written again.
    """
    broker, made = Broker(), list[Accepting]()
    producer = producer_of(broker, made)
    producer.send({"id": 1})

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as once:
        once.setattr(transaction, "settle_all" if sent else "record_places", interrupt)
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
    assert broker.state == ("COMMITTED" if sent else "ABORTED")
    if not sent:
        with pytest.raises(TransactionAborted, match="0_1 was aborted, because an earlier commit of it failed: KeyboardInterrupt"):
            producer.flush()
        broker.state = "OPEN"
    assert (committed := producer.flush()) is not None
    assert (committed.txn_id, [one.rows for one in made]) == (("0_1", [1]) if sent else ("0_2", [1, 1]))


def test_a_commit_after_an_abort_that_found_the_transaction_committed_returns_its_result() -> None:
    """Otherwise its caller would begin another transaction, and write the rows twice."""
    txn = begun(Broker("reply"))
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    with pytest.raises(TransactionEnded):
        txn.abort()
    assert txn.commit().txn_id == "0_7"
