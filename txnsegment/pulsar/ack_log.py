"""Reads and writes the log of acknowledgements of one subscription (`ack_records`) for the one consumer that owns it."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from metadata.common.errors import OptionError
from metadata.records.row_ranges import NONE, minus
from pulsar_protocol import auth
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import Fenced, PulsarError
from pulsar_protocol.layout import Position
from pulsar_protocol.owned_names import ack_log_name
from spark_txn_sink.pulsar.control import TakenOver
from spark_txn_sink.pulsar.log_records import Outcome, naming
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from spark_txn_sink.pulsar.owned_log import Codec, OwnedLog
from spark_txn_sink.pulsar.resolving import AT_ONCE, NO_PRODUCER, Resolver, replayed
from txnsegment.pulsar.ack_records import (
    Aborted,
    Acked,
    Begin,
    Checkpoint,
    Deleted,
    Done,
    Moved,
    Positions,
    Record,
    Recovery,
    RowsBySegment,
    State,
    Take,
    after,
    decode,
    encode,
    joined,
)

log = logging.getLogger("txnsegment.consumer.pulsar")

CHECKPOINT_EVERY: Final = 100
"""The number of records after which the owner writes a checkpoint."""
TRIES: Final = 3
BUSY_SECONDS: Final = 3.0
"""How long a new consumer waits for the end of another one. A broker learns of the end of a process a moment after it."""
PATIENCE_SECONDS: Final = 60.0
"""The time for which an outcome is asked for again, and the records of the log are waited for."""


class SubscriptionBusy(TakenOver):
    """Another consumer or transaction has the subscription."""


@dataclass(frozen=True)
class Clock:
    """`pause` waits a number of seconds. `now`: a monotonic clock in seconds."""

    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic


def ack_log(url: str, topic: str, subscription: str, clock: Clock) -> AckLog:
    """Return the log of a subscription. It is created at its first use, if it does not exist. Creating it needs Pulsar's REST
    interface.
    """
    codec: Codec[Record] = Codec(encode, decode, Take, Checkpoint)
    admin = os.environ.get(ADMIN_VARIABLE, "").strip() or None
    name = ack_log_name(topic, subscription)
    records = OwnedLog(lambda: auth.connect(url).patient(), name, admin, codec, "exclusive")
    return AckLog(records, f"the subscription {subscription!r} of {topic}", clock)


class AckLog:
    """The acknowledgements of one subscription, for its only consumer. `what`: subscription and topic, for errors. `at_once`: see
    `Resolver`.

    After an error of the connection this object takes over the log again and reads it. Only then does it repeat a write, and only
    for acknowledgements that the log does not have. Raises SubscriptionBusy, TakenOver, LogDamaged, the errors of the connection.
    """

    def __init__(self, records: OwnedLog[Record], what: str, clock: Clock, at_once: int = AT_ONCE) -> None:
        self._log, self._what, self._clock, self._at_once = records, what, clock, at_once
        self._consumer = uuid.uuid4().hex
        self._state: State | None = None
        self._had = False
        """Whether this consumer has owned the log before."""
        self._replaced = False
        """Whether another consumer has taken over. Then this one gives up for good."""
        self._closed = False
        self._last: Position | None = None
        """The position of the last record that this consumer wrote."""
        self._still_open: set[TxnId] = set()
        """The open transactions with a `begin` and without a `done`."""
        self._prepared: set[TxnId] = set()
        """The transactions with a `done` whose end is not known to this object."""

    def state(self) -> State:
        """Return what is acknowledged. Take over if that is needed. Raises OptionError after `close`."""
        deadline = self._clock.now() + PATIENCE_SECONDS
        while not self._replaced:
            if self._closed:
                self.forget()  # another thread may have closed it during the take-over
                raise OptionError(
                    f"The acknowledgements of {self._what} are closed.",
                    advice="Its consumer or transaction has ended. Make another one.",
                )
            if self._state is not None and self._log.owned:
                return self._state
            try:
                self._take()
            except NO_PRODUCER:
                if self._clock.now() > deadline:
                    raise
                self._clock.pause(0.2)
        raise self._taken_over()

    def move(self, rows: RowsBySegment, sent: Positions) -> None:
        """Record that exactly these rows are acknowledged. May be repeated after an error."""
        self.state()
        self._append(Moved(rows, sent))

    def delete(self) -> None:
        """Record that the subscription was deleted. May be repeated after an error."""
        self.state()
        self._append(Deleted())

    def acknowledge(self, rows: RowsBySegment) -> None:
        """Record that these rows are acknowledged, too. After a lost reply the log tells whether it has them."""
        tries = 0
        while True:
            try:
                done = self.state().rows
                left = {name: more for name, found in rows.items() if (more := minus(found, done.get(name, NONE)))}
                if not left:
                    return
                return self._append(Acked(left))
            except NO_PRODUCER:
                self.forget()
                tries += 1
                if tries == TRIES:
                    raise
                self._clock.pause(0.2 * tries)

    def begin(self, txn: TxnId) -> None:
        """Record that a transaction may have acknowledgements, before it has any. If this program ends without an end of the
        transaction, the next consumer aborts it at once.
        """
        self._still_open.add(txn)
        tries = 0
        while True:
            try:
                self.state()
                return self._append(Begin(txn))
            except NO_PRODUCER:
                self.forget()
                tries += 1
                if tries == TRIES:
                    self._still_open.discard(txn)
                    raise
                self._clock.pause(0.2 * tries)
            except BaseException:
                self._still_open.discard(txn)
                raise

    def prepare(self, txn: TxnId, rows: RowsBySegment) -> None:
        """Write acknowledgements into a transaction, which the caller then commits. After an error the caller must abort it."""
        self.state()
        self._still_open.discard(txn)
        self._prepared.add(txn)
        try:
            self._last = self._log.append(Done(txn, rows), txn)
        except PulsarError:
            self.forget()
            raise

    def ended(self, txn: TxnId, rows: RowsBySegment, outcome: Outcome | None) -> None:
        """Take note of how a transaction ended. None: not known. If it was not committed, the log is read again before the next
        use, which records the outcome.
        """
        self._still_open.discard(txn)
        if txn not in self._prepared:
            return
        self._prepared.discard(txn)
        if outcome != "committed":
            self.forget()
        elif self._state is not None:
            self._state = replace(self._state, rows=joined(self._state.rows, rows))

    def checkpoint(self, rows: RowsBySegment, sent: Positions) -> None:
        """Write a checkpoint if there are many records. An error is only logged, because nothing depends on it. `rows`: the
        acknowledged rows, without those of segments that do not exist any more. `sent`: see `State`.
        """
        state = self._state
        if state is None or self._last is None or state.records < CHECKPOINT_EVERY or self._still_open or self._prepared:
            return
        before, self._state = self._last, replace(state, rows=dict(rows), sent=dict(sent))
        try:
            self._append(Checkpoint(self._state))
            self._log.keep_from(before)
        except PulsarError as error:
            log.warning("no checkpoint of the acknowledgements of %s: %s", self._what, error.message)
            self.forget()

    def forget(self) -> None:
        """Give up the ownership. The next call takes over again."""
        self._state = None
        self._log.drop()

    def close(self) -> None:
        """Give the subscription free for good. Idempotent."""
        self._closed = True
        self._state = None
        self._log.close()

    # --- the steps ---

    def _append(self, record: Record) -> None:
        """Write a record. Raises Fenced if it does not follow the last one of this consumer: then another consumer may have written
        in between. (A broker of version 5.0.0-M1 accepts both of two exclusive producers that are opened at the same time.)
        """
        assert self._state is not None
        before, self._last = self._last, self._log.append(record)
        if before is None or self._last != Position(before.ledger, before.entry + 1):
            self.forget()
            raise Fenced(f"A record of the acknowledgements of {self._what} does not follow the last one.", advice="Try again.")
        self._state = after(self._state, record)

    def _take(self) -> None:
        """Become the only producer by appending a record `Take`. Read the log up to this record, and abort the transactions that
        earlier consumers left open.
        """
        self._state = None
        until, deadline = self._own(), self._clock.now() + PATIENCE_SECONDS
        resolver = Resolver(
            self._log.end, pause=self._clock.pause, now=self._clock.now, patience=PATIENCE_SECONDS, at_once=self._at_once
        )
        with naming(self._log.name), resolver:
            recovery, until = replayed(
                self._log.read,
                until,
                lambda: Recovery(self._still_open),
                lambda: self._log.append(Aborted(())),
                resolver,
                in_time=lambda: self._clock.now() <= deadline,
                what=f"The acknowledgements of {self._what}",
            )
            found = recovery.finish()
        if self._had and recovery.owner_before() != self._consumer:
            self._replaced = True
            self.forget()
            raise self._taken_over()
        self._had = True
        self._state, self._last = found, until
        if aborted := recovery.newly_aborted():
            self._append(Aborted(aborted))

    def _taken_over(self) -> TakenOver:
        return TakenOver(
            f"Another consumer has taken over {self._what} since this one lost its connection.",
            advice="It gets the rows that were not acknowledged. Close this consumer. Nothing more was acknowledged by it.",
        )

    def _own(self) -> Position:
        """Become the only producer. Wait a moment for the end of another consumer. Raises SubscriptionBusy."""
        deadline = self._clock.now() + BUSY_SECONDS
        while True:
            try:
                return self._log.own(Take(self._consumer))
            except Fenced as error:
                if self._clock.now() >= deadline:
                    self.forget()
                    raise SubscriptionBusy(
                        f"Another consumer or transaction has {self._what}.",
                        advice="End it, or take another subscription. If its machine failed, the broker ends it after a minute.",
                    ) from error
            self._clock.pause(0.1)
