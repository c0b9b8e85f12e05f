"""Selection of the marker-based model's records for a backup (docs/in_stream.md, Backups). PURE: no I/O, no clock, no threads.

The transaction log is read first, up to some entry. The other logs are read afterwards. So the other logs have all data and
acknowledgements of every transaction that had committed by that entry. The backup leaves out all other transactions, even if it
finds a marker of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from metadata.instream import ack_rules
from metadata.instream.ack_records import AckEntry, AckKind
from metadata.instream.ack_rules import AckState
from metadata.instream.rules import TopicState, has_ended, txn_id
from metadata.instream.txn_records import Txn, TxnLogSnapshot, TxnState
from metadata.instream.txn_rules import COMMITS, COORDINATOR, TxnLogState
from metadata.records.cluster_records import LostNumbers
from metadata.records.persistent_records import EntryKind, LogEntry, PersistentLayout, SnapshotRest
from metadata.records.records import Cursor
from metadata.records.row_ranges import NONE, Rows, union
from metadata.rules import acks
from metadata.rules.consistent_cut import Moving


class Fate(Enum):
    """The status of a transaction in one log of a backup."""

    COUNTS = auto()
    NEVER = auto()
    """The transaction does not count in this log and never will: it was aborted, or it had not registered the participant. No
    reader has seen or will see its rows here.
    """
    LOST = auto()
    """The transaction had not committed when the backup read the transaction log. It has committed since, or still may, so readers
    of the lost cluster may have seen its rows.
    """


@dataclass(frozen=True)
class Decided:
    """The outcomes of transactions for a backup. They follow from the transaction log up to the entry `state.at`."""

    state: TxnLogState

    def ended(self, txn: str) -> Fate:
        """Return the status of a transaction with a COMMIT marker. It committed by its COMMITTING entry in the transaction log. The
        backup has read the transaction log only up to `state.at`. If the COMMITTING entry lies above `state.at`, the status is
        LOST.
        """
        ident, found = txn_id(txn), self._txn(txn)
        if ident.most == COORDINATOR and (ident.least > self.state.at or (found is not None and found.state not in COMMITS)):
            return Fate.LOST
        return Fate.COUNTS  # a transaction that the log no longer has was final before it expired

    def ongoing(self, txn: str, participant: str | tuple[str, str]) -> Fate:
        """Return the status, in the log of `participant` (a topic or a subscription), of a transaction that has no marker there. A
        committed transaction counts there if it had registered the participant.
        """
        ident, found = txn_id(txn), self._txn(txn)
        if found is not None and found.state in COMMITS:
            return Fate.COUNTS if participant in (*found.topics, *found.subscriptions) else Fate.NEVER
        may_yet = ident.least > self.state.at or (found is not None and found.state is TxnState.OPEN)
        return Fate.LOST if ident.most == COORDINATOR and may_yet else Fate.NEVER

    def _txn(self, txn: str) -> Txn | None:
        ident = txn_id(txn)
        return self.state.txns.get(ident.least) if ident.most == COORDINATOR else None

    def kept(self) -> TxnLogSnapshot:
        """Return the snapshot of the transaction log for the backup. It has no transactions. Applications are marked as restored.
        Applications with a random id are left out, because they expire with their transactions.
        """
        apps = {
            name: written.model_copy(update={"restored": True}) for name, written in self.state.apps.items() if not written.random
        }
        return TxnLogSnapshot(at=self.state.at, apps=apps)


@dataclass(frozen=True)
class KeptLog:
    """The part of a topic's log in a backup.

    `entries`: the entries that the backup keeps. `whole`: the number up to which `entries` has everything that a reader may have
    seen. `end`: the number at which the kept log ends. `sealed_at`: the number of the SEAL, if it counts and is kept.
    """

    entries: Mapping[int, LogEntry]
    whole: int
    end: int
    sealed_at: int | None

    def rest(self, following: int) -> SnapshotRest:
        """Return the additional state (`SnapshotRest`) for a snapshot at the end of the kept log. Its low-water mark says that all
        transactions with a sequence number below `following` have ended, so their late entries do not count.
        """
        return SnapshotRest(low_water=all_ended(following), sealed_at=self.sealed_at)


def kept_log(
    topic: str,
    entries: Mapping[int, LogEntry],
    state: TopicState,
    end: int,
    decided: Decided,
    *,
    trimmed_log: int,
    now_ms: int,
) -> KeptLog:
    """Return the part of a topic's log for a backup: committed data and the SEAL.

    `entries`: all entries above the trimmed ones, ascending, read after the transaction log. `state`: the topic's state after all
    entries. `end`: the end of the log.

    Readers may have read beyond the last kept entry, up to `whole`. Then an abort marker is added at `whole`, so that the restored
    log reaches this number. Its transaction has the sequence number 0, which no real transaction has.
    """
    kept: dict[int, LogEntry] = {}
    whole = end
    for number, entry in entries.items():
        if entry.kind is EntryKind.DATA and number not in state.void:
            fate = _fate(topic, entry.txn, state, decided)
            if fate is Fate.COUNTS:
                kept[number] = entry
            elif fate is Fate.LOST:
                whole = min(whole, number - 1)
        elif number == state.sealed_at:
            kept[number] = entry
    last = max(*kept, trimmed_log, 0)
    if whole > last:
        kept[whole] = LogEntry(kind=EntryKind.ABORT, id="backup", publish_ms=now_ms, txn=f"{COORDINATOR}_0")
    return KeptLog(kept, whole, max(whole, last), state.sealed_at if state.sealed_at in kept else None)


def kept_layout(layout: PersistentLayout, found: KeptLog | None, following: int) -> PersistentLayout:
    """Return the topic's record for the backup, without a snapshot. `found`: the kept log; None for a deleted topic. `following`:
    the first number of every restored log. In the record, the numbers above `found.whole` (for a deleted topic: above the trimmed
    entries) and below `following` are marked as lost.
    """
    whole = layout.trimmed_log if found is None else found.whole
    lost = (*(layout.lost or ()), LostNumbers(after=whole, before=following))
    return layout.model_copy(update={"leaving": (), "snapshot": None, "lost": lost})


def all_ended(following: int) -> dict[str, int]:
    """Return the low-water mark of a restored log. `following`: the first number of every restored log. By this mark all
    transactions with a lower sequence number have ended. These are all transactions that began before the restore.
    """
    return {str(COORDINATOR): following - 1}


def _fate(topic: str, txn: str | None, state: TopicState, decided: Decided) -> Fate:
    if txn is None:
        return Fate.COUNTS
    if txn in state.aborted:
        return Fate.NEVER
    return decided.ongoing(txn, topic) if txn in state.ongoing else decided.ended(txn)


def kept_cursor(
    where: tuple[str, str], before: AckState, entries: Mapping[int, AckEntry], decided: Decided
) -> tuple[AckState, Cursor]:
    """Return the state of a pending-ack log after all its entries, and the cursor for the backup, without pending acks.

    `before`: the state before the transaction log was read. `entries`: the entries after `before`. Plain acknowledgements and seeks
    count only if `before` has them, because the later ones may result from rows that the backup lacks. A pending ack counts if its
    transaction counts. Raises Moving if the subscription was migrated meanwhile.
    """
    state = replace(before, ended=dict(before.ended), low_water=dict(before.low_water))
    acked: list[Rows] = [acks.done(before.cursor)]
    for number, entry in entries.items():
        claims = state.cursor.claims.get(entry.txn or "", NONE)
        if entry.kind is AckKind.COMMIT and entry.txn is not None and claims and not has_ended(state, entry.txn):
            acked += [claims] if decided.ended(entry.txn) is Fate.COUNTS else []
        ack_rules.fold(state, number, entry, topic=where[0], subscription=where[1])
    if state.sealed_at != before.sealed_at:
        raise Moving(f"the subscription {where[1]!r} of {where[0]} was migrated meanwhile")
    for txn, claims in state.cursor.claims.items():
        acked += [claims] if decided.ongoing(txn, where) is Fate.COUNTS else []
    return state, acks.with_done(state.cursor.model_copy(update={"claims": {}}), union(*acked))
