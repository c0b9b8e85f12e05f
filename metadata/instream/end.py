"""The two-phase end of a transaction. First the entry COMMITTING or ABORTING is logged, which decides the transaction. Then every
participant gets its marker. At the end the final state is logged.

Any number of processes may append markers and the final state at once, because a second marker or a second final state has no
effect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from metadata.cluster.cluster import Cluster
from metadata.common.errors import TopicNotFound, TransactionUnfinished
from metadata.instream import paths
from metadata.instream.ack_records import AckEntry, AckKind, SubscriptionRecord
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.managed_log import append_to_all
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.rules import has_ended, txn_id
from metadata.instream.transaction_log import TransactionLog
from metadata.instream.txn_records import Txn, TxnEntry, TxnEntryKind, TxnState
from metadata.instream.txn_rules import FINAL, expired
from metadata.records.names import PersistentName, persistent_name
from metadata.records.persistent_records import EntryKind, LogEntry, PersistentLayout
from metadata.rules.timestamps import OpenTransaction, OpenTransactions
from metadata.store.contract import decide, time_ms

log = logging.getLogger("txnsegment.instream")


@dataclass
class Ending:
    """Ends the decided and the expired transactions of a cluster."""

    cluster: Cluster
    buffer: InStreamBuffer
    log: TransactionLog
    acks: InStreamAcks

    def finish(self, least: int, seen: Txn | None = None, *, again: bool = False) -> None:
        """Append the marker of a COMMITTING or ABORTING transaction to every participant, and log the final state. Idempotent.

        `seen`: the transaction, if the caller has read it since its decision. `again`: an earlier call may have appended markers.
        Then a marker is appended only for participants that lack it and accept markers. Without this rule each retry of a stalled
        transaction would add markers (8.14).

        Raises StoreError. Raises TransactionUnfinished, which names the topics without a marker, if a SEAL stalls the transaction.
        """
        txn = self.log.txn(least) if seen is None else seen
        if txn is None or txn.state not in (TxnState.COMMITTING, TxnState.ABORTING):
            return
        self._mark_subscriptions(txn, again=again)  # subscriptions first, because their markers never stall
        self._mark_topics(txn, again=again)
        self._log_final(txn)

    def _log_final(self, txn: Txn) -> None:
        """Log COMMITTED or ABORTED. The effect needs no check, because the state is final by this entry or by an earlier one."""
        final = TxnState.COMMITTED if txn.state is TxnState.COMMITTING else TxnState.ABORTED
        now_ms = time_ms(self.cluster.store)
        entry = TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=txn.least, state=final, at_ms=now_ms)
        self.log.replay.log.append_again(entry)

    def _mark_topics(self, txn: Txn, *, again: bool) -> None:
        """Append one marker to each topic's log, many in one round trip (Pulsar's END_TXN_ON_PARTITION). Then check whether a SEAL
        made a marker void.
        """
        names = [persistent_name(t) for t in txn.topics]
        kind = EntryKind.COMMIT if txn.state is TxnState.COMMITTING else EntryKind.ABORT
        low_water = self.log.low_water()
        now_ms = time_ms(self.cluster.store)
        ident = f"{self.log.most}_{txn.least}"
        append_to_all(
            self.cluster.store,
            [
                (
                    self.buffer.log(name),
                    LogEntry(kind=kind, id=self.cluster.unique(), publish_ms=now_ms, txn=ident, low_water=low_water),
                )
                for name in names
                if not (again and self._takes_no_marker(name, ident))
            ],
        )
        sealing = self.sealing(names)
        stalled = [name for name, deleted in sealing.items() if not deleted and ident in self.buffer.state(name).ongoing]
        if stalled:
            raise TransactionUnfinished(
                f"Transaction {ident} is {txn.state}, but {', '.join(map(str, stalled))} took no marker: sealed while it was open.",
                advice="The transaction is decided, but its rows there are not visible. Transactions of topic:// do not stall.",
            )

    def _takes_no_marker(self, name: PersistentName, txn: str) -> bool:
        try:
            state = self.buffer.state(name)
        except TopicNotFound:
            return True  # a deleted topic has no readers, so it needs no marker
        return state.sealed_at is not None or has_ended(state, txn)

    def _mark_subscriptions(self, txn: Txn, *, again: bool) -> None:
        """Append one marker to each pending-ack log (Pulsar's END_TXN_ON_SUBSCRIPTION). A deleted subscription needs no marker."""
        if not txn.subscriptions:
            return
        keys = [paths.subscription(*where) for where in txn.subscriptions]
        records = decide(self.cluster.store, lambda view: view.get_many(keys))
        found = {w: SubscriptionRecord.of(r) for w, r in zip(txn.subscriptions, records, strict=True) if r is not None}
        ident = f"{self.log.most}_{txn.least}"
        kind = AckKind.COMMIT if txn.state is TxnState.COMMITTING else AckKind.ABORT
        now_ms, low_water = time_ms(self.cluster.store), self.log.low_water()
        append_to_all(
            self.cluster.store,
            [
                (
                    self.acks.log(where, record.life),
                    AckEntry(
                        kind=kind,
                        id=self.cluster.unique(),
                        publish_ms=now_ms,
                        txn=ident,
                        low_water=low_water,
                    ),
                )
                for where, record in found.items()
                if record.deleted_ms is None and not (again and self.acks.has_ended(where, ident))
            ],
        )

    # --- transactions of other processes ----------------------------------------------------------------------------

    def resolve(self, txns: Iterable[str]) -> bool:
        """Abort those of the transactions `txns` that are past their deadline, and finish those that are decided. Return whether
        any transaction was ended. A transaction that stalls is logged and left: only its owner and a sweep raise or report the
        error.
        """
        return sum(self._resolve(least) for least in self._mine(txns)) > 0

    def _resolve(self, least: int) -> bool:
        txn = self.log.txn(least)
        try:
            if txn is not None and expired(txn, time_ms(self.cluster.store), self.cluster.settings.deadline_allowance_ms):
                self._time_out(txn)
            elif txn is not None and txn.state in (TxnState.COMMITTING, TxnState.ABORTING):
                self.finish(least, again=True)
            else:
                return False
        except TransactionUnfinished as error:
            log.info("%s", error)
            return False
        return True

    def resolve_topic(self, name: PersistentName) -> bool:
        """Resolve the transactions that are open in a topic. Return whether its maxReadPosition may have advanced.

        A transaction may be open in the topic although its state is final, or although the transaction log no longer has it. Such a
        transaction is a stray: it got no marker in the topic, because it had not registered the topic. This method appends an abort
        marker for it.
        """
        ongoing = self.buffer.state(name).ongoing
        done = self.resolve(ongoing)
        mine = {least: self.log.txn(least) for least in self._mine(ongoing)}
        given = self.log.replay.at  # higher numbers are not allocated yet, so such ids get no abort marker
        strays = [least for least, txn in mine.items() if least <= given and (txn is None or txn.state in FINAL)]
        if not strays:
            return done
        # Read the topic again. A stray may have ended properly since the first read: its marker was appended to the topic before
        # its final state was appended to the transaction log. Then the topic's state no longer has the stray in `ongoing`.
        still = self.buffer.state(name).ongoing
        for least in strays:
            txn_id = f"{self.log.most}_{least}"
            if txn_id in still:
                now_ms = time_ms(self.cluster.store)
                entry = LogEntry(kind=EntryKind.ABORT, id=self.cluster.unique(), publish_ms=now_ms, txn=txn_id)
                self.buffer.log(name).append_again(entry)
                log.warning("aborted what transaction %s wrote to %s after its end", txn_id, name)
                done = True
        return done

    def timeouts(self) -> int:
        """Abort the transactions that are OPEN past their deadline plus the allowance, by the store's clock. Return how many were
        found.
        """
        now_ms, allowance = time_ms(self.cluster.store), self.cluster.settings.deadline_allowance_ms
        late = [txn.least for txn in self.log.live() if expired(txn, now_ms, allowance)]
        for least in late:
            self._resolve(least)
        return len(late)

    def open_transactions(self) -> OpenTransactions:
        """Return the transactions that may still append rows to any topic. Expired transactions are aborted first. No writer
        appends rows for a decided transaction. If a transaction began before this call and is not in the result, a log that is read
        after the call has all of its rows.
        """
        now_ms = time_ms(self.cluster.store)  # read before the log: a transaction that the log lacks begins after this time
        self.timeouts()
        found = [txn for txn in self.log.live() if txn.state is TxnState.OPEN]
        opened = (OpenTransaction(f"{self.log.most}_{t.least}", t.created_ms, t.deadline_ms, t.owner) for t in found)
        return OpenTransactions(now_ms, tuple(opened), self.cluster.settings.deadline_allowance_ms)

    def finish_all(self) -> tuple[int, list[TransactionUnfinished]]:
        """Finish all COMMITTING and ABORTING transactions. Return how many were finished, and the errors of those that stall."""
        finished, stalled = 0, []
        for txn in self.log.live():
            if txn.state in (TxnState.COMMITTING, TxnState.ABORTING):
                try:
                    self.finish(txn.least, again=True)
                    finished += 1
                except TransactionUnfinished as error:
                    stalled.append(error)
        return finished, stalled

    def _time_out(self, txn: Txn) -> None:
        now_ms = time_ms(self.cluster.store)
        entry = TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=txn.least, state=TxnState.ABORTING, at_ms=now_ms)
        self.log.append(entry)  # this entry is void if the owner has committed the transaction before
        log.warning("timed out txn=%s_%s app=%s version=%s", self.log.most, txn.least, txn.app, txn.version)
        self.finish(txn.least)

    def _mine(self, txns: Iterable[str]) -> list[int]:
        return [ident.least for ident in map(txn_id, txns) if ident.most == self.log.most]

    def sealing(self, names: Sequence[PersistentName]) -> dict[PersistentName, bool]:
        """Return the topics among `names` whose log may have a SEAL, and for each topic whether it is deleted. The flag `sealing`
        in the topic's record is set before a SEAL is appended. So if the record is read after an append and lacks the flag, no SEAL
        lies below that append.
        """
        if not names:
            return {}
        records = decide(self.cluster.store, lambda view: view.get_many([paths.topic(n) for n in names]))
        found = {name: PersistentLayout.of(r) for name, r in zip(names, records, strict=True) if r is not None}
        return {name: bool(layout.deleted) for name, layout in found.items() if layout.sealing}
