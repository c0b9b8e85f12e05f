"""The transition rules, as tables of cases (protocol.md sections 5 to 7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.common.errors import Fenced, TxnConflict, VersionConflict
from metadata.records.names import HashRange
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
    SegmentWrite,
    Settled,
    State,
)
from metadata.rules import timestamps, transitions
from metadata.rules.transitions import Claim, Gone, Opening, Verdict, Weight

SECOND = 1_000_000_000


def header(state: State = State.OPEN, *, commit: int | None = None, version: int = 1, attempt: str = "a") -> Header:
    return Header(
        state=state, timeout=Nanos(30 * SECOND), created_at=Nanos(1_000 * SECOND), version=version, attempt=attempt, commit=commit
    )


def registration(*segments: str, txn: str | None = "0_1", state: Settled | None = None) -> Registration:
    writes = {s: SegmentWrite(rows=1, bytes=1, entries=1) for s in segments}
    return Registration(txn=txn, state=state, publish_ms=1, segments=writes)


def seal(*segments: str, epoch: int = 0, topic: str = "topic://p/d/t") -> Registration:
    return Registration(publish_ms=1, seal=segments, topic=topic, why="delete", epoch=epoch, children=())


# --- the header ---------------------------------------------------------------------------------------------------


def test_an_open_header_ends_once() -> None:
    committed = transitions.end(header(), State.COMMITTED, now_ms=5, commit=7)
    assert committed is not None
    assert (committed.state, committed.commit, committed.finalized_at) == (State.COMMITTED, 7, 5_000_000)
    aborted = transitions.end(header(), State.ABORTED, now_ms=5)
    assert aborted is not None
    assert (aborted.state, aborted.commit) == (State.ABORTED, None)


@pytest.mark.parametrize(
    ("was", "was_commit", "want", "commit", "again"),
    [
        (State.COMMITTED, 7, State.COMMITTED, 7, True),
        (State.COMMITTED, 7, State.COMMITTED, 8, False),
        (State.COMMITTED, 7, State.ABORTED, None, False),
        (State.ABORTED, None, State.ABORTED, None, True),
        (State.ABORTED, None, State.COMMITTED, 7, False),
    ],
)
def test_terminal_is_terminal(was: State, was_commit: int | None, want: State, commit: int | None, again: bool) -> None:
    if again:
        assert transitions.end(header(was, commit=was_commit), want, now_ms=9, commit=commit) is None
    else:
        with pytest.raises(TxnConflict):
            transitions.end(header(was, commit=was_commit), want, now_ms=9, commit=commit)


def test_deadlines_are_in_milliseconds_with_the_allowance() -> None:
    """A transaction is created at 1000 s with a timeout of 30 s. It counts as expired only after the deadline and the allowance.
    Guards against failure A12 (protocol.md section 9).
    """
    assert header().deadline_ms == 1_030_000
    assert not transitions.expired(header(), 1_030_000 + 5_000, 5_000)
    assert transitions.expired(header(), 1_030_000 + 5_001, 5_000)
    assert not transitions.expired(header(State.COMMITTED, commit=1), 9_999_999, 0)


# --- opening ------------------------------------------------------------------------------------------------------

STREAM = Claim(7, "q", "a", True)
BATCH = Claim(7, None, "a", False)
FOREACH = Claim(7, "q", "a", False)
"""A batch write in the `foreachBatch` of query q."""


def app(last: int, current: int | None = None, by: str | None = "q") -> Application:
    attempt = None if current is None else Attempt(version=current, txn_id="0_9", by="q")
    return Application(last_committed=last, by=by, current=attempt)


@pytest.mark.parametrize(
    ("record", "claim", "predecessor", "what", "last"),
    [
        (app(-1), STREAM, Gone.UNREAD, Opening.OPEN, -1),
        (app(6), STREAM, Gone.UNREAD, Opening.OPEN, 6),
        (app(6, 6), STREAM, Gone.UNREAD, Opening.OPEN, 6),  # no attempt is undecided, so no header is read
        (app(7), STREAM, Gone.UNREAD, Opening.SKIP, 7),
        (app(7, 7), STREAM, Gone.UNREAD, Opening.SKIP, 7),
        (app(7, by="other"), BATCH, Gone.UNREAD, Opening.SKIP, 7),  # a batch write with the txnVersion of the last commit
        (app(7), FOREACH, Gone.UNREAD, Opening.SKIP, 7),
        # an older version of the product wrote this record, which names no query
        (app(7, by=None), FOREACH, Gone.UNREAD, Opening.SKIP, 7),
        (app(6, by="other"), FOREACH, Gone.UNREAD, Opening.OPEN, 6),
        (app(5, 7, by="other"), FOREACH, header(State.COMMITTED, commit=3), Opening.SKIP, 7),
        (app(6, 7), STREAM, Gone.UNREAD, Opening.READ_PREDECESSOR, 6),
        (app(6, 7), STREAM, header(version=7), Opening.ABORT_PREDECESSOR, 6),
        (app(5, 6), STREAM, header(version=6), Opening.ABORT_PREDECESSOR, 5),
        (app(6, 7), STREAM, header(State.COMMITTED, commit=3), Opening.SKIP, 7),
        (app(5, 6), STREAM, header(State.COMMITTED, commit=3), Opening.OPEN, 6),
        (app(6, 7), STREAM, header(State.ABORTED), Opening.OPEN, 6),
        (app(6, 9), STREAM, header(State.ABORTED), Opening.OPEN, 6),
        # The header of the earlier attempt is gone. If that attempt has committed, the CAS that opens the new attempt fails (step 4
        # of opening, protocol.md section 5).
        (app(6, 7), STREAM, Gone.GONE, Opening.OPEN, 6),
    ],
)
def test_opening_follows_its_table(record: Application, claim: Claim, predecessor: Header | Gone, what: Opening, last: int) -> None:
    answer, after = transitions.opening(record, claim, predecessor)
    assert (answer, after.last_committed) == (what, last)


@pytest.mark.parametrize(
    ("record", "claim", "predecessor"),
    [
        (app(8), STREAM, Gone.UNREAD),  # batch 7 is not the last committed batch of the query, which is 8
        (app(8), BATCH, Gone.UNREAD),
        (app(7, by="other"), STREAM, Gone.UNREAD),  # a new checkpoint is used with an old txnAppId
        (app(7, by="other"), FOREACH, Gone.UNREAD),  # a new checkpoint is used with an old txnAppId in foreachBatch
        (app(8), FOREACH, Gone.UNREAD),
        (app(7, by=None), STREAM, Gone.UNREAD),
        (app(6, 8), STREAM, header(State.COMMITTED, commit=3)),
        # the header shows that version 8 is committed, though the application record does not show this yet
        (app(7, 8), STREAM, header(State.COMMITTED, commit=3)),
    ],
)
def test_a_conflicting_version_is_an_error_and_is_not_skipped(
    record: Application, claim: Claim, predecessor: Header | Gone
) -> None:
    with pytest.raises(VersionConflict):
        transitions.opening(record, claim, predecessor)


def test_a_driver_further_on_is_not_aborted() -> None:
    with pytest.raises(Fenced):
        transitions.opening(app(6, 8), STREAM, header(version=8))


def test_an_empty_commit_clears_the_fields_current_and_restored() -> None:
    """A version is committed without rows. Then the application's record names no current attempt and is not marked as restored.
    Guards against failure A34 (protocol.md section 9).
    """
    before = app(5, 6, by="other").model_copy(update={"restored": True})
    after = transitions.committed_empty(before, STREAM)
    assert (after.last_committed, after.by, after.current, after.restored) == (7, "q", None, None)
    assert transitions.opening(after, STREAM, Gone.UNREAD) == (Opening.SKIP, after)


def test_raising_the_last_version_records_its_query() -> None:
    raised = transitions.raised(Application(last_committed=3, by="old", current=Attempt(version=5, txn_id="0_1", by="new")))
    assert (raised.last_committed, raised.by) == (5, "new")


@pytest.mark.parametrize(
    ("found", "may"),
    [
        (header(version=7, attempt="a"), True),
        (header(version=7, attempt="b"), False),
        (header(version=6, attempt="a"), False),
        (header(State.COMMITTED, version=7, attempt="a", commit=1), False),
        (header(State.ABORTED, version=7, attempt="a"), False),
    ],
)
def test_a_late_abort_ends_only_its_own_attempt(found: Header, may: bool) -> None:
    assert transitions.may_abort(found, STREAM) == may


# --- the visibility of registrations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "found", "reread", "verdict"),
    [
        (registration("a", txn=None), Gone.UNREAD, False, Verdict.VISIBLE),
        (registration("a", state=Settled.COMMITTED), Gone.UNREAD, False, Verdict.VISIBLE),
        (registration("a", state=Settled.VOID), Gone.UNREAD, False, Verdict.FILTERED),
        (registration("a", state=Settled.VOID), header(State.COMMITTED, commit=5), False, Verdict.FILTERED),
        (registration("a"), header(State.COMMITTED, commit=5), False, Verdict.VISIBLE),
        (registration("a"), header(State.COMMITTED, commit=4), False, Verdict.FILTERED),
        (registration("a"), header(State.COMMITTED), False, Verdict.FILTERED),
        (registration("a"), header(), False, Verdict.UNDECIDED),
        (registration("a"), header(State.ABORTED), False, Verdict.FILTERED),
        (registration("a"), Gone.GONE, False, Verdict.READ_AGAIN),
        (registration("a"), Gone.UNREAD, False, Verdict.READ_AGAIN),
        (registration("a"), Gone.GONE, True, Verdict.FILTERED),
        (registration("a", state=Settled.COMMITTED), Gone.GONE, True, Verdict.VISIBLE),
        (seal("a"), Gone.UNREAD, False, Verdict.FILTERED),
    ],
)
def test_resolving_follows_its_table(entry: Registration, found: Header | Gone, reread: bool, verdict: Verdict) -> None:
    assert transitions.resolve(5, entry, found, reread=reread) is verdict


def test_visible_settles_as_committed_and_filtered_as_void() -> None:
    assert transitions.settled(Verdict.VISIBLE) is Settled.COMMITTED
    assert transitions.settled(Verdict.FILTERED) is Settled.VOID


# --- seals --------------------------------------------------------------------------------------------------------


def layout(epoch: int = 0, sealed: int | None = None, ids: tuple[int, ...] = (0,)) -> Layout:
    state = SegmentState.ACTIVE if sealed is None else SegmentState.SEALED
    infos = {
        str(i): SegmentInfo(
            segment_id=i,
            hash_range=Range(start=0, end=0xFFFF),
            state=state,
            created_at_epoch=0,
            created_at_ms=0,
            sealed_at_log=sealed,
        )
        for i in ids
    }
    return Layout(epoch=epoch, next_segment_id=9, segments=infos)


SEGMENT = "segment://p/d/t/0000-ffff-0"


def test_a_seal_counts_by_the_layout_or_by_its_epoch() -> None:
    first, second = seal(SEGMENT), seal(SEGMENT)
    log = {4: first, 6: second}
    assert transitions.seal_counts(4, first, layout(0), log)
    assert not transitions.seal_counts(6, second, layout(0), log)  # of two seals of one layout only the lower counts (failure A35)
    assert transitions.seal_counts(4, first, layout(1, sealed=4), log)
    assert not transitions.seal_counts(6, second, layout(1, sealed=4), log)
    # the topic was created again, so its layout has other segments
    assert not transitions.seal_counts(4, first, layout(3, ids=(7,)), log)
    assert not transitions.seal_counts(4, first, None, log)
    other = seal("segment://p/d/u/0000-ffff-0", topic="topic://p/d/u")
    assert transitions.seal_counts(6, second, layout(0), {4: other, 6: second})


def test_a_seal_is_unfinished_until_the_layout_shows_it() -> None:
    entry = seal(SEGMENT)
    assert transitions.unfinished(4, entry, layout(0), {4: entry})
    assert not transitions.unfinished(4, entry, layout(1, sealed=4), {4: entry})
    after = transitions.sealed_layout(layout(0), 4, entry, now_ms=77)
    info = after.segments["0"]
    assert (after.epoch, after.deleted, info.state) == (1, True, SegmentState.SEALED)
    assert (info.sealed_at_log, info.sealed_at_epoch, info.sealed_at_ms) == (4, 1, 77)
    assert not transitions.unfinished(4, entry, after, {4: entry})
    assert info.range == HashRange(0, 0xFFFF)


@pytest.mark.parametrize(("number", "sealed", "void"), [(5, None, False), (5, 6, False), (7, 6, True)])
def test_a_registration_above_a_seal_is_void(number: int, sealed: int | None, void: bool) -> None:
    assert transitions.void_by_seal(number, sealed) is void


def test_where_a_segment_ends() -> None:
    entry = seal(SEGMENT)
    assert transitions.sealed_at(0, SEGMENT, layout(0), {}) is None
    assert transitions.sealed_at(0, SEGMENT, layout(0), {4: entry}) == 4
    assert transitions.sealed_at(0, SEGMENT, layout(1, sealed=4), {}) == 4
    # this seal is void, because it was planned from an older layout
    assert transitions.sealed_at(0, SEGMENT, layout(5), {4: entry}) is None
    assert transitions.sealed_at(0, SEGMENT, layout(0), {4: seal("segment://p/d/t/0000-ffff-01")}) is None


# --- the cut, limits, timestamps ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("undecided", "end", "expected"), [([], 9, 9), ([4], 9, 3), ([7, 4], 9, 3), ([12], 9, 9), ([1], 9, 0)])
def test_cut(undecided: list[int], end: int, expected: int) -> None:
    assert transitions.cut(undecided, end) == expected


@given(st.sets(st.integers(1, 50)), st.integers(0, 50))
def test_nothing_undecided_lies_at_or_below_the_cut(undecided: set[int], end: int) -> None:
    found = transitions.cut(undecided, end)
    assert found <= end
    assert all(n > found for n in undecided)
    assert found == end or found + 1 in undecided


WEIGHTS = [Weight(3, 10, 100), Weight(5, 10, 100), Weight(8, 10, 100)]


@pytest.mark.parametrize(
    ("rows", "size", "seals", "end"),
    [
        (None, None, [], 9),
        (30, None, [], 9),
        (29, None, [], 5),
        (10, None, [], 3),
        (1, None, [], 3),  # a limit admits at least one whole transaction
        (None, 250, [], 5),
        (15, 1_000, [], 3),
        (None, None, [4], 4),
        (29, None, [4], 4),
        (10, None, [4, 2], 2),
        (1, None, [7], 3),
    ],
)
def test_limits(rows: int | None, size: int | None, seals: list[int], end: int) -> None:
    assert transitions.limited(WEIGHTS, 9, max_rows=rows, max_bytes=size, seals=seals) == end


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 20)), max_size=12),
    st.integers(1, 40),
    st.sets(st.integers(1, 40), max_size=2),
)
def test_a_limited_stream_always_moves_and_ends(steps: list[tuple[int, int]], limit: int, seals: set[int]) -> None:
    number, weights = 0, []
    for gap, rows in steps:
        number += gap
        weights.append(Weight(number, rows, rows))
    start, batches = 0, 0
    while start < number:
        left = [w for w in weights if w.number > start]
        end = transitions.limited(left, number, max_rows=limit, seals=[s for s in seals if start < s <= number])
        assert start < end <= number
        taken = [w for w in left if w.number <= end]
        assert sum(w.rows for w in taken) <= limit or len(taken) == 1
        assert not any(start < s < end for s in seals)
        start, batches = end, batches + 1
    assert batches <= len(weights) + len(seals)


PUBLISHED = [(2, 100), (3, 90), (5, 120), (6, 110), (9, 200)]


@pytest.mark.parametrize(("ms", "start"), [(50, 1), (100, 1), (101, 4), (120, 4), (121, 8), (200, 8), (201, 12)])
def test_starting_timestamp(ms: int, start: int) -> None:
    assert timestamps.start(PUBLISHED, ms, 12) == start


@pytest.mark.parametrize(
    ("ms", "end"), [(50, (1, True)), (99, (1, True)), (100, (4, True)), (119, (4, True)), (120, (8, True)), (200, (12, False))]
)
def test_ending_timestamp(ms: int, end: tuple[int, bool]) -> None:
    assert timestamps.end(PUBLISHED, ms, 12) == end


@given(st.lists(st.integers(0, 30), max_size=15), st.integers(0, 30))
def test_an_end_is_the_start_of_the_next_millisecond(times: list[int], ms: int) -> None:
    """The range that ends at `ms` and the range that starts at `ms + 1` have every row exactly once between them."""
    published = list(enumerate(times, start=1))
    assert timestamps.end(published, ms, 20)[0] == timestamps.start(published, ms + 1, 20)


# --- folding ------------------------------------------------------------------------------------------------------

C, V = Settled.COMMITTED, Settled.VOID


@pytest.mark.parametrize(
    ("watermark", "log", "sealed", "committed", "through"),
    [
        (0, [(1, registration("a", state=C)), (2, registration("b", state=C)), (3, registration("a", state=V))], None, (1,), 3),
        (1, [(1, registration("a", state=C)), (2, registration("a", state=C))], None, (2,), 2),
        (0, [(1, registration("a", state=C)), (2, registration("a")), (3, registration("a", state=C))], None, (1,), 1),
        (0, [(1, registration("a", state=C)), (2, registration("b")), (3, registration("a", state=C))], None, (1, 3), 3),
        (0, [(1, registration("a", txn=None))], None, (1,), 1),
        (0, [(1, registration("a", state=C)), (2, seal("a")), (3, registration("a", txn=None))], 2, (1,), 3),
    ],
)
def test_folding(
    watermark: int, log: list[tuple[int, Registration]], sealed: int | None, committed: tuple[int, ...], through: int
) -> None:
    assert transitions.fold("a", watermark, log, sealed) == transitions.Fold(committed, through)


def test_folding_that_moves_nothing() -> None:
    assert transitions.fold("a", 0, [(1, registration("a"))], None) is None
    assert transitions.fold("a", 5, [(5, registration("a", state=C))], None) is None
    assert transitions.fold("a", 0, [(1, registration("b", state=C))], None) is None


@pytest.mark.parametrize(
    ("number", "entry", "marks", "shown", "may"),
    [
        (3, registration("a", "b", state=C), {"a": 3, "b": 4}, True, True),
        (3, registration("a", "b", state=C), {"a": 3, "b": 2}, True, False),
        (3, registration("a", "b", state=C), {"a": 3, "b": None}, True, True),
        (9, registration("a", state=C), {"a": 9}, True, False),  # the newest entry stays in the log, although it is folded
        (3, registration("a"), {"a": None}, True, False),  # an unsettled registration stays in the log, even if its segment is gone
        (3, registration("a", txn=None), {"a": 3}, True, True),
        (3, seal("a"), {"a": 3}, False, False),
        (3, seal("a"), {"a": 3}, True, True),
    ],
)
def test_dropping(number: int, entry: Registration, marks: dict[str, int | None], shown: bool, may: bool) -> None:
    assert transitions.may_drop(number, entry, marks, 9, seal_shown=shown) == may


@given(st.lists(st.sampled_from([C, V, None]), max_size=12), st.integers(0, 12))
def test_folding_in_any_number_of_steps_gives_the_same(states: list[Settled | None], first: int) -> None:
    log = [(i, registration("a", state=state)) for i, state in enumerate(states, start=1)]
    whole = transitions.fold("a", 0, log, None)
    part = transitions.fold("a", 0, log[:first], None)
    at = 0 if part is None else part.through
    rest = transitions.fold("a", at, log, None)
    assert (() if part is None else part.committed) + (() if rest is None else rest.committed) == (
        () if whole is None else whole.committed
    )


# --- deletions ----------------------------------------------------------------------------------------------------


def test_a_deletion_takes_every_segment_and_is_forgotten_after_the_grace_period() -> None:
    # the seal names segment 0 only, and the deletion covers segment 1, too
    after = transitions.sealed_layout(layout(0, ids=(0, 1)), 4, seal(SEGMENT), now_ms=100)
    assert [i.deleted_at_log for i in after.segments.values()] == [4, 4]
    assert after.kept() == []
    assert transitions.without_gone(after, now_ms=110, grace_ms=10) is after
    assert len(transitions.in_grace(after, 110, 10)) == 2
    assert transitions.in_grace(after, 111, 10) == []
    later = transitions.without_gone(after, now_ms=111, grace_ms=10)
    assert (later.segments, later.deleted_to_log, later.deleted) == ({}, 4, True)
    assert transitions.without_gone(later, now_ms=999, grace_ms=10) is later


def test_seals_that_this_version_can_show() -> None:
    assert transitions.finishable(seal(SEGMENT))
    assert transitions.finishable(seal(SEGMENT).model_copy(update={"why": "split", "children": (1, 2)}))
    assert not transitions.finishable(seal(SEGMENT).model_copy(update={"why": "split", "children": (1,)}))
    # a merge needs two parents
    assert not transitions.finishable(seal(SEGMENT).model_copy(update={"why": "merge", "children": (1,)}))
    assert not transitions.finishable(seal(SEGMENT).model_copy(update={"why": "rebucket", "children": (1,)}))


def test_the_guard_of_deletions_is_the_newest_one_that_was_forgotten() -> None:
    gone = transitions.sealed_layout(layout(0, ids=(0,)), 4, seal(SEGMENT), now_ms=100)
    for before in (2, 9):
        known = gone.model_copy(update={"deleted_to_log": before})
        assert transitions.without_gone(known, now_ms=111, grace_ms=10).deleted_to_log == max(4, before)


@pytest.mark.parametrize(
    ("was", "wanted", "said"),
    [
        (State.COMMITTED, State.ABORTED, "All of its rows are visible"),
        (State.ABORTED, State.COMMITTED, "none of its rows are visible"),
    ],
)
def test_ending_an_ended_transaction_reports_its_outcome(was: State, wanted: State, said: str) -> None:
    ended = header().model_copy(update={"state": was})
    with pytest.raises(TxnConflict, match=said):
        transitions.end(ended, wanted, now_ms=5)
