"""The version that one commit makes visible, and the interface to the control topic that decides it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pulsar_protocol.client import TxnId
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.control import OPTIONS, Done, Record, Words


class Control(Protocol):
    """The control topic of one application and data topic, and its transaction coordinator. `name`: the name of the topic."""

    name: str

    def take(self, run: str) -> Position:
        """End all other producers, write a `take`, and return the position of this record."""

    def read(self, to: Position | None = None) -> Iterator[tuple[Position, Record]]:
        """Yield the readable records from the last checkpoint to a position (None: to the end). If the next record is not readable,
        wait for it for a moment, and then end. If the position was not reached, the caller calls this method again. The next call
        may yield the same records again.
        """

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        """Write a record and wait for its receipt."""

    def end(self, txn: TxnId, *, commit: bool) -> None:
        """Commit or abort a transaction. Raises TransactionEnded if the coordinator does not know the transaction, or if it has
        ended in the other way.
        """

    def keep_from(self, position: Position) -> None:
        """Let later reads begin after a position."""

    def strays(self, opened: Opened) -> list[TxnId]:
        """Return the transactions of this application that were opened before `opened`, and in which a task may have sent rows.
        Some of them may have ended. Raises TimedOut if the broker did not deliver all records of the openings in time.
        """

    def passed(self, opened: Opened) -> None:
        """Let later calls of `strays` leave out the transactions that were opened before `opened`."""

    def drop(self) -> None:
        """Close the producer and its connection, so that the next `take` makes new ones."""

    def close(self) -> None:
        """Do as `drop`, for good."""


@dataclass(frozen=True)
class Work:
    """The version that one commit makes visible, and its transaction. `run`: the id of one start of a streaming query, or an id of
    one batch write. `what`: application and topic, for errors. `accepts_loss`: whether missing versions of a stream are accepted.
    """

    txn: TxnId
    run: str
    version: int
    topic: str
    segments: dict[str, tuple[Position, Position]]
    rows: int
    what: str
    streaming: bool
    accepts_loss: bool = False
    opened: Opened | None = None
    words: Words = OPTIONS

    @property
    def identity(self) -> str:
        """What two drivers of one application have in common, for errors."""
        return "checkpoint" if self.streaming else self.words.app

    @property
    def done(self) -> Done:
        return Done(self.txn, self.version, self.run, self.topic, self.segments, self.rows)
