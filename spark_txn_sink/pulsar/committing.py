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
from collections.abc import Callable
from typing import Final

from ledgers.errors import TxnSegmentError
from pulsar_protocol.client import TxnId
from pulsar_protocol.errors import Fenced, PulsarError, TransactionEnded
from pulsar_protocol.layout import Position
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.control import (
    CHECKPOINT_EVERY,
    OPTIONS,
    Begin,
    Checkpoint,
    Decision,
    Record,
    Recovery,
    State,
    Take,
    TakenOver,
    VersionRefused,
    after,
    decide,
)
from spark_txn_sink.pulsar.ends import LOOK, Ends, NotCommitted, already
from spark_txn_sink.pulsar.log_records import Outcome, naming
from spark_txn_sink.pulsar.resolving import AT_ONCE, NO_PRODUCER, UNKNOWN, Resolver, replayed
from spark_txn_sink.pulsar.work import Control, Work

log = logging.getLogger("txnsegment.sink.pulsar")

TRIES: Final = 3
"""How often the driver takes over before it gives up, if another driver or a lost connection ends its producer."""


class Committer:
    """Commits the versions of one application to one topic. Keeps the state of the control topic as long as it has the only
    producer of this topic, because no other process can write a record in this time.

    `pause`: waits a number of seconds. `now`: a monotonic clock in seconds. `patience`: for how many seconds a request with an
    unknown outcome is repeated. `at_once`: see `Resolver`.
    """

    def __init__(
        self,
        control: Control,
        *,
        pause: Callable[[float], None],
        now: Callable[[], float],
        patience: float,
        at_once: int = AT_ONCE,
    ) -> None:
        self._at_once = at_once
        self._control, self._pause, self._now, self._patience = control, pause, now, patience
        self._ends = Ends(control.end, pause=pause, now=now, patience=patience)
        self._state: State | None = None
        self._run: str | None = None
        self._last: Position | None = None
        """The position of the last record that this producer wrote."""
        self._strays_due = False
        """Whether transactions that earlier drivers have opened may still be open."""
        self._committed: set[TxnId] = set()
        """The transactions whose `done` the last take-over has read."""

    def commit(self, work: Work, recorded: Callable[[], object] = already) -> bool:
        """Commit a version. Return False if another transaction has committed the version; then this transaction is aborted.
        `recorded`: see `finish`. Raises as `begin` and `finish`.
        """
        return self.begin(work) and self.finish(work, recorded)

    def begin(self, work: Work) -> bool:
        """Prepare the commit of a version. Return False if another transaction has committed the version. If this method returns
        False or raises, the transaction is aborted. Otherwise the caller calls `finish`.

        Raises TakenOver, VersionRefused or LogDamaged. If the connection fails, raises the error of the connection.
        """
        try:
            go = self._begin(work)
        except TxnSegmentError:
            self._forget()
            self.abort(work.txn)
            raise
        if not go:
            self.abort(work.txn)
            self._warn_of_other_rows(work)
            self._end_strays(work)
        return go

    def _warn_of_other_rows(self, work: Work) -> None:
        """Log a warning if a Spark write that is skipped has another number of rows than the version that was committed."""
        last = self._state.last if self._state is not None else None
        if work.words == OPTIONS and last is not None and last.rows != work.rows:
            log.warning(
                "version %s of %s is skipped: it was committed with %s rows, and this write has %s",
                work.version,
                work.what,
                last.rows,
                work.rows,
            )

    def check(self, work: Work) -> Decision:
        """Return whether the version may be committed or is committed, without taking over. Raises TakenOver, VersionRefused, the
        error of the connection.
        """
        return self._judge(self._look(), work)

    def finish(self, work: Work, recorded: Callable[[], object] = already) -> bool:
        """Commit the version that `begin` has prepared. Return False if another transaction has committed the version meanwhile;
        then this transaction is aborted. `recorded`: waits until the positions of the rows are recorded
        (`pulsar_protocol.sent_log`). They must be recorded before the transaction is committed.

        Raises TakenOver, VersionRefused, NotCommitted, OutcomeUnknown or LogDamaged.
        """
        try:
            self._append(work.done, work.txn)
            recorded()
        except TxnSegmentError as error:
            self._forget()
            self.abort(work.txn)
            return self._lost(work, error)
        try:
            self._end(work, lambda: self._found_done(work))
        except TransactionEnded as error:
            return self._lost(work, error)
        assert self._state is not None
        self._state = after(self._state, work.done)
        self._end_strays(work)
        self._checkpoint(None if self._strays_due else work.opened)
        return True

    def abort(self, txn: TxnId) -> Outcome | None:
        """See `Ends.abort`."""
        return self._ends.abort(txn)

    def close(self) -> None:
        """Give up the control topic for good."""
        self._state = None
        self._control.close()

    # --- the steps ---

    def _begin(self, work: Work) -> bool:
        """Take over the control topic if that is necessary, and write `begin`. Return False if the version is committed already."""
        tries, deadline = 0, self._now() + self._patience
        while True:
            try:
                if self._decide(work, deadline) == "skip":
                    return False
                before = self._last
                self._append(Begin(work.txn, work.version, work.run))
                if not self._follows(before):
                    raise Fenced(f"Another driver of {work.what} wrote to its control topic.", advice="Stop one of the drivers.")
                return True
            except NO_PRODUCER:
                self._forget()
                tries += 1
                if tries == TRIES or self._now() > deadline:
                    raise
                self._pause(0.2 * tries)
                self._check_replaced(work)

    def _check_replaced(self, work: Work) -> None:
        """Raise TakenOver if another driver has taken over. Call this before a repeated take-over, which would end the producer of
        the other driver: then neither of the two would commit.
        """
        try:
            state = self._look()
        except UNKNOWN as error:
            log.info("the control topic of %s could not be read: %s", work.what, error.message)
            return  # the take-over that follows reads it again
        if state.replaced(work.run):
            self._judge(state, work)

    def _look(self) -> State:
        """Return the state of the control topic as far as it is readable now, without taking over."""
        state = State()
        for _, record in self._control.read():
            state = after(state, record)
        return state

    def _lost(self, work: Work, error: TxnSegmentError) -> bool:
        """Find out why the commit of a version failed, whose transaction is aborted. Return False if another transaction has
        committed the version. Raises TakenOver, VersionRefused, or NotCommitted.
        """
        try:
            state = self._look()
            if self._judge(state, work) == "skip" and state.last is not None and state.last.txn != work.txn:
                return False
        except PulsarError as second:
            error.add_note(f"The control topic of {work.what} could not be read: {second.message}")
        why = f" {LOOK.format(work.words.timeout)}" if isinstance(error, TransactionEnded) else ""
        raise NotCommitted(
            f"The transaction {work.txn.text} of version {work.version} of {work.what} was aborted before its commit: "
            f"{error.message}",
            advice=f"Nothing of it is visible. Start again with the same version.{why} If another driver runs with the same "
            f"{work.identity}, stop it.",
        ) from error

    def _decide(self, work: Work, deadline: float) -> Decision:
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
        return self._judge(self._take(work, deadline), work)

    @staticmethod
    def _judge(state: State, work: Work) -> Decision:
        return decide(
            state,
            work.run,
            work.version,
            work.rows,
            what=work.what,
            streaming=work.streaming,
            accepts_loss=work.accepts_loss,
            words=work.words,
        )

    def _take(self, work: Work, deadline: float) -> State:
        """Become the only producer, read the log up to the `take` of this run, and abort the transactions that earlier runs left
        open. Return the state.
        """
        self._state = None
        take, until = Take(work.run), self._control.take(work.run)
        with naming(self._control.name), self._resolver(deadline - self._now()) as resolver:
            recovery, self._last = replayed(
                self._control.read,
                until,
                lambda: Recovery(work.run, work.txn),
                lambda: self._control.append(take),
                resolver,
                in_time=lambda: self._now() <= deadline,
                what=f"The control topic of {work.what}",
            )
            self._state = recovery.state if recovery.replaced else recovery.finish()
        self._run, self._committed = work.run, recovery.committed
        self._strays_due = not recovery.replaced
        return self._state

    def _resolver(self, patience: float) -> Resolver:
        return Resolver(self._control.end, pause=self._pause, now=self._now, patience=patience, at_once=self._at_once)

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

    def _end(self, work: Work, found_done: Callable[[], bool | None]) -> None:
        """Commit the transaction. If the coordinator does not know the transaction, `found_done` is called (see `_found_done`).
        Raises OutcomeUnknown. Raises TransactionEnded if the transaction is not committed.
        """
        try:
            self._ends.commit(work, found_done)
        except TxnSegmentError:
            self._forget()
            raise

    def _found_done(self, work: Work) -> bool | None:
        """Return whether the control topic has the `done` of a transaction that its coordinator does not know. None: a successor
        has taken over, and its checkpoint may have replaced the `done`.
        """
        state = self._take(work, self._now() + self._patience)
        if work.txn in self._committed or (state.last is not None and state.last.txn == work.txn):
            return True
        return None if state.replaced(work.run) else False

    def _end_strays(self, work: Work) -> None:
        """Abort the transactions that earlier drivers opened and for which they wrote no `begin`. They cannot commit, but their
        rows hide later rows from readers until their timeout. This is done after the version is decided, for two reasons: no commit
        waits for it, and a driver that is about to take over keeps its transaction. An error is only logged, because the next
        commit tries again.
        """
        if not self._strays_due or work.opened is None:
            return
        try:
            left = [one for one in self._control.strays(work.opened) if one not in self._committed]
            with self._resolver(patience=0) as resolver:
                for txn in left:
                    resolver.start(txn)
                resolver.outcomes()
            self._control.passed(work.opened)
        except TxnSegmentError as error:
            log.warning("transactions of earlier drivers of %s may be open until their timeouts: %s", work.what, error.message)
        else:
            self._strays_due = False

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
        except TxnSegmentError as error:
            log.warning("no checkpoint of the control topic: %s", error.message)
            self._forget()

    def _forget(self) -> None:
        self._state = None
        self._control.drop()
