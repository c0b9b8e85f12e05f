"""The rules of a pending-ack log: which entries count. PURE: no I/O, no clock, no threads.

Conflicts follow the rules of segments (`metadata.rules.acks`). Of two conflicting acknowledgements the first one in the log counts
(A33).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from metadata.common.errors import AckConflict, SubscriptionMigrated
from metadata.instream.ack_records import AckEntry, AckKind, AckSnapshot
from metadata.instream.rules import has_ended, txn_id
from metadata.records.records import Cursor
from metadata.rules import acks
from metadata.rules.acks import Ack


@dataclass
class AckState:
    """The state of a subscription after the entries of its log up to `at`. `cursor`: the cursor with the pending acks of open
    transactions. `ended`, `low_water`: as in `rules.TopicState`; they make late acknowledgements void. `sealed_at`: the number
    of the SEAL that counts.
    """

    at: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    ended: dict[str, int] = field(default_factory=dict)
    low_water: dict[int, int] = field(default_factory=dict)
    sealed_at: int | None = None


def fold(state: AckState, number: int, entry: AckEntry, *, topic: str, subscription: str) -> AckConflict | None:
    """Apply the next entry of the log to the state. Return the conflict that makes an acknowledgement void, or that makes any entry
    above the SEAL void. Return None in all other cases, also for a void marker or SEAL.
    """
    assert number > state.at, f"entry {number} comes after {state.at}"
    state.at = number
    if state.sealed_at is not None:
        return migrated(topic, subscription)
    match entry.kind:
        case AckKind.SEAL:
            if not state.cursor.claims:  # a migration must not split a transaction
                state.sealed_at = number
        case AckKind.ACK:
            if entry.txn is not None and has_ended(state, entry.txn):
                return AckConflict(
                    f"Transaction {entry.txn} has ended: it cannot acknowledge rows of {topic} for {subscription!r} any more.",
                    advice="Nothing was acknowledged. Begin another transaction.",
                )
            try:
                ack = Ack(topic, subscription, entry.rows, bool(entry.cumulative))
                state.cursor = acks.acknowledged(state.cursor, ack, entry.txn)
            except AckConflict as conflict:
                return conflict
        case AckKind.SEEK:
            state.cursor = acks.sought(state.cursor, entry.rows)
        case AckKind.COMMIT | AckKind.ABORT:
            assert entry.txn is not None
            if not has_ended(state, entry.txn):
                state.cursor = acks.settled(state.cursor, entry.txn, committed=entry.kind is AckKind.COMMIT)
                state.ended[entry.txn] = number
            if entry.low_water is not None:
                _raise_low_water(state, txn_id(entry.txn).most, entry.low_water)
    return None


def migrated(topic: str, subscription: str) -> SubscriptionMigrated:
    return SubscriptionMigrated(
        f"The topic {topic} was migrated, and its subscription {subscription!r} with it.",
        advice="Nothing was done. Use the successor topic:// (txnsegment topics describe names it).",
    )


def _raise_low_water(state: AckState, coordinator: int, least: int) -> None:
    """Raise the low-water mark of a coordinator to `least`. All transactions of the coordinator up to `least` have ended in every
    topic and subscription that they had registered. If such a transaction still has a pending ack here, it had not registered this
    subscription, so the pending ack is dropped.
    """
    if least <= state.low_water.get(coordinator, -1):
        return
    state.low_water[coordinator] = least
    for txn in [t for t in state.cursor.claims if txn_id(t).most == coordinator and txn_id(t).least <= least]:
        state.cursor = acks.settled(state.cursor, txn, committed=False)
    for txn in [t for t in state.ended if txn_id(t).most == coordinator and txn_id(t).least <= least]:
        del state.ended[txn]


def compacted(state: AckState) -> AckSnapshot:
    """Return the snapshot that a compaction stores. It has the whole state."""
    return AckSnapshot(
        at=state.at,
        cursor=state.cursor,
        ended=dict(state.ended),
        low_water={str(c): n for c, n in state.low_water.items()},
        sealed_at=state.sealed_at,
    )


def restored(snapshot: AckSnapshot) -> AckState:
    low_water = {int(c): n for c, n in snapshot.low_water.items()}
    return AckState(snapshot.at, snapshot.cursor, dict(snapshot.ended), low_water, snapshot.sealed_at)
