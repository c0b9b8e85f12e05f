"""A Pulsar transaction is ended, and the connection breaks before the reply to the end arrives. No broker runs: a stand-in for the
client answers, and loses requests or replies.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

from metadata.common.errors import OptionError, OutcomeUnknown, TxnConflict
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.errors import ConnectionLost, broker_error
from txnsegment.pulsar.ending import Owner
from txnsegment.pulsar.transaction import PulsarTransaction


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


def test_a_commit_while_append_takes_rows_is_refused() -> None:
    """It would commit the rows that were sent so far."""
    txn = begun(Broker())
    txn._appending = 1
    with pytest.raises(OptionError, match="cannot commit while append runs"):
        txn.commit()
