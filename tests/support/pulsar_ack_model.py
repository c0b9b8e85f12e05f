"""The log of acknowledgements of a subscription, and its broker, as a model that fences, loses replies and ends transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from metadata.records.row_ranges import Row, before
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import ConnectionLost, Fenced, broker_error
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.owned_log import WAIT_SECONDS, OwnedLog
from tests.support.waits import Waits
from txnsegment.pulsar.ack_log import AckLog, Clock
from txnsegment.pulsar.ack_records import Done, Record, decode, encode

T = TxnId(0, 7)


def row(number: int) -> dict[str, tuple[tuple[Row, Row], ...]]:
    return {"s": before(Row(1, number, 0))}


class Broker:
    """One log and the coordinator. `lost`: for each of the next appends `request`, `reply` or nothing."""

    def __init__(self) -> None:
        self.entries: list[tuple[bytes, TxnId | None]] = []
        self.txns: dict[TxnId, str] = {}
        self.owner: ModelLog | None = None
        self.first = 0
        self.lost: list[str] = []
        self.ledger_starts = [0]
        self.fences = True
        self.waits = Waits()
        self.late: Done | None = None
        """A `done` that arrives at the next end of a transaction. The transaction is committed just before this end."""
        self.dirty = False
        """Whether rows of transactions that have ended are delivered, however they ended."""

    def position(self, number: int) -> Position:
        start = max(one for one in self.ledger_starts if one <= number)
        return Position(self.ledger_starts.index(start), number - start)

    def records(self) -> list[Record]:
        return [decode(data) for data, _ in self.entries]


class ModelLog:
    """The log as one consumer uses it."""

    name = "topic://public/default/__txnsegment_acks_model"

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.open = False

    @property
    def owned(self) -> bool:
        return self.open

    def own(self, first: Record) -> Position:
        self.drop()
        if self.broker.fences and self.broker.owner is not None:
            raise Fenced("Topic has an existing exclusive producer")
        self.broker.owner, self.open = self, True
        return self.append(first)

    def read(self, to: Position) -> Iterator[tuple[Position, Record]]:
        for number in range(self.broker.first, len(self.broker.entries)):
            data, txn = self.broker.entries[number]
            state = "COMMITTED" if txn is None else self.broker.txns[txn]
            if state == "OPEN":
                return self.broker.waits.pause(WAIT_SECONDS)
            if state == "COMMITTED" or self.broker.dirty:
                yield self.broker.position(number), decode(data)

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        if not self.open:
            raise ConnectionLost("The producer was closed.")
        lost = self.broker.lost.pop(0) if self.broker.lost else ""
        if lost != "request":
            self.broker.entries.append((encode(record), txn))
        if lost:
            self.drop()
            raise ConnectionLost("The connection broke.")
        return self.broker.position(len(self.broker.entries) - 1)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        if (late := self.broker.late) is not None:
            self.broker.late, self.broker.txns[txn] = None, "COMMITTED"
            self.broker.entries.append((encode(late), late.txn))
        wanted = "COMMITTED" if commit else "ABORTED"
        if self.broker.txns[txn] == "FORGOTTEN":
            raise broker_error(24, "unknown", "end txn")
        if self.broker.txns[txn] not in ("OPEN", wanted):
            raise broker_error(21, f"is {self.broker.txns[txn]}", "end txn")
        self.broker.txns[txn] = wanted

    def keep_from(self, position: Position) -> None:
        numbers = range(len(self.broker.entries))
        self.broker.first = next(number for number in numbers if self.broker.position(number) == position) + 1

    def drop(self) -> None:
        self.open = False
        if self.broker.owner is self:
            self.broker.owner = None

    def close(self) -> None:
        self.drop()


def acks_of(broker: Broker) -> AckLog:
    """Return the log as a new consumer has it."""
    clock = Clock(broker.waits.pause, broker.waits.now)
    return AckLog(cast("OwnedLog[Record]", ModelLog(broker)), "the subscription 's' of t", clock, at_once=0)
