"""Every state transition and every visibility rule of the protocol. Pure: no I/O, no clock, no threads.

Each of these rules is only in this module. Callers read records, call a function of this module, and write its result by CAS.
Numbers in brackets are sections of protocol.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from metadata.common.errors import Fenced, RestoredBehind, TxnConflict, VersionConflict
from metadata.records.names import even_ranges
from metadata.records.records import (
    Application,
    Attempt,
    Header,
    Layout,
    Nanos,
    Range,
    Registration,
    SegmentInfo,
    SegmentState,
    Settled,
    State,
)

# --- the header (8.1, 8.2) ----------------------------------------------------------------------------------------

HEADER_TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.OPEN: frozenset({State.COMMITTED, State.ABORTED}),
    State.COMMITTED: frozenset(),
    State.ABORTED: frozenset(),
}
"""The states to which the header of each state can change. COMMITTED and ABORTED are final."""


def end(header: Header, decision: State, *, now_ms: int, commit: int | None = None) -> Header | None:
    """Return the header after the transaction has ended with `decision`, COMMITTED or ABORTED. The caller writes it by CAS. Return
    None if the transaction has ended with `decision` already.

    `commit`: the number of the registration that the transaction commits (None for a transaction without rows). Raises TxnConflict
    if the transaction has ended with the other state, or has committed another registration.
    """
    if decision in HEADER_TRANSITIONS[header.state]:
        update = {"state": decision, "finalized_at": Nanos(now_ms * 1_000_000)}
        return header.model_copy(update=update | ({"commit": commit} if decision is State.COMMITTED else {}))
    if header.state is not decision or (decision is State.COMMITTED and header.commit != commit):
        raise TxnConflict(
            f"The transaction is {header.state} and cannot become {decision}.",
            advice="All of its rows are visible. A commit cannot be undone."
            if header.state is State.COMMITTED
            else "A newer attempt, an operator or its timeout ended it; none of its rows are visible.",
        )
    return None


def expired(header: Header, now_ms: int, allowance_ms: int) -> bool:
    """Return whether any process may abort this transaction: it is OPEN, and its deadline and the allowance have passed."""
    return header.state is State.OPEN and now_ms > header.deadline_ms + allowance_ms


# --- opening a version of an application (5) ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim:
    """One attempt to write the version `version`. `by`: the id of the query that writes (None: a batch write outside of streams).

    `attempt`: the id of the attempt. `replays`: the writer is a stream, which replays only its last batch. `accepts_loss`: the
    write continues even if a restore lost versions.
    """

    version: int
    by: str | None
    attempt: str
    replays: bool
    accepts_loss: bool = False


class Opening(Enum):
    """The next step of an attempt to write a version. The function `opening` returns it, from the application record and the header
    of the record's current attempt.
    """

    SKIP = auto()
    """Write nothing and report success, because the version is already committed."""
    READ_PREDECESSOR = auto()
    """Read the header of `current` and call `opening` again."""
    ABORT_PREDECESSOR = auto()
    """CAS the header of `current` to ABORTED and call `opening` again."""
    OPEN = auto()
    """Create a header and CAS the application record to it."""


class Gone(Enum):
    """A value in place of a header. GONE: the header does not exist. UNREAD: it has not been read yet."""

    GONE = auto()
    UNREAD = auto()


def raised(app: Application) -> Application:
    """Return the application record after `current` has committed. The record then has the version of `current` as
    `last_committed`, and the query of `current` as `by`.
    """
    assert app.current is not None
    return app.model_copy(update={"last_committed": app.current.version, "by": app.current.by, "restored": None})


def opening(app: Application, claim: Claim, predecessor: Header | Gone) -> tuple[Opening, Application]:
    """Return the next step of the attempt `claim`, and the application record. If `current` has committed, the returned record has
    this commit as its last one (`raised`).

    `predecessor`: the header of `app.current`. Raises VersionConflict, RestoredBehind or Fenced if a write of this version could
    lose or duplicate rows.
    """
    pending = app.current is not None and app.current.version > app.last_committed
    if pending:  # Even if the version is already committed, `current` may have committed a higher version since then (A20).
        assert app.current is not None
        if predecessor is Gone.UNREAD:
            return Opening.READ_PREDECESSOR, app
        if isinstance(predecessor, Header):
            if predecessor.state is State.COMMITTED:
                return opening(raised(app), claim, Gone.GONE)
            if predecessor.state is State.OPEN and claim.version > app.last_committed:
                if app.current.version > claim.version:
                    raise Fenced(
                        f"Version {app.current.version} is being written by transaction {app.current.txn_id}; "
                        f"version {claim.version} comes too late.",
                        advice="Another driver runs this application with later versions. Stop one of the two.",
                    )
                return Opening.ABORT_PREDECESSOR, app
    if app.restored and claim.replays and claim.version > app.last_committed + 1 and not claim.accepts_loss:
        known = f"only those up to {app.last_committed}" if app.last_committed >= 0 else "none"
        raise RestoredBehind(
            f"This is version {claim.version}{_of(claim.by)}, but the cluster was restored from a backup that knows {known}: "
            "versions in between may have committed after the backup, and are lost.",
            advice="Write their rows again by other means and set afterRestore=continue, or use a new checkpoint.",
        )
    if claim.version > app.last_committed:
        return Opening.OPEN, app
    if claim.version == app.last_committed and _same(claim, app.by):
        return Opening.SKIP, app
    raise VersionConflict(
        f"Version {claim.version}{_of(claim.by)} is not above {app.last_committed}{_of(app.by)}, which is committed.",
        advice="A new checkpoint uses an old txnAppId, or the txnVersion is too low: the rows would be lost silently. "
        "Use a new txnAppId, or a version above the last one.",
    )


def _same(claim: Claim, by: str | None) -> bool:
    """Return whether a claim for the last committed version is a repetition of that commit. `by`: the query that committed the
    version. A claim of the same query is a repetition. A claim of a batch write is also one if the claim or the record names no
    query: a batch write outside of `foreachBatch` has no query, and older versions of txnsegment did not record the query.
    """
    return claim.by == by or (not claim.replays and (claim.by is None or by is None))


def _of(query: str | None) -> str:
    return "" if query is None else f" of query {query}"


def opened(app: Application, claim: Claim, txn_id: str) -> Application:
    """Return the application record with `txn_id` as the current attempt at the claim's version."""
    return app.model_copy(update={"current": Attempt(version=claim.version, txn_id=txn_id, by=claim.by)})


def committed_empty(app: Application, claim: Claim) -> Application:
    """Return the application record with which a CAS commits a write without rows. Its `last_committed` is the claim's version.
    Later attempts at this version then commit nothing (failure A34, protocol.md section 9).

    `current` is removed. Otherwise the owner of an earlier attempt, whose aborted header has expired, would take this commit for a
    commit of its own attempt (`metadata.write.outcome`). `restored` is removed, because the record has the last committed version
    again.
    """
    update = {"last_committed": claim.version, "by": claim.by, "current": None, "restored": None}
    return app.model_copy(update=update)


def may_abort(header: Header, claim: Claim) -> bool:
    """Return whether a late `abort` call of Spark may abort this header. It may if the header is OPEN and has the version and the
    attempt of the claim (A36).
    """
    return header.state is State.OPEN and header.version == claim.version and header.attempt == claim.attempt


# --- which registrations count (6) --------------------------------------------------------------------------------


class Verdict(Enum):
    """The visibility of a registration for readers."""

    VISIBLE = auto()
    FILTERED = auto()
    UNDECIDED = auto()
    READ_AGAIN = auto()
    """The header is gone. The caller must read the registration again and call `resolve` with `reread=True`. If the registration is
    gone, too, the caller must start the read over.
    """


def resolve(number: int, registration: Registration, header: Header | Gone, *, reread: bool = False) -> Verdict:
    """Return the visibility of a registration by the table of section 6. Seals that lie below the registration are not taken into
    account. The caller must read `header` after the registration. `reread`: the registration was read again after its header was
    found gone. If it is still not settled, it did not commit: a committed header expires only after its registration is settled.
    """
    if registration.seal is not None or registration.state is Settled.VOID:
        return Verdict.FILTERED
    if registration.state is Settled.COMMITTED or registration.txn is None:
        return Verdict.VISIBLE
    if not isinstance(header, Header):
        return Verdict.FILTERED if reread else Verdict.READ_AGAIN
    if header.state is State.OPEN:
        return Verdict.UNDECIDED
    return Verdict.VISIBLE if header.state is State.COMMITTED and header.commit == number else Verdict.FILTERED


def settled(verdict: Verdict) -> Settled:
    """Return the state that a sweep writes into a decided registration (7)."""
    return Settled.COMMITTED if verdict is Verdict.VISIBLE else Settled.VOID


# --- seals (5, Sealing) -------------------------------------------------------------------------------------------


def seal_counts(number: int, seal: Registration, layout: Layout | None, log_seals: Mapping[int, Registration]) -> bool:
    """Return whether a seal counts. A seal counts if a segment of the layout has the seal's number as `sealed_at_log`. A seal also
    counts if the layout still has the seal's epoch and no lower seal in the log has this topic and epoch. Any other seal is void.
    """
    if layout is None:
        return False
    if any(info.sealed_at_log == number for info in layout.segments.values()):
        return True
    return layout.epoch == seal.epoch and not any(
        n < number and s.topic == seal.topic and s.epoch == seal.epoch for n, s in log_seals.items()
    )


def unfinished(number: int, seal: Registration, layout: Layout | None, log_seals: Mapping[int, Registration]) -> bool:
    """Return whether a seal counts but the layout does not show it yet. A process that finds such a seal finishes it."""
    return seal_counts(number, seal, layout, log_seals) and layout is not None and layout.epoch == seal.epoch


def finishable(seal: Registration) -> bool:
    """Return whether this version of txnsegment knows the kind of the seal and can finish it. A seal of an unknown kind stays in
    the log, and it also ends its segments for writers and readers.
    """
    children = seal.children or ()
    expected = {"delete": (0, None), "split": (2, 1), "merge": (1, 2), "migrate": (len(children) or None, 1)}.get(seal.why or "")
    return expected is not None and len(children) == expected[0] and expected[1] in (None, len(seal.seal or ()))


def sealed_at(segment_id: int, segment: str, layout: Layout, log_seals: Mapping[int, Registration]) -> int | None:
    """Return the number of the seal that ended this segment, or None. The caller must read the log before the layout."""
    info = layout.segments.get(str(segment_id))
    if info is not None and info.state is SegmentState.SEALED:
        return info.sealed_at_log
    for number, seal in sorted(log_seals.items()):
        if seal.seal is not None and segment in seal.seal and seal_counts(number, seal, layout, log_seals):
            return number
    return None


def void_by_seal(number: int, sealed: int | None) -> bool:
    """Return whether the registration `number` is void in a segment, because it lies above the segment's seal. `sealed`: the number
    of the seal, or None if the segment has none.
    """
    return sealed is not None and number > sealed


def sealed_layout(layout: Layout, number: int, seal: Registration, *, now_ms: int) -> Layout:
    """Return the layout after the seal `number`. The sealed segments are SEALED, the children are ACTIVE, and the epoch is higher
    by 1. After a `delete` the layout is a tombstone without active segments.
    """
    epoch = layout.epoch + 1
    tails = {_tail(name) for name in seal.seal or ()}
    sealed = {key for key, info in layout.segments.items() if _named(key, info) in tails}
    children = tuple(seal.children or ())
    shown = {"state": SegmentState.SEALED, "sealed_at_epoch": epoch, "sealed_at_ms": now_ms, "sealed_at_log": number}
    segments = {
        key: info.model_copy(update=shown | {"child_ids": children}) if key in sealed else info
        for key, info in layout.segments.items()
    }
    if seal.why == "delete":
        taken = {
            key: info if info.deleted_at_log is not None else info.model_copy(update={"deleted_at_log": number})
            for key, info in segments.items()
        }
        return layout.model_copy(update={"epoch": epoch, "segments": taken, "deleted": True})
    parents = sorted((segments[key] for key in sealed), key=lambda info: info.hash_range.start)
    ranges = child_ranges([info.hash_range for info in parents], None if seal.why != "migrate" else len(children))
    for child, found in zip(children, ranges, strict=True):
        segments[str(child)] = SegmentInfo(
            segment_id=child,
            hash_range=found,
            state=SegmentState.ACTIVE,
            parent_ids=tuple(info.segment_id for info in parents),
            created_at_epoch=epoch,
            created_at_ms=now_ms,
        )
    following = max(layout.next_segment_id, *(child + 1 for child in children))
    return layout.model_copy(update={"epoch": epoch, "segments": segments, "next_segment_id": following})


def _named(key: str, info: SegmentInfo) -> str:
    """Return the part of a segment's full name that identifies it within its topic: the segment id, or for a migrated segment the
    name of its persistent topic.
    """
    return info.legacy_topic_name or key


def _tail(name: str) -> str:
    return name if name.startswith("persistent://") else name.rsplit("-", 1)[1]


def child_ranges(parents: Sequence[Range], tiles: int | None = None) -> tuple[Range, ...]:
    """Return the ranges of the children of sealed segments. A single range is halved (split). Two neighbours are joined (merge).
    With `tiles` the whole ring is divided evenly into `tiles` ranges (migrate).

    Raises ValueError for a single range of one key hash, and for ranges that are not neighbours.
    """
    if tiles is not None:
        return tuple(Range(start=start, end=end) for start, end in even_ranges(tiles))
    match parents:
        case [one] if one.end > one.start:
            middle = one.start + (one.end - one.start) // 2
            return Range(start=one.start, end=middle), Range(start=middle + 1, end=one.end)
        case [left, right] if left.end + 1 == right.start:
            return (Range(start=left.start, end=right.end),)
    raise ValueError(f"{', '.join(f'{r.start:04x}-{r.end:04x}' for r in parents)} can be neither halved nor joined")


def without_gone(layout: Layout, *, now_ms: int, grace_ms: int) -> Layout:
    """Return the layout without the segments that a deletion of the topic removed longer ago than the grace period. The layout
    keeps the highest number of the seals of these deletions in `deleted_to_log`, for later checks of data loss.
    """
    gone = layout.gone()
    if not gone:
        return layout
    over = {info.deleted_at_log for info in gone} - {info.deleted_at_log for info in in_grace(layout, now_ms, grace_ms)}
    if not over:
        return layout
    numbers = [n for n in (*over, layout.deleted_to_log) if n is not None]
    segments = {k: i for k, i in layout.segments.items() if i.deleted_at_log is None or i.deleted_at_log not in over}
    return layout.model_copy(update={"segments": segments, "deleted_to_log": max(numbers)})


def in_grace(layout: Layout, now_ms: int, grace_ms: int) -> list[SegmentInfo]:
    """Return the segments that a deletion of the topic removed less than the grace period ago. The period begins at the time when
    the last segment of that deletion was sealed.
    """
    gone = layout.gone()
    deleted_ms: dict[int | None, int] = {}
    for info in gone:
        deleted_ms[info.deleted_at_log] = max(info.sealed_at_ms, deleted_ms.get(info.deleted_at_log, 0))
    return [info for info in gone if deleted_ms[info.deleted_at_log] + grace_ms >= now_ms]


# --- the cut and the end of a micro-batch (6) ---------------------------------------------------------------------


def cut(undecided: Iterable[int], end_of_log: int) -> int:
    """Return the number up to which all registrations of a read are decided. It is the number before the first undecided
    registration, or the end of the listed log if there is none.
    """
    first = min(undecided, default=None)
    return end_of_log if first is None else min(first - 1, end_of_log)


@dataclass(frozen=True, slots=True)
class Weight:
    """The rows and bytes of one visible registration, summed over the segments of a read."""

    number: int
    rows: int
    bytes: int


def limited(
    weights: Iterable[Weight], end: int, *, max_rows: int | None = None, max_bytes: int | None = None, seals: Collection[int] = ()
) -> int:
    """Return the end of a micro-batch, at most `end`. A micro-batch has whole transactions within the limits. It has at least one
    transaction, so that a stream always advances. It never goes beyond the first of `seals`, so that no micro-batch has rows of a
    segment and of its child.

    `weights`: the visible registrations after the start, ascending. They are read only as far as needed. `seals`: the numbers of
    the seals of this read's segments after the start.
    """
    end = min([end, *seals])
    if max_rows is None and max_bytes is None:
        return end
    rows = size = 0
    last = None
    for weight in weights:
        if weight.number > end:
            break
        rows += weight.rows
        size += weight.bytes
        over = (max_rows is not None and rows > max_rows) or (max_bytes is not None and size > max_bytes)
        if over and last is not None:
            return last
        last = weight.number
        if over:
            return last
    return end


# --- folding (7) --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fold:
    """The result of folding one segment. `committed`: the ids of the ledgers that the segment's index snapshot gains. `through`:
    the segment's new watermark.
    """

    committed: tuple[int, ...]
    through: int


def fold(segment: str, watermark: int, log: Sequence[tuple[int, Registration]], sealed: int | None) -> Fold | None:
    """Return the result of folding `segment` from its watermark up to its first unsettled registration. Return None if the
    watermark does not move.

    `log`: the live log, ascending. `sealed`: the number of the segment's seal, if it has one. Registrations above this number are
    void. A registration without a transaction counts as settled. A seal of the segment moves the watermark and adds no ledger.
    """
    committed: list[int] = []
    through = watermark
    for number, registration in log:
        if number <= watermark:
            continue
        if registration.seal is not None:
            if segment in registration.seal:
                through = number
            continue
        if segment not in registration.segments:
            continue
        if registration.txn is not None and registration.state is None:
            break
        through = number
        if registration.state is not Settled.VOID and not void_by_seal(number, sealed):
            committed.append(number)
    return Fold(tuple(committed), through) if through > watermark else None


def may_drop(
    number: int,
    registration: Registration,
    watermarks: Mapping[str, int | None],
    end_of_log: int,
    *,
    seal_shown: bool,
) -> bool:
    """Return whether a registration may leave the log. It must be settled, folded in all its segments, and not the newest entry of
    the log. A seal may leave only after the layout shows it. An unsettled registration stays even if all its segments are gone,
    because its owner may still decide it.

    `watermarks`: the watermark of each segment of the registration; None for a segment that the layout no longer has.
    """
    if number >= end_of_log or (registration.seal is not None and not seal_shown):
        return False
    if registration.txn is not None and registration.state is None:
        return False
    return all(mark is None or mark >= number for mark in watermarks.values())
