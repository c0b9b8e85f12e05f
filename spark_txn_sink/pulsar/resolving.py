"""Takes over a log of one owner (`owned_log`): reads it, and finds out how the transactions of earlier owners ended.

An open transaction holds back the records after its `done`. So its abort begins as soon as its `begin` is read, and the read goes
on meanwhile. Several aborts run at the same time, so that a take-over after many killed owners does not take long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import TRANSACTION_NOT_FOUND, ConnectionLost, Fenced, Retriable, TimedOut, TransactionEnded
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.log_records import Outcome

R = TypeVar("R")
Taken = TypeVar("Taken", contravariant=True)
AT_ONCE: Final = 8
"""How many aborts run at the same time, each in a thread."""
UNKNOWN: Final = (ConnectionLost, TimedOut, Retriable)
"""Errors after which it is not known whether the request was carried out, or after which it may succeed later."""
NO_PRODUCER: Final = (*UNKNOWN, Fenced)


class End(Protocol):
    """Ends a transaction. Raises as `Control.end`."""

    def __call__(self, txn: TxnId, *, commit: bool) -> None: ...


def resolved(
    end: End,
    txn: TxnId,
    *,
    pause: Callable[[float], None],
    now: Callable[[], float],
    patience: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Outcome | None:
    """Abort a transaction and ask again, for `patience` seconds, until the outcome is known. Return None if the coordinator has
    forgotten the transaction, which it does some time after its end. `pause`: waits a number of seconds. `now`: a monotonic clock
    in seconds. `stopped`: whether nobody waits for the outcome any more; it is not asked for again then.
    """
    deadline = now() + patience
    while True:
        try:
            end(txn, commit=False)
            return "aborted"
        except TransactionEnded as error:
            return None if error.code == TRANSACTION_NOT_FOUND else "committed"
        except UNKNOWN:
            if now() >= deadline or stopped():
                raise
            pause(0.2)
            if stopped():  # meanwhile the caller may have closed the connection for good
                raise


class Resolver:
    """Aborts transactions, and learns how each of them ended, because it may have been committed already. All aborts together
    take at most `patience` seconds and one request more. `at_once`: how many aborts run at the same time, each in a thread. With
    0 there are no threads: `start` aborts the transaction itself, and waits for the outcome. The end of the block waits for
    nothing, so that a caller that gives up (Ctrl-C) goes on at once. Aborts that are under way then are not repeated, and no
    others follow.

        with Resolver(end, pause=.., now=.., patience=60) as resolver:
            resolver.start(txn)
            resolver.outcomes()
    """

    def __init__(
        self,
        end: End,
        *,
        pause: Callable[[float], None],
        now: Callable[[], float],
        patience: float,
        at_once: int = AT_ONCE,
    ) -> None:
        self._end, self._pause, self._now, self._deadline = end, pause, now, now() + patience
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="txnsegment-pulsar-end") if at_once else None
        self._asked: dict[TxnId, Future[Outcome | None]] = {}
        self._over = threading.Event()

    def start(self, txn: TxnId) -> None:
        """Begin to abort a transaction, unless this was begun before. Without a pool raises as `resolved`."""
        if txn in self._asked:
            return
        if self._pool is not None:
            self._asked[txn] = self._pool.submit(self._resolved, txn)
            return
        done: Future[Outcome | None] = Future()
        done.set_result(self._resolved(txn))
        self._asked[txn] = done

    def _resolved(self, txn: TxnId) -> Outcome | None:
        patience = max(0.0, self._deadline - self._now())
        return resolved(self._end, txn, pause=self._pause, now=self._now, patience=patience, stopped=self._over.is_set)

    def outcomes(self) -> dict[TxnId, Outcome | None]:
        """Wait for all outcomes, and return them. None: the coordinator has forgotten the transaction. Raises as `resolved`."""
        return {txn: found.result() for txn, found in self._asked.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class Replay(Protocol[Taken]):
    """The rules by which the records of a log become a state. They are fed by `replayed`."""

    def read(self, record: Taken) -> None:
        """Take the next record."""

    def leftovers(self) -> Iterable[TxnId]:
        """Return the transactions of earlier owners that may still commit, as far as the records say."""

    def ended(self, outcomes: Mapping[TxnId, Outcome | None]) -> None:
        """Take note of how leftovers ended."""

    @property
    def missing(self) -> list[TxnId]:
        """The leftovers that were committed and whose `done` was not read."""

    @property
    def replaced(self) -> bool:
        """Whether a later owner has taken over. If so, this owner resolves nothing."""


Rules = TypeVar("Rules", bound=Replay[Any])


def replayed(
    read: Callable[[Position], Iterator[tuple[Position, R]]],
    until: Position,
    rules: Callable[[], Rules],
    more: Callable[[], Position],
    resolver: Resolver,
    *,
    in_time: Callable[[], bool],
    what: str,
) -> tuple[Rules, Position]:
    """Read a log up to the own record at `until`, and learn how the transactions of earlier owners ended. Return the rules with
    all that was read, and the position of the own last record.

    `more`: writes one more record, and returns its position. It is called if a transaction was committed whose `done` was not read.
    A broker may write the `done` after the own record, because it writes a record of the transaction first. But the `done` is in
    the log before its transaction is committed, so it is before the one more record. `in_time`: whether to read again if a
    transaction holds back records. Raises TimedOut.
    """
    missed: set[TxnId] = set()
    while True:
        found, complete = rules(), False
        for position, record in read(until):
            found.read(record)
            for txn in found.leftovers():
                resolver.start(txn)
            complete = complete or position >= until
        if found.replaced:
            return found, until
        found.ended(resolver.outcomes())
        if complete and missed.issuperset(found.missing):
            return found, until
        if complete:
            missed.update(found.missing)
            until = more()
        elif not in_time():
            raise TimedOut(
                f"{what} could not be read up to {until.text} in time.",
                advice="An open transaction of another program holds back its records. It ends by its timeout.",
            )
