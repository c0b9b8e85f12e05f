"""The two-phase end: after COMMITTING or ABORTING is logged, every participant gets its marker, then the final state is logged.

Anyone may do it, any number at once: a second marker is void, and so is a second final state.
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
    """What finishes the transactions of a cluster."""

    cluster: Cluster
    buffer: InStreamBuffer
    log: TransactionLog
    acks: InStreamAcks

    def finish(self, least: int, seen: Txn | None = None, *, again: bool = False) -> None:
        """Give every participant of a COMMITTING or ABORTING transaction its marker and log the final state. Idempotent. `seen`:
        the transaction, if it was looked at since it was decided. `again`: for who comes after others: a participant that has its
        marker, or takes none, gets no other one. (One that stalls would else grow with each look at it, 8.14.)

        Raises TransactionUnfinished naming the topics that take no marker (the older model stalls there), and what the store
        raises.
        """
        txn = self.log.txn(least) if seen is None else seen
        if txn is None or txn.state not in (TxnState.COMMITTING, TxnState.ABORTING):
            return
        self._mark_subscriptions(txn, again=again)  # first: they never stall
        self._mark_topics(txn, again=again)
        self._log_final(txn)

    def _log_final(self, txn: Txn) -> None:
        """Log COMMITTED or ABORTED. What the entry does there need not be looked at: it is so by now, or somebody was faster."""
        final = TxnState.COMMITTED if txn.state is TxnState.COMMITTING else TxnState.ABORTED
        now_ms = time_ms(self.cluster.store)
        entry = TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=txn.least, state=final, at_ms=now_ms)
        self.log.replay.log.append_again(entry)

    def _mark_topics(self, txn: Txn, *, again: bool) -> None:
        """END_TXN_ON_PARTITION: one marker for each topic, many in one round trip; then a look whether a seal was in the way."""
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
                advice="It is decided, but rows of it there are not seen. Transactions of topic:// do not stall on a seal.",
            )

    def _takes_no_marker(self, name: PersistentName, txn: str) -> bool:
        try:
            state = self.buffer.state(name)
        except TopicNotFound:
            return True  # deleted: nobody reads it
        return state.sealed_at is not None or has_ended(state, txn)

    def _mark_subscriptions(self, txn: Txn, *, again: bool) -> None:
        """END_TXN_ON_SUBSCRIPTION: one marker for each pending-ack log. A subscription that is deleted needs none."""
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

    # --- what others left behind ------------------------------------------------------------------------------------

    def resolve(self, txns: Iterable[str]) -> bool:
        """End those of these transactions that are past their deadline, finish those that are decided; whether any was. One that
        stalls is left: it fails nobody but its owner (and a sweep says so).
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
        """The same for those that are ongoing in a topic; whether its maxReadPosition may have moved. What is ongoing there though
        it is final, or unknown, had not registered (or came when all markers stood): it gets an abort marker.
        """
        ongoing = self.buffer.state(name).ongoing
        done = self.resolve(ongoing)
        mine = {least: self.log.txn(least) for least in self._mine(ongoing)}
        given = self.log.replay.at  # an id above it may yet be given to somebody (nobody of ours writes under such a one)
        strays = [least for least, txn in mine.items() if least <= given and (txn is None or txn.state in FINAL)]
        if not strays:
            return done
        # Looked at again after the log: markers stand before a transaction is final, perhaps since we looked first (ours is void).
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
        """Abort what is OPEN past its deadline, by the store's clock with the allowance; how many."""
        now_ms, allowance = time_ms(self.cluster.store), self.cluster.settings.deadline_allowance_ms
        late = [txn.least for txn in self.log.live() if expired(txn, now_ms, allowance)]
        for least in late:
            self._resolve(least)
        return len(late)

    def open_transactions(self) -> OpenTransactions:
        """The transactions that may still append rows, to any topic. Those past their deadline are aborted. What is read of a
        topic's log after this call has all that the others appended: nobody appends for a transaction that is decided.
        """
        now_ms = time_ms(self.cluster.store)  # before the log: a transaction that is missing there begins after this time
        self.timeouts()
        found = [txn for txn in self.log.live() if txn.state is TxnState.OPEN]
        opened = (OpenTransaction(f"{self.log.most}_{t.least}", t.created_ms, t.deadline_ms, t.owner) for t in found)
        return OpenTransactions(now_ms, tuple(opened), self.cluster.settings.deadline_allowance_ms)

    def finish_all(self) -> tuple[int, list[TransactionUnfinished]]:
        """Finish every transaction that is COMMITTING or ABORTING; how many, and what could not be."""
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
        self.log.append(entry)  # void: its owner was faster
        log.warning("timed out txn=%s_%s app=%s version=%s", self.log.most, txn.least, txn.app, txn.version)
        self.finish(txn.least)

    def _mine(self, txns: Iterable[str]) -> list[int]:
        return [ident.least for ident in map(txn_id, txns) if ident.most == self.log.most]

    def sealing(self, names: Sequence[PersistentName]) -> dict[PersistentName, bool]:
        """Those of these topics in whose log a seal may stand, and whether they are deleted by now. Whoever appends a seal sets the
        flag first: read after our own appends, a record without it means that no seal stands below them.
        """
        if not names:
            return {}
        records = decide(self.cluster.store, lambda view: view.get_many([paths.topic(n) for n in names]))
        found = {name: PersistentLayout.of(r) for name, r in zip(names, records, strict=True) if r is not None}
        return {name: bool(layout.deleted) for name, layout in found.items() if layout.sealing}
