"""Rates and latencies count each row and transaction once, and are unknown rather than wrong."""

from __future__ import annotations

import pytest

from metadata.client.transactions import TransactionDescription
from metadata.records.records import SegmentState, State
from txnsegment.look.samples import percentile, sample
from txnsegment.look.seen import DRAWN, LogSeen, Seen, SegmentSeen, Size, TopicSeen, horizon, merged, with_problem
from txnsegment.topics import SegmentDescription

T, U = "topic://public/default/t", "topic://public/default/u"


def topic(name: str, rows: int) -> TopicSeen:
    described = SegmentDescription(f"{name}/0", 0, 0, 0xFFFF, SegmentState.ACTIVE, (), (), 0, None)
    return TopicSeen(name, segments=(SegmentSeen(described, Size(rows, 10 * rows, 1), 0),))


def seen(now_ms: int, *topics: TopicSeen, ended: tuple[TransactionDescription, ...] = (), count: int | None = None) -> Seen:
    return Seen("file:///c", "file:///l", now_ms, LogSeen(3, 9), topics, len(topics) if count is None else count, ended=ended)


def txn(name: str, ms: int, state: State = State.COMMITTED) -> TransactionDescription:
    return TransactionDescription(name, state, None, None, None, None, 1000, 2000, 1000 + ms, 5)


def test_rates_are_those_of_the_time_between_two_looks() -> None:
    found = sample(
        seen(1000, topic(T, 5), topic(U, 5)),
        seen(3000, topic(T, 25), topic(U, 5), ended=(txn("a", 10), txn("b", 30), txn("c", 20, State.ABORTED))),
    )
    assert (found.rows, found.bytes, found.commits, found.aborts) == (10, 100, 1, 0.5)
    assert found.rows_of == {T: 10}
    assert (found.p50_s, found.p99_s) == (0.01, 0.03)


def test_without_an_earlier_look_no_rate_is_known() -> None:
    found = sample(None, seen(2000, topic(T, 5), ended=(txn("a", 10),)))
    assert (found.rows, found.commits, found.rows_of, found.p50_s) == (None, None, {}, 0.01)
    assert sample(seen(2000), seen(2000)).rows is None


def test_trimmed_rows_are_no_negative_rate() -> None:
    found = sample(seen(1000, topic(T, 50), topic(U, 1)), seen(2000, topic(T, 5), topic(U, 4)))
    assert (found.rows, found.rows_of) == (3, {U: 3})


def test_a_new_topic_counts_and_a_topic_that_was_not_looked_at_does_not() -> None:
    assert sample(seen(1000, topic(T, 1)), seen(2000, topic(T, 1), topic(U, 7))).rows == 7
    assert sample(seen(1000, topic(T, 1), count=2), seen(2000, topic(T, 1), topic(U, 7), count=2)).rows == 0


def test_a_topic_that_could_not_be_read_gives_no_false_peak() -> None:
    broken = with_problem(T, "damaged")
    assert sample(seen(1000, broken), seen(2000, topic(T, 1_000_000))).rows == 0
    assert sample(seen(1000, topic(T, 9)), seen(2000, broken)).rows == 0


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (99, 4), (100, 4), (1, 1)])
def test_percentiles(percent: int, expected: float) -> None:
    assert percentile([1, 2, 3, 4], percent) == expected
    assert percentile([], percent) is None


def test_the_horizon_is_before_the_first_undecided_registration_that_can_add_rows_to_the_topic() -> None:
    a, b = "segment://public/default/t/0000-7fff-0", "segment://public/default/t/8000-ffff-1"
    other = "segment://public/default/tt/0000-ffff-0"
    assert horizon(T, {a: None, b: None}, [(7, "x", {other}), (9, "y", {b}), (11, "z", {a})], 20) == (8, ((9, "y"), (11, "z")))
    assert horizon(T, {a: None, b: None}, [(7, "x", {other})], 20) == (20, ())
    assert horizon(T, {a: 5}, [(7, "x", {a})], 20) == (20, ())  # sealed below the registration
    assert horizon(T, {a: 5}, [(7, "x", {"segment://public/default/t/0000-3fff-9"})], 20)[0] == 6  # a child that is new


def test_ended_transactions_are_merged_newest_first_each_once() -> None:
    assert [t.id for t in merged([txn("a", 1), txn("b", 2)], [txn("b", 2), txn("c", 3)], 2)] == ["c", "b"]


def test_a_drawing_prefers_active_segments() -> None:
    def one(number: int, sealed: int | None) -> SegmentSeen:
        return SegmentSeen(SegmentDescription(f"s{number}", number, 0, 1, SegmentState.ACTIVE, (), (), 0, sealed), Size(), 0)

    segments = (one(0, None), *(one(i, 5) for i in range(1, DRAWN + 50)), one(DRAWN + 50, None))
    drawn = [s.id for s in TopicSeen(T, segments=segments).description.segments]
    assert (len(drawn), drawn[0], drawn[-1], drawn == sorted(drawn)) == (DRAWN, 0, DRAWN + 50, True)
