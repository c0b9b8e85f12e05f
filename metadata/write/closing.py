"""Ending transactions: abort, event notification, and settling of this process's own commits (protocol.md section 5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, TransactionNotFound, TxnSegmentError
from metadata.cursors.pending_ack import PendingAcks
from metadata.log import ending
from metadata.log.live_log import Entry, LiveLog
from metadata.records import paths
from metadata.records.records import Application, Event, Header, Op, Settled, State
from metadata.rules import transitions
from metadata.rules.transitions import Claim
from metadata.store.contract import Append, Delete, Put, Record, Write, decide, in_groups, time_ms, until
from metadata.write.write_set import WriteSet


@dataclass
class Closing:
    """Aborts transactions, and settles committed ones after their decision. `aftermath` receives the work that no caller
    waits for.
    """

    cluster: Cluster
    aftermath: Callable[[Callable[[], None]], None]
    log: LiveLog = field(default_factory=LiveLog)
    acks: PendingAcks = field(init=False)

    def __post_init__(self) -> None:
        self.acks = PendingAcks(self.cluster)

    def _now(self) -> int:
        return time_ms(self.cluster.store)

    def abort(self, txn_id: str) -> None:
        """Abort a transaction. Idempotent. Raises TxnConflict if it has committed, TransactionNotFound if the id is unknown."""
        self._end_aborted(txn_id, None)

    def abort_attempt(self, app: str, app_topic: str, claim: Claim) -> None:
        """Abort the transaction of a write for Spark, possibly in another process and much later. Only an OPEN header of this
        version and attempt is aborted (A36).
        """
        record = decide(self.cluster.store, lambda view: view.get(paths.application(app, app_topic)))
        current = None if record is None else Application.of(record).current
        if current is not None and current.version == claim.version:
            self._end_aborted(current.txn_id, claim)

    def _end_aborted(self, txn_id: str, claim: Claim | None) -> None:
        def step() -> bool | None:
            record = decide(self.cluster.store, lambda view: view.get(paths.header(txn_id)))
            if record is None:
                if claim is not None:
                    return False
                raise TransactionNotFound(
                    f"There is no transaction {txn_id}.", advice="The id was never used, or its header expired after the retention."
                )
            if claim is not None and not transitions.may_abort(Header.of(record), claim):
                return False
            return self._end(record, State.ABORTED) is not None or None

        if until(step):  # False: another attempt owns the transaction, so no event is published
            self.aftermath(lambda: self.tell(txn_id, State.ABORTED, self._touched(txn_id)))

    def _end(self, record: Record, decision: State) -> Header | None:
        return ending.end(self.cluster.store, record, decision, now_ms=self._now())

    def _touched(self, txn_id: str) -> list[str]:
        """Return the segments that the transaction wrote to, by its op records. If it has none, its registrations name the
        segments.
        """
        ops = decide(self.cluster.store, lambda view: view.scan(paths.ops(txn_id).range()))
        if ops:
            return sorted({Op.of(record).segment for record in ops})
        listing = decide(self.cluster.store, self.log.list)
        return sorted({s for e in listing.entries if e.registration.txn == txn_id for s in e.registration.segments})

    def _abort_after(self, error: BaseException, txn_id: str) -> None:
        """Abort a transaction whose owner failed before the decision, so that readers need not wait for its deadline."""
        try:
            self._end_aborted(txn_id, None)
        except TxnSegmentError as second:
            error.add_note(f"Transaction {txn_id} could not be aborted either ({second}); its timeout will end it.")

    def _close(self, txn_id: str, entry: Entry | None, work: WriteSet) -> None:
        """Publish the events, mark the registration COMMITTED and delete the write ops, in one group. Then move the claims of the
        acks into the cursors, and delete the ack ops. After a crash or a lost reply a sweep completes these steps.
        """
        segments, ops = sorted(work.parts), paths.ops(txn_id)
        event = Event(txn_id=txn_id, decision=State.COMMITTED).to_bytes()
        writes: list[Write] = [Append(paths.segment_events(s), event, durable=False) for s in segments]
        if entry is not None:
            after = entry.registration.model_copy(update={"state": Settled.COMMITTED})
            writes.append(Put(entry.record.key, after.to_bytes(), expect=entry.record, durable=False))
            writes += [Delete(ops.key(i), durable=False) for i in range(len(segments))]
        try:
            made = [record for group in in_groups(writes) for record in self.cluster.store.write(*group)]
        except BadVersion:  # a sweeper has settled the registration, and deletes the ops
            self.tell(txn_id, State.COMMITTED, segments)
        else:
            settled = None if entry is None else made[len(segments)]
            if settled is not None:
                self.log.update(Entry(settled.number, settled))  # the sweeping share need not read the entry again
        if work.acks:
            self.acks.settle(txn_id, [(a.segment, a.subscription) for a in work.acks], committed=True)
            rest: list[Write] = [Delete(ops.key(len(segments) + i), durable=False) for i in range(len(work.acks))]
            rest += [Append(paths.subscription_events(a.segment, a.subscription), event, durable=False) for a in work.acks]
            for group in in_groups(rest):
                self.cluster.store.write(*group)

    def tell(self, txn_id: str, decision: State, segments: Sequence[str]) -> None:
        """Publish one event for each segment. Events only wake readers; a lost event costs delay."""
        body = Event(txn_id=txn_id, decision=decision).to_bytes()
        for group in in_groups([Append(paths.segment_events(s), body, durable=False) for s in sorted(segments)]):
            self.cluster.store.write(*group)
