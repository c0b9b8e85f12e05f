"""Faults of the process that owns a transaction: opening, registering, deciding, aborting (protocol.md section 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.mutants.planting import Real, fault
from metadata.client.client import Client
from metadata.common.errors import TxnConflict
from metadata.log.live_log import Entry, Listing, LiveLog
from metadata.records import paths
from metadata.records.paths import Key
from metadata.records.records import Application, Header, Layout, Registration, State
from metadata.rules.transitions import Claim, Gone, Opening
from metadata.store.contract import ABSENT, ANY, MetadataStore, Record, View
from metadata.write.coordinator import Coordinator
from metadata.write.opening import Opener
from metadata.write.write_set import Committed, WriteSet
from spark_txn_sink.planned import WritePlan
from spark_txn_sink.staging import Staged

_OPENING = "metadata.rules.transitions:opening"
_END = "metadata.rules.transitions:end"
_RESOLVE = "metadata.rules.transitions:resolve"
_COORDINATOR = "metadata.write.coordinator:Coordinator"
_OPENER = "metadata.write.opening:Opener"
_PUT = "metadata.store.contract:MetadataStore.put"
_NEW_PUT = "metadata.store.contract:Put.__new__"


@fault(
    "A6, 8.1",
    "A header is decided by CAS. If a commit and an abort run at the same time, exactly one succeeds.",
    at=_PUT,
    within="metadata.log.ending:end",
    by="script a06_two_coordinators_commit_all_or_nothing",
)
def header_cas_ignores_the_version(
    real: Real, self: MetadataStore, key: Key, value: bytes, *, expect: Record | int | None, **options: Any
) -> Any:
    return real(self, key, value, **options)


@fault("8.1", "A header that is COMMITTED or ABORTED never changes again.", at=_END, by="script a01_late_commit_hits_no_successor")
def terminal_is_not_terminal(real: Real, header: Header, decision: State, **options: Any) -> Any:
    other = header.state not in (State.OPEN, decision)
    return real(header.model_copy(update={"state": State.OPEN}) if other else header, decision, **options)


@fault(
    "8.2", "Ending a transaction again in the same way succeeds.", at=_END, by="script a06_two_coordinators_commit_all_or_nothing"
)
def ending_twice_is_an_error(real: Real, header: Header, decision: State, **options: Any) -> Any:
    if header.state is decision:
        raise TxnConflict("The transaction has ended.")
    return real(header, decision, **options)


@fault(
    "A1, 8.3",
    "Blocks of transaction ids are allocated by CAS, so no id is used twice.",
    at=_PUT,
    within="metadata.write.txn_ids:TxnIds._take",
    kind="wide",
    by="seed 1196",
)
def txn_ids_used_twice(
    real: Real, self: MetadataStore, key: Key, value: bytes, *, expect: Record | int | None, **options: Any
) -> Any:
    return real(self, key, value, **options)


# --- opening a version of an application ---------------------------------------------------------------------------


@fault(
    "model abort-predecessor, 8.8",
    "A new attempt aborts an OPEN predecessor before it opens its own transaction.",
    at=_OPENING,
    by="script a01_late_commit_hits_no_successor",
)
def abort_predecessor(real: Real, app: Application, claim: Claim, predecessor: Header | Gone) -> Any:
    what, after = real(app, claim, predecessor)
    return (Opening.OPEN if what is Opening.ABORT_PREDECESSOR else what), after


@fault(
    "A6, 8.8",
    "A new attempt takes over the application record by CAS. If two drivers try at the same time, one succeeds.",
    at=_NEW_PUT,
    within=f"{_OPENER}._begin",
    by="script a16_replayed_micro_batch_commits_once",
)
def application_without_cas(real: Real, _cls: type, key: Key, value: bytes, expect: Record | int | None, *options: Any) -> Any:
    return real(_cls, key, value, ANY if key.path.startswith("/txn/app/") else expect, *options)


@fault(
    "A16, 8.8", "A version that is already committed is skipped.", at=_OPENING, by="script a16_replayed_micro_batch_commits_once"
)
def replay_commits_again(real: Real, app: Application, claim: Claim, predecessor: Header | Gone) -> Any:
    what, after = real(app, claim, predecessor)
    return (Opening.OPEN if what is Opening.SKIP else what), after


@fault(
    "A20",
    "A version at or below the last one is an error if another query committed it. If it were skipped, its rows would be lost.",
    at="metadata.rules.transitions:_same",
    by="script a20_token_too_low_is_an_error",
)
def low_version_is_dropped(real: Real, claim: Claim, by: str | None) -> bool:
    return True


@fault(
    "A17, 8.8",
    "Only a COMMITTED predecessor raises lastCommitted. A version that was aborted is written again.",
    at=_OPENING,
    by="script a17_failed_batch_is_never_skipped",
)
def failed_batch_is_skipped(real: Real, app: Application, claim: Claim, predecessor: Header | Gone) -> Any:
    if isinstance(predecessor, Header) and predecessor.state is State.ABORTED:
        predecessor = predecessor.model_copy(update={"state": State.COMMITTED})
    return real(app, claim, predecessor)


@fault(
    "A34",
    "An empty batch raises lastCommitted by a CAS of the application record, so that a zombie cannot commit the version.",
    at=f"{_OPENER}._commit_empty",
    by="script a34_empty_batch_fences_zombies",
)
def empty_batch_fences_nobody(real: Real, self: Opener, work: WriteSet, app: Application, record: Record | None) -> Any:
    return Committed(None, None, 0, 0)


@fault(
    "A36",
    "A late abort ends only the transaction of its own attempt.",
    at="metadata.rules.transitions:may_abort",
    by="script a36_late_abort_ends_no_successor",
)
def late_abort_ends_the_successor(real: Real, header: Header, claim: Claim) -> Any:
    return real(header, dataclasses.replace(claim, attempt=header.attempt or claim.attempt))


@fault(
    "A18, 8.5",
    "An abort after a commit with unknown outcome deletes no file, since the files may be committed.",
    at="spark_txn_sink.commit:abort",
    kind="wide",
    by="seed 1097",
)
def abort_deletes_files(real: Real, client: Client, plan: WritePlan, identity: Any, messages: Sequence[Staged | None]) -> Any:
    if all(messages):
        for message in messages:
            for _, part in message.parts if message is not None else ():
                client.cluster.storage.delete(part.path)
    return real(client, plan, identity, messages)


# --- registering, checking, deciding --------------------------------------------------------------------------------


@fault(
    "5, 8.5",
    "If the reply to the deciding CAS is lost, the owner reads the header. It does not assume success.",
    at="metadata.log.ending:end",
    within=f"{_COORDINATOR}._decide",
    by="script a01_late_commit_hits_no_successor",
)
def lost_reply_is_success(real: Real, store: MetadataStore, record: Record, decision: State, **options: Any) -> Any:
    return real(store, record, decision, **options) or Header.of(record)


def _any_number(real: Real, number: int, registration: Registration, header: Header | Gone, *, reread: bool) -> Any:
    if isinstance(header, Header) and header.state is State.COMMITTED:
        header = header.model_copy(update={"commit": number})
    return real(number, registration, header, reread=reread)


@fault(
    "model one-registration, A25, 8.9",
    "One record registers all segments of a transaction, so that no prefix of the log contains a part of a transaction.",
    at=f"{_COORDINATOR}._register",
    also={_RESOLVE: _any_number},
    by="script a25_crossing_order_moves_every_reader",
)
def one_registration(real: Real, self: Coordinator, opened: Any, work: WriteSet) -> Any:
    for segment, parts in work.parts.items():
        entry = real(self, opened, dataclasses.replace(work, parts={segment: parts}))
    return entry


@fault(
    "model atomic-append, 8.7, sequence as counter then record",
    "A registration gets its number and its record in one atomic step. A reader that sees n+1 also sees n.",
    at="metadata.store.contract:MetadataStore.append",
    within=f"{_COORDINATOR}._register",
    by="script a01_late_commit_hits_no_successor",
)
def atomic_append(real: Real, self: MetadataStore, prefix: paths.Prefix, value: bytes, **options: Any) -> Any:
    taken = real(self, paths.Prefix("/taken/number", ""), value, **options)
    return self.put(prefix.key(taken.number), value, expect=ABSENT)


@fault(
    "model named-by-header, A26",
    "Only the registration that the deciding CAS names counts. A second registration, made after a lost reply, is void.",
    at=_RESOLVE,
    by="script a26_lost_append_registers_once",
)
def named_by_header(real: Real, number: int, registration: Registration, header: Header | Gone, *, reread: bool) -> Any:
    return _any_number(real, number, registration, header, reread=reread)


@fault(
    "model seal-check, 8.12",
    "The owner checks for a seal below its registration before it decides.",
    at=f"{_COORDINATOR}._sealed_below",
    by="script a24_a_seal_stalls_nobody",
)
def seal_check(real: Real, self: Coordinator, entry: Entry, work: WriteSet) -> list[str]:
    real(self, entry, work)
    return []


@fault(
    "A24, 8.12",
    "A seal above a registration does not prevent its commit. Only a seal below the registration does.",
    at="metadata.rules.transitions:sealed_at",
    within=f"{_COORDINATOR}._sealed_below",
    by="script check_finds_a_seal",
)
def seal_above_refuses(
    real: Real, segment_id: int, segment: str, layout: Layout, log_seals: Mapping[int, Registration]
) -> int | None:
    return None if real(segment_id, segment, layout, log_seals) is None else 0


@fault(
    "8.12",
    "The owner checks each of its segments for a seal.",
    at=f"{_COORDINATOR}._sealed_below",
    kind="splitting",
    by="seed 12",
)
def one_segment_is_checked(real: Real, self: Coordinator, entry: Entry, work: WriteSet) -> Any:
    return real(self, entry, dataclasses.replace(work, parts=dict(list(work.parts.items())[:1])))


@fault(
    "seals looked up after the layout, 8.12",
    "Seals are read from the log first and from the layout second, since a seal leaves the log only after the layout shows it.",
    at="metadata.log.live_log:LiveLog.list",
    within=f"{_COORDINATOR}._sealed_below",
    by="script a30_one_decision_one_session",
)
def layouts_before_seals(real: Real, self: LiveLog, view: View, *, again: Any, then: Sequence[Key]) -> Listing:
    also = view.get_many(then)
    listing: Listing = real(self, view, again=again)
    return listing._replace(also=also)


@fault(
    "A12, time in the wrong unit",
    "The allowance of deadlines is in milliseconds, as the deadlines are.",
    at="metadata.rules.transitions:expired",
    by="script a12_times_have_one_unit",
)
def allowance_in_seconds(real: Real, header: Header, now_ms: int, allowance_ms: int) -> Any:
    return real(header, now_ms, allowance_ms // 1000)
