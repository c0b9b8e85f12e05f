"""What a backup takes of the older model's logs (docs/in_stream.md, Backups). PURE: no I/O, no clock, no threads.

The transaction log is read up to some entry first, everything else of a transaction after it. So what had committed there has all
its data and acknowledgements in what is read later; what had not never happened, whatever marker of it is found.
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
    """What becomes of a transaction in a backup."""

    COUNTS = auto()
    NEVER = auto()
    """It had not committed, and never can: nobody has seen anything of it, nor ever will."""
    LOST = auto()
    """It had not committed, but has since, or may: readers of the lost cluster may have seen it."""


@dataclass(frozen=True)
class Decided:
    """The transaction log up to the entry `state.at`."""

    state: TxnLogState

    def ended(self, txn: str) -> Fate:
        """Of a transaction that a COMMIT marker has ended: COMMITTING was logged before, but perhaps above what was read."""
        ident, found = txn_id(txn), self._txn(txn)
        if ident.most == COORDINATOR and (ident.least > self.state.at or (found is not None and found.state not in COMMITS)):
            return Fate.LOST
        return Fate.COUNTS  # also of one that is forgotten: it was final before

    def ongoing(self, txn: str, participant: str | tuple[str, str]) -> Fate:
        """Of a transaction that no marker has ended: if it has committed, its marker is still missing where it had registered."""
        ident, found = txn_id(txn), self._txn(txn)
        if found is not None and found.state in COMMITS:
            return Fate.COUNTS if participant in (*found.topics, *found.subscriptions) else Fate.NEVER
        may_yet = ident.least > self.state.at or (found is not None and found.state is TxnState.OPEN)
        return Fate.LOST if ident.most == COORDINATOR and may_yet else Fate.NEVER

    def _txn(self, txn: str) -> Txn | None:
        ident = txn_id(txn)
        return self.state.txns.get(ident.least) if ident.most == COORDINATOR else None

    def kept(self) -> TxnLogSnapshot:
        """What is left of the log: nothing is under way, what applications have committed comes from a backup (random ones are
        forgotten with their transactions)."""
        apps = {
            name: written.model_copy(update={"restored": True}) for name, written in self.state.apps.items() if not written.random
        }
        return TxnLogSnapshot(at=self.state.at, apps=apps)


@dataclass(frozen=True)
class KeptLog:
    """Of a topic's log: the `entries` that a backup has; up to which number (`whole`) a reader has seen nothing that is not among
    them; its `end`, which readers may have seen; the seal that counts.
    """

    entries: Mapping[int, LogEntry]
    whole: int
    end: int
    sealed_at: int | None

    def rest(self, following: int) -> SnapshotRest:
        """Of the snapshot of all of it: what is in it counts, and nothing of a transaction of before will."""
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
    """What counts, data and the seal alone. `entries`: all above what is trimmed, ascending, read after the transaction log;
    `state`: by all; `end`: of the log.

    Where readers were beyond the last of it, an abort marker of a transaction that never was ends the log there (their ids are
    numbers of a log, from 1 on): the restored one must reach as far.
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
    """The record of a topic without its snapshot, which is one of `found` alone (None: it is deleted). What a restore loses: all
    numbers above what is whole, and below the one where every log goes on (`following`).
    """
    whole = layout.trimmed_log if found is None else found.whole
    lost = (*(layout.lost or ()), LostNumbers(after=whole, before=following))
    return layout.model_copy(update={"leaving": (), "snapshot": None, "lost": lost})


def all_ended(following: int) -> dict[str, int]:
    """The low-water mark in what is restored: every transaction that the lost cluster can have begun has ended everywhere."""
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
    """The state of a pending-ack log by all its entries, and the cursor that a backup takes, without claims.

    `before`: by what was read before the transaction log was; `entries`: what came since. What is acknowledged without a
    transaction, or sought, counts if it came before: who did it may have done it because of what is not in the backup. What
    transactions have claimed counts with them. Raises Moving if the subscription was carried over to a topic:// meanwhile.
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
