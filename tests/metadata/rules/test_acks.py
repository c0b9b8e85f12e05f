"""The rules of acknowledgements agree with a simple model that consists of sets of rows (protocol.md section 7, Acks)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.common.errors import AckConflict
from metadata.records.records import Cursor, MarkDelete, State
from metadata.records.row_ranges import (
    FIRST,
    Row,
    Rows,
    Span,
    before,
    common,
    end_of,
    minus,
    parse,
    parse_all,
    rows,
    span,
    text,
    texts,
    union,
)
from metadata.rules import acks
from metadata.rules.acks import Ack, acknowledged, done, first_unacknowledged_row, resolved, settled, up_to, with_done

S = "segment://public/default/t/0000-ffff-0"

# Each of 4 ledgers has 3 entries of 3 rows. Ranges may end at any place, even one place beyond the last row or entry.
WORLD = [Row(ledger, entry, index) for ledger in range(4) for entry in range(3) for index in range(3)]
EDGES = st.builds(Row, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
SPANS = st.tuples(EDGES, EDGES).map(lambda pair: (min(pair), max(pair))).filter(lambda pair: pair[0] < pair[1])
ROWS = st.lists(SPANS, max_size=6).map(rows)


def model(given_rows: Rows) -> set[Row]:
    return {row for row in WORLD if any(first <= row < end for first, end in given_rows)}


def well_formed(found: Rows) -> None:
    assert all(first < end for first, end in found)
    assert all(a[1] < b[0] for a, b in pairwise(found))


# --- ranges -------------------------------------------------------------------------------------------------------


@given(ROWS, ROWS)
def test_sets_of_ranges_are_sets_of_rows(one: Rows, other: Rows) -> None:
    for found, expected in (
        (union(one, other), model(one) | model(other)),
        (common(one, other), model(one) & model(other)),
        (minus(one, other), model(one) - model(other)),
    ):
        well_formed(found)
        assert model(found) == expected
    assert union(minus(one, other), common(one, other)) == one


@given(st.lists(SPANS, max_size=8))
def test_any_order_makes_the_same_set(spans: list[Span]) -> None:
    assert rows(spans) == rows(reversed(spans))
    well_formed(rows(spans))
    assert model(rows(spans)) == {row for row in WORLD if any(first <= row < end for first, end in spans)}


@given(SPANS)
def test_text_round_trips(one: Span) -> None:
    assert parse(text(one)) == one


@pytest.mark.parametrize(
    ("written", "first", "end"),
    [
        ("5", (5, 0, 0), (6, 0, 0)),
        ("5:2", (5, 2, 0), (5, 3, 0)),
        ("5:2:7", (5, 2, 7), (5, 2, 8)),
        ("5:2:3..5:2:7", (5, 2, 3), (5, 2, 8)),
        ("5:0..9:1", (5, 0, 0), (9, 2, 0)),
        ("5:2:7..9", (5, 2, 7), (10, 0, 0)),
        ("11..12", (11, 0, 0), (13, 0, 0)),
    ],
)
def test_texts(written: str, first: tuple[int, ...], end: tuple[int, ...]) -> None:
    assert parse(written) == (first, end)
    assert text(parse(written)) == written


@pytest.mark.parametrize("written", ["", "a", "5:", "5:2:3:4", "5:2..5:1", "-1", "5..", "5:2 ..5:3"])
def test_bad_texts(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not a position|ends before"):
        parse(written) if written != "5.." else parse_all(["5..x"])


# --- the cursor ---------------------------------------------------------------------------------------------------


@given(ROWS)
def test_acks_contiguous_from_the_start_become_the_mark_delete_position(acked: Rows) -> None:
    cursor = with_done(Cursor(), acked)
    assert done(cursor) == acked
    assert Cursor.from_bytes(cursor.to_bytes()) == cursor
    assert (cursor.mark_delete is not None) == (bool(acked) and acked[0][0] == FIRST)


def test_mark_delete_is_a_row_an_entry_or_a_ledger() -> None:
    marks = [with_done(Cursor(), before(end)).mark_delete for end in (end_of(5, 2, 7), end_of(5, 2), end_of(5))]
    assert marks == [
        MarkDelete(ledger_id=5, entry_id=2, batch_index=7),
        MarkDelete(ledger_id=5, entry_id=2),
        MarkDelete(ledger_id=5),
    ]


def test_the_first_unacknowledged_row_lies_before_every_gap() -> None:
    assert first_unacknowledged_row(Cursor()) == FIRST
    assert first_unacknowledged_row(with_done(Cursor(), before(end_of(5)))) == end_of(5)
    assert first_unacknowledged_row(with_done(Cursor(), parse_all(["5:2..5:4"]))) == FIRST, "the rows before 5:2 are left"
    assert first_unacknowledged_row(with_done(Cursor(), union(before(end_of(3)), parse_all(["5:2"])))) == end_of(3)


# --- acks and pending acks ----------------------------------------------------------------------------------------

ACKS = st.one_of(
    ROWS.filter(bool).map(lambda found: Ack(S, "s", found)),
    EDGES.filter(lambda edge: edge > FIRST).map(lambda edge: up_to(S, "s", edge)),
)


@given(
    st.lists(st.tuples(ACKS, st.sampled_from([None, "0_1", "0_2", "0_10"]), st.sampled_from(["", "commit", "abort"])), max_size=12)
)
def test_one_of_two_conflicting_acks_wins_and_the_other_leaves_no_record(steps: list[tuple[Ack, str | None, str]]) -> None:
    """Each row of the model is free, acked, or claimed by one transaction. Acks conflict exactly as protocol.md section 7 says."""
    cursor = Cursor()
    acked: Rows = ()
    claims: dict[str, Rows] = {}
    for ack, txn, then in steps:
        others = union(*(held for other, held in claims.items() if other != txn))
        wanted = minus(ack.rows, acked) if ack.cumulative else ack.rows
        refused = bool(common(wanted, others)) or (not wanted if ack.cumulative else bool(common(wanted, acked)))
        if refused:
            with pytest.raises(AckConflict):
                acknowledged(cursor, ack, txn)
        else:
            cursor = acknowledged(cursor, ack, txn)
            if txn is None:
                # A plain ack succeeds only on rows that no transaction claims.
                acked = union(acked, wanted)
            else:
                claims[txn] = union(claims.get(txn, ()), wanted)
                assert acknowledged(cursor, ack, txn) == cursor  # a repetition changes nothing
        if txn is not None and then and txn in claims:
            held = claims.pop(txn)
            if then == "commit":
                acked = union(acked, held)
            cursor = settled(cursor, txn, committed=then == "commit")
            assert settled(cursor, txn, committed=True) == cursor  # a second settling changes nothing
        assert done(cursor) == acked
        assert cursor.claims == claims
        for one, held in claims.items():
            assert not common(held, acked)
            assert not any(common(held, more) for other, more in claims.items() if other != one)


def test_a_row_of_an_entry_is_acked_alone() -> None:
    cursor = acknowledged(Cursor(), Ack(S, "s", rows([span(5, 2, 7)])), None)
    cursor = acknowledged(cursor, Ack(S, "s", rows([span(5, 2, 8)])), None)
    assert texts(cursor.acked) == ["5:2:7..5:2:8"]
    with pytest.raises(AckConflict, match=r"Rows 5:2:7..5:2:8 of .* already"):
        acknowledged(cursor, Ack(S, "s", rows([span(5, 2)])), None)


def test_a_pending_cumulative_ack_holds_every_position_that_it_covers() -> None:
    cursor = acknowledged(Cursor(), Ack(S, "s", parse_all(["3"])), None)
    cursor = acknowledged(cursor, up_to(S, "s", end_of(5, 0)), "0_1")
    assert texts(cursor.claims["0_1"]) == ["0..2", "4:0..5:0"]
    with pytest.raises(AckConflict, match="transaction 0_1 claims them"):
        acknowledged(cursor, Ack(S, "s", parse_all(["4:7:2"])), None)
    with pytest.raises(AckConflict, match="transaction 0_1 claims them"):
        acknowledged(cursor, up_to(S, "s", end_of(9)), "0_10")
    assert done(settled(cursor, "0_1", committed=True)) == before(end_of(5, 0))
    with pytest.raises(AckConflict, match="all of it is acknowledged already"):
        acknowledged(settled(cursor, "0_1", committed=True), up_to(S, "s", end_of(5, 0)), None)


def test_only_open_transactions_keep_pending_acks() -> None:
    claims = {"0_1": parse_all(["1"]), "0_2": parse_all(["2"]), "0_3": parse_all(["3"]), "0_4": parse_all(["4"])}
    cursor = resolved(Cursor(claims=claims), {"0_1": State.COMMITTED, "0_2": State.ABORTED, "0_3": None, "0_4": State.OPEN})
    assert texts(done(cursor)) == ["1"]
    assert list(cursor.claims) == ["0_4"]


def test_acks_of_one_call_are_put_together() -> None:
    parts = [
        Ack(S, "s", parse_all(["3"])),
        Ack(S, "s", parse_all(["4:0"])),
        Ack(S, "s2", parse_all(["3"])),
        up_to(S, "s", end_of(2)),
    ]
    assert acks.merged(parts) == [
        Ack(S, "s", parse_all(["3..4:0"])),
        up_to(S, "s", end_of(2)),
        Ack(S, "s2", parse_all(["3"])),
    ]
    with pytest.raises(AckConflict, match="twice itself"):
        acks.merged([*parts, Ack(S, "s", parse_all(["3:1"]))])


def test_op_records_of_whole_entries_are_those_of_pulsar() -> None:
    written = [acks.op(a).to_bytes() for a in (Ack(S, "s", parse_all(["5:2"])), up_to(S, "s", end_of(5, 2)))]
    assert written == [
        b'{"kind":"ACK","segment":"segment://public/default/t/0000-ffff-0","subscription":"s","ledgerId":5,"entryId":2}',
        b'{"kind":"ACK","segment":"segment://public/default/t/0000-ffff-0","subscription":"s","ledgerId":5,"entryId":2,'
        b'"cumulative":true}',
    ]
    more = acks.op(Ack(S, "s", parse_all(["5:2:0..5:2:6", "7:0"])))
    assert (more.ledger_id, more.entry_id, texts(more.rows or ())) == (7, 0, ["5:2:0..5:2:6", "7:0"])
