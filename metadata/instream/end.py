"""The two-phase end: after COMMITTING or ABORTING is logged, every participant gets its marker, then the final state is logged.

Anyone may do it, any number at once: a second marker is void, and so is a second final state.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from metadata.cluster import Cluster
from metadata.errors import TransactionUnfinished
from metadata.instream import paths
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.managed_log import append_to_all
from metadata.instream.records import EntryKind, LogEntry
from metadata.instream.topics import of_record
from metadata.instream.transaction_log import TransactionLog
from metadata.instream.txn_records import Txn, TxnEntry, TxnEntryKind, TxnState
from metadata.names import PersistentName, persistent_name
from metadata.store.contract import decide, time_ms

log = logging.getLogger("txnsegment.instream")


@dataclass
class Ending:
    """What finishes transactions of one coordinator."""

    cluster: Cluster
    buffer: InStreamBuffer
    log: TransactionLog

    def finish(self, least: int) -> None:
        """Give every participant of a COMMITTING or ABORTING transaction its marker and log the final state. Idempotent.

        Raises TransactionUnfinished naming the topics that take no marker (the older model stalls there), and what the store
        raises.
        """
        txn = self.log.txn(least)
        if txn is None or txn.state not in (TxnState.COMMITTING, TxnState.ABORTING):
            return
        self._mark_topics(txn)
        final = TxnState.COMMITTED if txn.state is TxnState.COMMITTING else TxnState.ABORTED
        now_ms = time_ms(self.cluster.store)
        self.log.append(TxnEntry(kind=TxnEntryKind.STATUS, id=self.cluster.unique(), txn=least, state=final, at_ms=now_ms))

    def _mark_topics(self, txn: Txn) -> None:
        """END_TXN_ON_PARTITION: one marker for each topic, many in one round trip; then a look whether a seal was in the way."""
        names = [persistent_name(t) for t in txn.topics]
        kind = EntryKind.COMMIT if txn.state is TxnState.COMMITTING else EntryKind.ABORT
        low_water = self.log.now().low_water
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
            ],
        )
        stalled = [name for name in self.sealing(txn) if ident in self.buffer.state(name).ongoing]
        if stalled:
            raise TransactionUnfinished(
                f"Transaction {ident} is {txn.state}, but {', '.join(map(str, stalled))} took no marker: sealed while it was open.",
                advice="It is decided, but rows of it there are not seen. Transactions of topic:// do not stall on a seal.",
            )

    def sealing(self, txn: Txn) -> Sequence[PersistentName]:
        """Those of its topics in whose log a seal may stand. Whoever appends a seal sets the flag first: read after our own
        appends, a record without it means that no seal stands below them.
        """
        names = [persistent_name(t) for t in txn.topics]
        if not names:
            return []
        records = decide(self.cluster.store, lambda view: view.get_many([paths.topic(n) for n in names]))
        found = [of_record(name, record) for name, record in zip(names, records, strict=True)]
        return [topic.name for topic in found if topic is not None and topic.layout.sealing]
