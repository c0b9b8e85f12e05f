"""How rows of a Pulsar transaction become messages, and how states of transactions are named. No broker runs: a stand-in for the
client answers.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

from metadata.common.errors import OptionError
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message, Rows
from pulsar_protocol.layout import Layout, Position, Segment
from txnsegment.pulsar import transaction
from txnsegment.pulsar.transaction import PulsarTransaction
from txnsegment.pulsar.transactions import GIVEN, UNDECIDED, PulsarTransactions

HALVES = ((0, 0x7FFF), (0x8000, 0xFFFF))


class Broker:
    """A stand-in for the client of a topic with two segments and no schema. `sent`: the messages of each segment."""

    url = "pulsar://broker:6650"

    def __init__(self, number: int = 7) -> None:
        self.sent: dict[str, list[Message]] = {}
        self._number = number

    def layout(self, topic: str) -> Layout:
        return Layout(topic, 0, {i: Segment(i, f"s{i}", start, end, True, (), ()) for i, (start, end) in enumerate(HALVES)})

    def schema(self, topic: str) -> None:
        return None

    def topics(self, namespace: str) -> list[str]:
        return []

    def begin(self, timeout_ms: int) -> TxnId:
        return TxnId(0, self._number)


class Producer:
    def __init__(self, client: Broker, segment: str, schema: object) -> None:
        self._sent = client.sent.setdefault(segment, [])

    def send(self, rows: Rows, txn: TxnId, compression: str) -> Position:
        self._sent += rows.messages()
        return Position(1, len(self._sent))

    def close(self) -> None:
        pass


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    monkeypatch.setattr(transaction, "lend", Producer)
    monkeypatch.setattr(transaction, "make_log", lambda *given: None)
    return Broker()


def begun(broker: Broker) -> PulsarTransaction:
    return PulsarTransaction(cast("PulsarClient", broker), 60_000, lambda: "low")


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_keys_of_bytes_are_sent_as_bytes(broker: Broker, kind: pa.DataType) -> None:
    """As the sink sends them. A key that is no text in UTF-8 could not be sent otherwise."""
    rows = pa.table({"value": pa.array([b"\xff\x00", b"text", None], kind)})
    begun(broker).append("t", rows, key="value")
    found = {(one.key, one.key_is_binary) for sent in broker.sent.values() for one in sent}
    assert found == {(b"\xff\x00", True), (b"text", True), (None, False)}


def test_rows_with_a_null_key_are_spread_over_the_segments(broker: Broker) -> None:
    txn = begun(broker)
    for _ in range(2):
        txn.append("t", pa.table({"value": pa.array([None, None], pa.binary())}), key="value")
    assert {name: len(sent) for name, sent in broker.sent.items()} == {"s0": 2, "s1": 2}


@pytest.mark.parametrize(("number", "segment"), [(7, "s1"), (8, "s0")])
def test_small_transactions_begin_at_different_segments(broker: Broker, number: int, segment: str) -> None:
    """Otherwise all rows with a null key of programs that write an entry at a time would be in the first segment."""
    broker._number = number
    begun(broker).append("t", pa.table({"value": pa.array([None], pa.binary())}), key="value")
    assert [name for name, sent in broker.sent.items() if sent] == [segment]


def test_each_state_that_the_error_names_is_accepted_and_no_part_of_one(broker: Broker) -> None:
    transactions = PulsarTransactions(cast("PulsarClient", broker))
    for text in (UNDECIDED, "open", " aborted ", "committed", *GIVEN):
        assert transactions.list(text) == []
    for text in ("or", "", "OPEN or"):
        with pytest.raises(OptionError, match="is no state of a transaction") as raised:
            transactions.list(text)
        assert raised.value.advice == f"Give one of: {', '.join(GIVEN)}."
