"""The rules of a transaction log: which entries take effect. PURE: no I/O, no clock, no threads.

The function `fold` applies the entries of the log in order. An entry with an allowed transition takes effect. Any other entry is
void. Every process gets the same result, so several coordinators at once do no harm (A6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from metadata.instream.rules import low_water
from metadata.instream.txn_records import Txn, TxnEntry, TxnEntryKind, TxnLogSnapshot, TxnState, Written

COORDINATOR = 1_000_000
"""The high part of the id of every marker-based transaction. One log allocates all of these ids. Transactions of topic:// have ids
with a small high part, so ids of the two models never collide.
"""

TRANSITIONS: Mapping[TxnState, frozenset[TxnState]] = {
    TxnState.OPEN: frozenset({TxnState.OPEN, TxnState.COMMITTING, TxnState.ABORTING}),
    TxnState.COMMITTING: frozenset({TxnState.COMMITTING, TxnState.COMMITTED}),
    TxnState.ABORTING: frozenset({TxnState.ABORTING, TxnState.ABORTED}),
    TxnState.COMMITTED: frozenset({TxnState.COMMITTED}),
    TxnState.ABORTED: frozenset({TxnState.ABORTED}),
}
"""The allowed next states of each state, as Pulsar's TransactionUtil.canTransitionTo gives them. A transition to the same state
changes nothing.
"""


def can_follow(before: TxnState, after: TxnState) -> bool:
    """Return whether a transaction in the state `before` may take, or keep, the state `after`."""
    return after in TRANSITIONS[before]


FINAL = frozenset({TxnState.COMMITTED, TxnState.ABORTED})
COMMITS = frozenset({TxnState.COMMITTING, TxnState.COMMITTED})


class Effect(Enum):
    """The effect of an entry at its place in the log."""

    DONE = auto()
    SAME = auto()
    """The entry has no effect, because the transaction already had this state, or already had these participants."""
    VOID = auto()


@dataclass
class TxnLogState:
    """The state of a transaction log after the entries up to `at`. `txns`: the transactions by sequence number. Final transactions
    stay there until a compaction drops them. `apps`: the last committed version of each application. `live`: the sequence numbers
    of the transactions that are not final.
    """

    at: int = 0
    txns: dict[int, Txn] = field(default_factory=dict)
    apps: dict[str, Written] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)

    @property
    def low_water(self) -> int:
        """The low-water mark. All transactions up to this sequence number are final, so every participant has their markers."""
        return low_water(self.live, self.at)


def fold(state: TxnLogState, number: int, entry: TxnEntry) -> Effect:
    """Apply the next entry of the log to the state. Return its effect. Numbers must ascend."""
    assert number > state.at, f"entry {number} comes after {state.at}"
    state.at = number
    match entry.kind:
        case TxnEntryKind.NEW:
            state.txns[number] = _new(number, entry)
            state.live.add(number)
            return Effect.DONE
        case TxnEntryKind.ADD:
            return _add(state, entry)
        case TxnEntryKind.STATUS:
            return _status(state, entry)


def _new(number: int, entry: TxnEntry) -> Txn:
    assert entry.created_ms is not None
    assert entry.timeout_ms is not None
    return Txn(
        least=number,
        created_ms=entry.created_ms,
        timeout_ms=entry.timeout_ms,
        owner=entry.owner,
        app=entry.app,
        version=entry.version,
        by=entry.by,
        attempt=entry.attempt,
        random=entry.random,
        topics=tuple(sorted(set(entry.topics))),
        subscriptions=tuple(sorted(set(entry.subscriptions))),
    )


def _add(state: TxnLogState, entry: TxnEntry) -> Effect:
    """Register participants. This is allowed only while the transaction is OPEN, because a participant that is registered later
    might get no marker.
    """
    txn = state.txns.get(entry.txn or 0)
    if txn is None or txn.state is not TxnState.OPEN:
        return Effect.VOID
    topics = tuple(sorted({*txn.topics, *entry.topics}))
    subscriptions = tuple(sorted({*txn.subscriptions, *entry.subscriptions}))
    if (topics, subscriptions) == (txn.topics, txn.subscriptions):
        return Effect.SAME
    state.txns[txn.least] = txn.model_copy(update={"topics": topics, "subscriptions": subscriptions})
    return Effect.DONE


def _status(state: TxnLogState, entry: TxnEntry) -> Effect:
    txn = state.txns.get(entry.txn or 0)
    assert entry.state is not None
    assert entry.at_ms is not None
    if txn is None or not can_follow(txn.state, entry.state):
        return Effect.VOID
    if entry.state is txn.state:
        return Effect.SAME
    if entry.state is TxnState.COMMITTING and overtaken(state, txn):
        return Effect.VOID
    state.txns[txn.least] = txn.model_copy(
        update={"state": entry.state} | ({} if entry.state is TxnState.OPEN else {"ended_ms": entry.at_ms})
    )
    if entry.state in FINAL:
        state.live.discard(txn.least)
    if entry.state is TxnState.COMMITTING and txn.app is not None and txn.version is not None:
        state.apps[txn.app] = Written(version=txn.version, txn=txn.least, at_ms=entry.at_ms, by=txn.by, random=txn.random)
    return Effect.DONE


def overtaken(state: TxnLogState, txn: Txn) -> bool:
    """Return whether another transaction has committed this version of the application, or a higher one. This transaction can then
    never commit (8.8).
    """
    if txn.app is None or txn.version is None:
        return False
    written = state.apps.get(txn.app)
    return written is not None and written.txn != txn.least and written.version >= txn.version


def expired(txn: Txn, now_ms: int, allowance_ms: int) -> bool:
    """Return whether any process may abort this transaction. It may if the transaction is OPEN, and its deadline plus the allowance
    has passed by the store's clock.
    """
    return txn.state is TxnState.OPEN and now_ms > txn.deadline_ms + allowance_ms


def compacted(state: TxnLogState, now_ms: int, retention_ms: int) -> TxnLogSnapshot:
    """Return the state that a compaction keeps: the transactions that are not final, those that became final at most `retention_ms`
    ago, and the committed versions of applications. The version of an application with a random id, which was generated for one
    write, is kept only as long as its transaction.
    """
    txns = [t for t in state.txns.values() if t.state not in FINAL or now_ms - (t.ended_ms or 0) <= retention_ms]
    kept = {t.least for t in txns}
    apps = {name: w for name, w in state.apps.items() if not w.random or w.txn in kept}
    return TxnLogSnapshot(at=state.at, txns=tuple(sorted(txns, key=lambda t: t.least)), apps=apps)


def restored(snapshot: TxnLogSnapshot) -> TxnLogState:
    live = {t.least for t in snapshot.txns if t.state not in FINAL}
    return TxnLogState(snapshot.at, {t.least: t for t in snapshot.txns}, dict(snapshot.apps), live)


def forget(state: TxnLogState, snapshot: TxnLogSnapshot) -> None:
    """Drop from the cached `state` the transactions and applications that the compaction with the result `snapshot` has dropped, so
    that memory does not grow with history (A13). The state may have later entries than the snapshot.
    """
    kept = {t.least for t in snapshot.txns}
    for least in [n for n in state.txns if n <= snapshot.at and n not in kept and n not in state.live]:
        del state.txns[least]
    for name in [n for n, w in state.apps.items() if w.random and w.txn not in state.txns]:
        del state.apps[name]
