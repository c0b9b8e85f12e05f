"""Asks the coordinator to commit or abort the transaction of a write, until the outcome is known."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import TRANSACTION_NOT_FOUND, LogDamaged, PulsarError, TransactionEnded
from spark_txn_sink.pulsar.log_records import Outcome
from spark_txn_sink.pulsar.resolving import UNKNOWN, End, resolved
from spark_txn_sink.pulsar.work import Work

log = logging.getLogger("txnsegment.sink.pulsar")

LOOK: Final = (
    "It was open for longer than {}, or somebody has aborted it by its id (`txnsegment txns abort`): the log of the broker "
    "says which."
)
PATIENCE_SECONDS: Final = 60.0
"""How long the coordinator is asked again for an outcome."""


class NotCommitted(TxnSegmentError):
    """The transaction of a write was aborted. Nothing of the write is visible."""


class OutcomeUnknown(TxnSegmentError):
    """It is unknown whether a write was committed. The next run finds the outcome in the control topic."""


def already() -> None:
    """Return at once, because nothing has to be recorded before the commit."""


class Ends:
    """Ends transactions. `end`: asks the coordinator once. `pause`: waits a number of seconds. `now`: a monotonic clock in seconds.
    `patience`: for how many seconds a request with an unknown outcome is repeated.
    """

    def __init__(self, end: End, *, pause: Callable[[float], None], now: Callable[[], float], patience: float) -> None:
        self._end, self._pause, self._now, self._patience = end, pause, now, patience

    def commit(self, work: Work, found_done: Callable[[], bool | None] | None) -> None:
        """Commit the transaction of a version. If the coordinator does not know the transaction, `found_done` is called (see
        `Committer`). A write without an application passes None as `found_done`. Raises OutcomeUnknown. Raises TransactionEnded if
        the transaction is not committed.
        """
        deadline, asked = self._now() + self._patience, False
        while True:
            try:
                return self._end(work.txn, commit=True)
            except TransactionEnded as error:
                forgotten = error.code == TRANSACTION_NOT_FOUND
                try:
                    found = found_done() if forgotten and found_done is not None else None
                except PulsarError as second:
                    raise _unknown(work, second, found_done) from error
                if found:
                    return
                if forgotten and found is None and asked:
                    raise _unknown(work, error, found_done) from error
                raise
            except PulsarError as error:  # also one that does not pass: an earlier request may have committed
                if not isinstance(error, UNKNOWN) or self._now() > deadline:
                    raise _unknown(work, error, found_done) from error
                asked = True
                self._pause(0.2)

    def commit_alone(self, work: Work, recorded: Callable[[], object] = already) -> None:
        """Commit a write that has no application. Such a write has no version that could be repeated, so it has no control topic.
        `recorded`: waits until the positions of the rows are recorded (`pulsar_protocol.sent_log`). They must be recorded before
        the transaction is committed.

        Raises NotCommitted, OutcomeUnknown, or the error of `recorded`.
        """
        recorded()
        try:
            self.commit(work, None)
        except TransactionEnded as error:
            raise NotCommitted(
                f"The transaction {work.txn.text} of {work.what} was aborted before its commit: {error.message}",
                advice=f"Nothing of it is visible. Write it again. {LOOK.format(work.words.timeout)}",
            ) from error

    def abort(self, txn: TxnId) -> Outcome | None:
        """Abort a transaction, and return its outcome. Return None if the outcome stays unknown. Then the timeout of the
        transaction or the next run of the application ends it. A transaction that its coordinator does not know any more counts as
        aborted. If it was committed nevertheless, its `done` is in the control topic of its application.
        """
        try:
            return resolved(self._end, txn, pause=self._pause, now=self._now, patience=self._patience) or "aborted"
        except PulsarError as error:
            log.warning("the transaction %s could not be aborted: %s", txn.text, error.message)
            return None


def _unknown(work: Work, error: PulsarError, found_done: object) -> OutcomeUnknown:
    version = f"version {work.version} of " if found_done is not None else ""
    damage = f" {error.advice}" if isinstance(error, LogDamaged) else ""
    return OutcomeUnknown(
        f"It is unknown whether {version}{work.what} was committed: the coordinator of the transaction {work.txn.text} gave no "
        f"answer to the commit: {error.message}",
        advice=f"Start again when the broker can be reached. The next run learns it and writes nothing twice.{damage}"
        if found_done is not None
        else f"Look for its rows before you write it again: a write without {work.words.app} is written again by a repetition.",
    )
