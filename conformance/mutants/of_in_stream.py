"""Faults of the marker-based model (docs/in_stream.md): its transaction logs, markers, transaction buffers and acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import partial
from typing import Any

from conformance.mutants import planting
from metadata.instream.rules import Counts, TopicState, first_ongoing
from metadata.instream.txn_records import Txn, TxnLogSnapshot, TxnState
from metadata.instream.txn_rules import FINAL
from metadata.records import paths
from metadata.records.names import PersistentName
from metadata.records.paths import Key
from metadata.records.persistent_records import EntryKind, LogEntry, PersistentLayout
from metadata.store.contract import Record, View

fault = partial(planting.fault, kind="instream")
Real = Callable[..., Any]

_RULES = "metadata.instream.rules"
_TXN = "metadata.instream.txn_rules"
_END = "metadata.instream.end:Ending"
_STEPS = "metadata.instream.steps:TransactionSteps"
_BUFFER = "metadata.instream.buffer:InStreamBuffer"
_REPLAY = "metadata.instream.replay:Replay"
_ACKS = "metadata.instream.ack_rules"
_APPEND = "metadata.instream.managed_log:append_to_all"

# --- the two-phase end --------------------------------------------------------------------------------------------


@fault(
    "in-stream end, 8.5, 8.9",
    "Every topic of a transaction has its marker before the transaction log records the final state.",
    at=_APPEND,
    within=f"{_END}._mark_topics",
    by="script instream_backup",
)
def marker_missing_on_one_participant(real: Real, store: Any, appends: Iterable[Any]) -> Any:
    return real(store, list(appends)[:1])


@fault(
    "in-stream acks, 8.11",
    "Every pending-ack log of a transaction gets its marker.",
    at=_APPEND,
    within=f"{_END}._mark_subscriptions",
    by="script instream_acks",
)
def marker_missing_on_a_subscription(real: Real, store: Any, appends: Iterable[Any]) -> Any:
    return real(store, list(appends)[1:])


@fault(
    "in-stream end, 8.9",
    (
        "COMMITTED is logged only after every topic has its marker. If the coordinator died between the two, rows without a "
        "marker would never be shown."
    ),
    at=f"{_END}._mark_topics",
    by="script instream_acks",
)
def committed_before_the_markers(real: Real, self: Any, txn: Txn, *, again: bool) -> Any:
    self._log_final(txn)
    return real(self, txn, again=again)


@fault(
    "in-stream end, 8.14",
    (
        "A process that tries to finish a stalled transaction adds no second marker to a topic. Otherwise the topic would grow at "
        "each attempt."
    ),
    at=f"{_END}._takes_no_marker",
    by="script instream_marker_missing",
)
def a_look_at_a_stall_is_an_entry(real: Real, *rest: Any) -> bool:
    return False


@fault(
    "in-stream end, 8.5",
    "The low-water mark lies below the first transaction that is not final.",
    at=f"{_RULES}:low_water",
    by="script instream_acks",
)
def low_water_mark_one_too_high(real: Real, live: Iterable[int], last: int) -> int:
    found = list(live)
    return int(real(found, last)) + bool(found)


# --- which entries of a topic count -------------------------------------------------------------------------------


@fault(
    "in-stream zombies, 8.4",
    "Data that a transaction appends after its own marker is void, since no process would ever end it.",
    at=f"{_RULES}:has_ended",
    within=f"{_RULES}:_data",
    by="script instream_backup",
)
def data_after_its_marker_counts(real: Real, *rest: Any) -> bool:
    return False


@fault(
    "in-stream zombies, 8.6",
    "Data of a transaction at or below the low-water mark is void, even if this topic no longer has the transaction's marker.",
    at=f"{_RULES}:has_ended",
    by="script instream_backup",
)
def zombie_below_the_low_water_mark(real: Real, state: TopicState, txn: str) -> bool:
    return txn in state.ended


@fault(
    "in-stream lost replies, 8.5",
    "An append that is repeated after a lost reply counts once.",
    at=f"{_RULES}:_data",
    by="script instream_lost_replies",
)
def second_append_of_one_id_counts(real: Real, state: TopicState, number: int, txn: str, entry_id: str) -> Any:
    return real(state, number, txn, f"{entry_id} at {number}")


@fault("in-stream seals, 8.12", "All entries above a topic's seal are void.", at=f"{_RULES}:fold", by="script instream_seal")
def seal_ignored(real: Real, state: TopicState, number: int, entry: LogEntry) -> Counts:
    sealed, state.sealed_at = state.sealed_at, None
    counts: Counts = real(state, number, entry)
    state.sealed_at = sealed or state.sealed_at
    return counts


@fault(
    "in-stream seals, 8.5, 8.9",
    "A migration's seal has no effect while a transaction is ongoing in the topic.",
    at=f"{_RULES}:fold",
    by="script instream_seal",
)
def migration_cuts_through_a_transaction(real: Real, state: TopicState, number: int, entry: LogEntry) -> Counts:
    found = entry.model_copy(update={"why": "terminate"}) if entry.kind is EntryKind.SEAL else entry
    counts: Counts = real(state, number, found)
    return counts


@fault(
    "in-stream seals, 8.12",
    "A transaction that wrote above a seal does not commit, since its rows would be lost silently.",
    at=f"{_END}.sealing",
    within=f"{_STEPS}._check_seals",
    by="script instream_seal",
)
def commits_over_a_seal(real: Real, *rest: Any) -> dict[PersistentName, bool]:
    return {}


# --- what readers see ---------------------------------------------------------------------------------------------


@fault(
    "in-stream reading, 8.4",
    "Rows of a transaction that an abort marker ended are filtered.",
    at=f"{_RULES}:_end",
    by="script instream_acks_with_rows",
)
def aborted_rows_are_shown(real: Real, state: TopicState, number: int, txn: str, *, committed: bool) -> Any:
    return real(state, number, txn, committed=True)


@fault(
    "in-stream reading, 8.6",
    "maxReadPosition lies before the first entry of the first ongoing transaction.",
    at=f"{_RULES}:max_read",
    by="script instream_backup",
)
def max_read_at_the_first_ongoing(real: Real, state: TopicState, end: int) -> int:
    first = first_ongoing(state)
    return end if first is None else min(first, end)


class _Earlier:
    """A view that reads the given keys when it is created. Later it returns the records that it read then."""

    def __init__(self, view: View, *keys: Key) -> None:
        self._view, self._read = view, dict(zip(keys, view.get_many(keys), strict=True))

    def get(self, key: Key) -> Record | None:
        return self._read[key] if key in self._read else self._view.get(key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


@fault(
    "in-stream property, 8.4",
    "A reader lists the log before it reads the system property.",
    at=f"{_BUFFER}._open",
    by="script instream_property",
)
def property_read_before_the_list(real: Real, self: Any, view: View, name: PersistentName, known: Any) -> Any:
    return real(self, _Earlier(view, paths.topic(name)), name, known)


@fault(
    "in-stream reading, 8.4",
    "Two threads of a process never replay a topic's log at the same time, since both change the same state.",
    at=f"{_BUFFER}._of",
    by="seed 25",
)
def buffer_without_its_lock(real: Real, self: Any, name: PersistentName) -> Any:
    known = real(self, name)
    known.lock = nullcontext()
    return known


@fault(
    "in-stream log, 8.1, 8.4",
    "Two threads never fold a coordinator's or a subscription's log at the same time, since both change the same state.",
    at=f"{_REPLAY}._read",
    by="tests/metadata/instream/test_replaying.py::test_a_reader_during_another_threads_fold_waits_and_does_not_fold_again",
)
def replay_without_its_lock(real: Real, self: Any, view: View) -> Any:
    self.lock = nullcontext()
    return real(self, view)


# --- snapshots, trimming ------------------------------------------------------------------------------------------


@fault(
    "in-stream snapshots, 8.6",
    "A snapshot names the maxReadPosition up to which its state was folded. Recovery replays the entries above it.",
    at=f"{_BUFFER}._decided",
    by="script instream_snapshot",
)
def snapshot_newer_than_its_data(real: Real, known: Any) -> tuple[TopicState, dict[str, int]]:
    base, aborted = real(known)
    base.at = known.tip.at
    return base, aborted


@fault(
    "in-stream snapshots, 8.4",
    "An aborted transaction stays in the list of aborted ones until all of its data is trimmed. The data lies below its marker.",
    at=f"{_RULES}:trimmed",
    by="script instream_trimming",
)
def aborted_list_trimmed_early(real: Real, state: TopicState, to: int) -> Any:
    if to:
        state.aborted.clear()
    return real(state, to)


@fault(
    "in-stream trimming, 8.5",
    "Entries above the newest snapshot stay in the log, since recovery still replays them.",
    at="metadata.instream.trimming:_replayable",
    by="script instream_trimming",
)
def trimmed_above_the_snapshot(real: Real, layout: PersistentLayout, to: int) -> bool:
    return layout.contains_txn is False or layout.snapshot is not None


# --- the transaction log ------------------------------------------------------------------------------------------


@fault(
    "in-stream log, 8.1, A6",
    "The first allowed transition in log order takes effect, whichever process appended it.",
    at=f"{_TXN}:can_follow",
    by="script instream_compaction",
)
def second_transition_wins(real: Real, before: TxnState, after: TxnState) -> bool:
    return after is TxnState.COMMITTING or real(before, after)


@fault(
    "in-stream log, 8.8",
    "COMMITTING is void if the application has committed this version in another transaction.",
    at=f"{_TXN}:overtaken",
    within=f"{_TXN}:_status",
    by="script instream_exactly_once",
)
def version_token_not_checked(real: Real, *rest: Any) -> bool:
    return False


@fault(
    "in-stream compaction, 8.8",
    "If compaction removes a transaction, it keeps the version that the transaction committed for its application.",
    at=f"{_TXN}:compacted",
    by="script instream_backup",
)
def compaction_forgets_versions(real: Real, *rest: Any) -> TxnLogSnapshot:
    kept: TxnLogSnapshot = real(*rest)
    there = {txn.least for txn in kept.txns}
    return kept.model_copy(update={"apps": {name: found for name, found in kept.apps.items() if found.txn in there}})


@fault(
    "in-stream compaction, 8.2",
    "Compaction keeps every transaction that is not final, however old it is.",
    at=f"{_TXN}:compacted",
    by="script instream_compaction",
)
def compaction_forgets_the_undecided(real: Real, *rest: Any) -> TxnLogSnapshot:
    kept: TxnLogSnapshot = real(*rest)
    return kept.model_copy(update={"txns": tuple(txn for txn in kept.txns if txn.state in FINAL)})


# --- kinds of topics, acknowledgements ----------------------------------------------------------------------------


@fault(
    "in-stream kinds",
    "A transaction over topics of both transaction models fails before it writes anything.",
    at="metadata.instream.coordinator:_persistent",
    by="script instream_both_kinds",
)
def one_transaction_over_both_kinds(real: Real, name: str) -> PersistentName:
    found: PersistentName = real(name if name.startswith("persistent://") else "persistent://public/default/a")
    return found


@fault(
    "in-stream acks, 8.11",
    "An acknowledgement in a transaction that has ended has no effect.",
    at=f"{_RULES}:has_ended",
    within=f"{_ACKS}:fold",
    by="script instream_acks",
)
def ack_after_the_end(real: Real, *rest: Any) -> bool:
    return False
