"""The steps by which the driver commits one version. They reach the control topic through the interface `Control`. The rules are in
`control`.

    take    once for each run and process: become the only producer, read the log, abort the transactions of earlier runs
    begin   write `begin`, outside of the transaction
    done    write `done`, inside of the transaction that has the rows
    end     commit the transaction, and ask again until the outcome is known

If an error ends the producer before `done` is sent, the driver takes over again and repeats the steps. If an error occurs while
`done` is sent, the driver aborts the transaction, because nothing is decided yet. If an error occurs while the transaction ends,
only the coordinator knows the outcome, so the driver asks it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import TRANSACTION_NOT_FOUND, ConnectionLost, Fenced, PulsarError, Retriable, TimedOut, TransactionEnded
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.control import (
    CHECKPOINT_EVERY,
    Begin,
    Checkpoint,
    Decision,
    Done,
    Outcome,
    Record,
    Recovery,
    State,
    TakenOver,
    VersionRefused,
    after,
    decide,
)

log = logging.getLogger("txnsegment.sink.pulsar")

TRIES: Final = 3
"""How often the driver takes over before it gives up, if another driver or a lost connection ends its producer."""
UNKNOWN: Final = (ConnectionLost, TimedOut, Retriable)
"""Errors after which it is not known whether the request was carried out, or after which it may succeed later."""
NO_PRODUCER: Final = (*UNKNOWN, Fenced)


class NotCommitted(TxnSegmentError):
    """The transaction of a write was aborted. Nothing of the write is visible."""


class OutcomeUnknown(TxnSegmentError):
    """It is unknown whether a write was committed. The next run finds the outcome in the control topic."""


class Control(Protocol):
    """The control topic of one application and data topic, and its transaction coordinator."""

    def take(self, run: str) -> Position:
        """End all other producers, write a `take`, and return the position of this record."""

    def read(self, to: Position) -> Iterator[tuple[Position, Record]]:
        """Yield the readable records from the last checkpoint to a position. If the next record is not readable, wait for it for a
        moment, and then end. If the position was not reached, the caller calls this method again. The next call may yield the same
        records again.
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
        Some of them may have ended.
        """

    def passed(self, opened: Opened) -> None:
        """Let later calls of `strays` leave out the transactions that were opened before `opened`."""

    def drop(self) -> None:
        """Close the producer and its connection, so that the next `take` makes new ones."""


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

    @property
    def done(self) -> Done:
        return Done(self.txn, self.version, self.run, self.topic, self.segments, self.rows)


def _already() -> None:
    """Return at once, because nothing has to be recorded before the commit."""


class End(Protocol):
    """Ends a transaction. Raises as `Control.end`."""

    def __call__(self, txn: TxnId, *, commit: bool) -> None: ...


def resolved(end: End, txn: TxnId, *, pause: Callable[[float], None], now: Callable[[], float], patience: float) -> Outcome | None:
    """Abort a transaction and ask again, for `patience` seconds, until the outcome is known. Return None if the coordinator has
    forgotten the transaction, which it does some time after its end. `pause`, `now`: see `Committer`.
    """
    deadline = now() + patience
    while True:
        try:
            end(txn, commit=False)
            return "aborted"
        except TransactionEnded as error:
            return None if error.code == TRANSACTION_NOT_FOUND else "committed"
        except UNKNOWN:
            if now() > deadline:
                raise
            pause(0.2)


class Committer:
    """Commits the versions of one application to one topic. Keeps the state of the control topic as long as it has the only
    producer of this topic, because no other process can write a record in this time.

    `pause`: waits a number of seconds. `now`: a monotonic clock in seconds. `patience`: for how many seconds a request with an
    unknown outcome is repeated.
    """

    def __init__(self, control: Control, *, pause: Callable[[float], None], now: Callable[[], float], patience: float) -> None:
        self._control, self._pause, self._now, self._patience = control, pause, now, patience
        self._state: State | None = None
        self._run: str | None = None
        self._last: Position | None = None
        """The position of the last record that this producer wrote."""

    def commit(self, work: Work, recorded: Callable[[], object] = _already) -> bool:
        """Commit a version. If the version was committed before, abort the transaction and return False. `recorded`: waits until
        the positions of the rows are recorded (`pulsar_protocol.sent_log`). They must be recorded before the transaction is
        committed.

        Raises TakenOver, VersionRefused, NotCommitted, OutcomeUnknown or ControlDamaged. If the connection fails before anything is
        decided, raises the error of the connection.
        """
        try:
            go = self._begin(work)
        except TxnSegmentError:
            self._forget()
            self.abort(work.txn)
            raise
        if not go:
            self.abort(work.txn)
            return False
        try:
            self._append(work.done, work.txn)
            recorded()
        except TxnSegmentError as error:
            self._forget()
            self.abort(work.txn)
            raise NotCommitted(
                f"The commit of version {work.version} of {work.what} was interrupted before it was decided: {error.message} The "
                f"transaction {work.txn.text} was aborted.",
                advice="Start the query or the write again. If another driver runs with the same checkpoint or txnAppId, stop it.",
            ) from error
        self._end(work, lambda: self._found_done(work))
        assert self._state is not None
        self._state = after(self._state, work.done)
        self._checkpoint(work.opened)
        return True

    def commit_alone(self, work: Work, recorded: Callable[[], object] = _already) -> None:
        """Commit a write that has no application. Such a write has no version that could be repeated, so the control topic is not
        used. `recorded`: see `commit`.

        Raises NotCommitted, OutcomeUnknown, or the error of `recorded`.
        """
        recorded()
        self._end(work, lambda: False)

    def abort(self, txn: TxnId) -> Outcome | None:
        """Abort a transaction, and return its outcome. Return None if the outcome stays unknown. Then the timeout of the
        transaction or the next run of the application ends it.
        """
        try:
            return self._resolve(txn)
        except PulsarError as error:
            log.warning("the transaction %s could not be aborted: %s", txn.text, error.message)
            return None

    # --- the steps ---

    def _begin(self, work: Work) -> bool:
        """Take over the control topic if that is necessary, and write `begin`. Return False if the version is committed already."""
        tries = 0
        while True:
            try:
                if self._decide(work) == "skip":
                    return False
                before = self._last
                self._append(Begin(work.txn, work.version, work.run))
                if not self._follows(before):
                    raise Fenced("Another driver wrote to the control topic.", advice="Stop one of the drivers.")
                return True
            except NO_PRODUCER:
                self._forget()
                tries += 1
                if tries == TRIES:
                    raise
                self._pause(0.2 * tries)

    def _decide(self, work: Work) -> Decision:
        """Return whether to commit the version or to skip it. If the state that this process keeps allows the commit, return
        `commit`. Otherwise read the log again. The kept state may be out of date, because another process of the driver may have
        taken over. Then the `begin` that follows fails, because the other process has ended this producer.
        """
        if self._state is not None and self._run == work.run:
            try:
                if self._judge(self._state, work) == "commit":
                    return "commit"
            except (TakenOver, VersionRefused) as error:
                log.info("reading the control topic of %s again: %s", work.what, error.message)
        return self._judge(self._take(work), work)

    @staticmethod
    def _judge(state: State, work: Work) -> Decision:
        return decide(state, work.run, work.version, what=work.what, streaming=work.streaming, accepts_loss=work.accepts_loss)

    def _take(self, work: Work) -> State:
        """Become the only producer, read the log up to the `take` of this run, and abort the transactions that earlier runs left
        open. Return the state.
        """
        self._state = None
        until = self._control.take(work.run)
        deadline = self._now() + self._patience
        committed: set[TxnId] = set()
        while True:
            recovery = Recovery(work.run, work.txn, until)
            for position, record in self._control.read(until):
                if isinstance(record, Done):
                    committed.add(record.txn)
                recovery.read(position, record)
                for txn in recovery.leftovers():
                    recovery.ended(txn, self._resolve(txn))
            if recovery.complete or recovery.replaced:
                break
            if self._now() > deadline:
                raise TimedOut(
                    f"The control topic of {work.what} could not be read up to {until.text} within {self._patience:g} s.",
                    advice="An open transaction of another program holds back its records. It ends by its timeout.",
                )
        found = recovery.state if recovery.replaced else recovery.finish()
        if work.opened is not None and not recovery.replaced:
            for stray in self._control.strays(work.opened):  # left by drivers that died before they wrote `begin`
                if stray not in committed:
                    self._resolve(stray)
            self._control.passed(work.opened)
        self._state, self._run, self._last = found, work.run, until
        return found

    def _resolve(self, txn: TxnId) -> Outcome:
        """Abort a transaction, and ask again until the outcome is known. Return the outcome. A transaction that its coordinator
        does not know any more counts as aborted. If it was committed nevertheless, the caller finds its `done` in the records.
        """
        return resolved(self._control.end, txn, pause=self._pause, now=self._now, patience=self._patience) or "aborted"

    def _follows(self, before: Position | None) -> bool:
        """Return whether the last record of this producer directly follows the position `before`. If it does, no other producer has
        written in between. Fencing alone does not ensure that, because a broker of version 5.0.0-M1 accepts two producers that are
        opened at the same time.
        """
        return before is not None and self._last == Position(before.ledger, before.entry + 1)

    def _append(self, record: Record, txn: TxnId | None = None) -> None:
        self._last = self._control.append(record, txn)
        if txn is None and self._state is not None:
            self._state = after(self._state, record)

    def _end(self, work: Work, found_done: Callable[[], bool]) -> None:
        """Commit the transaction. `found_done`: returns whether the control topic has the `done` of this transaction. It is called
        if the coordinator does not know the transaction. Raises NotCommitted, OutcomeUnknown.
        """
        deadline = self._now() + self._patience
        while True:
            try:
                return self._control.end(work.txn, commit=True)
            except TransactionEnded as error:
                if error.code == TRANSACTION_NOT_FOUND and found_done():
                    return
                self._forget()
                raise NotCommitted(
                    f"The transaction {work.txn.text} of version {work.version} of {work.what} was aborted too early.",
                    advice="It took longer than txnTimeoutMs, or another driver has aborted it. Start again; raise the timeout.",
                ) from error
            except PulsarError as error:  # also one that does not pass: an earlier request may have committed
                if not isinstance(error, UNKNOWN) or self._now() > deadline:
                    self._forget()
                    raise OutcomeUnknown(
                        f"It is unknown whether version {work.version} of {work.what} was committed: the coordinator of the "
                        f"transaction {work.txn.text} gave no answer to the commit: {error.message}",
                        advice="Start again when the broker can be reached. The next run learns it and writes nothing twice.",
                    ) from error
                self._pause(0.2)

    def _found_done(self, work: Work) -> bool:
        """Return whether the control topic has the `done` of a transaction that its coordinator does not know."""
        last = self._take(work).last
        return last is not None and last.txn == work.txn

    def _checkpoint(self, opened: Opened | None = None) -> None:
        """Write a checkpoint after every `CHECKPOINT_EVERY` records. An error is only logged, because the commit is decided."""
        assert self._state is not None
        assert self._last is not None
        if self._state.records < CHECKPOINT_EVERY:
            return
        before = self._last
        try:
            self._append(Checkpoint(self._state))
            if not self._follows(before):
                return self._forget()
            self._control.keep_from(before)
            if opened is not None:
                self._control.passed(opened)
        except PulsarError as error:
            log.warning("no checkpoint of the control topic: %s", error.message)
            self._forget()

    def _forget(self) -> None:
        self._state = None
        self._control.drop()
