"""Tests of the rule for automatic splits and merges, and the leader that applies it (metadata/rules/scaling.py, autoscaling.py)."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from contextlib import suppress

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from ledgers.model import Part
from metadata.common.errors import BadVersion, Unavailable
from metadata.maintenance.autoscaling import Autoscaler
from metadata.records import paths
from metadata.records.names import RING, even_ranges, topic_name
from metadata.records.records import Policies, Range, Registration, SegmentInfo, SegmentState, SegmentWrite
from metadata.rules import scaling
from metadata.rules.scaling import Change, Measured, Rule
from metadata.rules.transitions import child_ranges
from metadata.topics.policies import set_for_namespace, set_for_topic
from tests.support.bench import At, Bench, T, U, each

NAME = topic_name(T)
RULE = Rule(rows=100, bytes=None, fewest=1, most=8, cool_down_ms=10_000)
NOW = 1_000_000


def segments(*ranges: tuple[int, int], age_ms: int = 60_000) -> list[SegmentInfo]:
    return [
        SegmentInfo(
            segment_id=i,
            hash_range=Range(start=start, end=end),
            state=SegmentState.ACTIVE,
            created_at_epoch=0,
            created_at_ms=NOW - age_ms,
        )
        for i, (start, end) in enumerate(ranges)
    ]


def even(count: int, *, age_ms: int = 60_000) -> list[SegmentInfo]:
    return segments(*((r.start, r.end) for r in even_ranges(count)), age_ms=age_ms)


def decided(active: Sequence[SegmentInfo], *rows: int, rule: Rule = RULE) -> list[tuple[int, ...]]:
    measured = {info.segment_id: Measured(count, 0) for info, count in zip(active, rows, strict=True)}
    return [change.segments for change in scaling.changes(rule, active, measured, NOW)]


def test_segments_above_the_limit_split_the_fullest_first() -> None:
    """The limit is 1,000 rows: 100 rows per second over 10 seconds."""
    assert decided(even(4), 900, 2_000, 1_001, 1_000) == [(1,), (2,)]
    assert decided(even(4), 9_000, 9_001, 9_002, 9_003, rule=dataclasses.replace(RULE, most=6)) == [(3,), (2,)]
    assert decided(even(4), 9_000, 9_000, 9_000, 9_000, rule=dataclasses.replace(RULE, most=4)) == []


def test_bytes_and_rows_are_limits_each() -> None:
    rule = Rule(rows=100, bytes=1_000, fewest=1, most=8, cool_down_ms=10_000)
    active = even(2)
    measured = {0: Measured(10, 10_001), 1: Measured(1_001, 10)}
    assert {c.segments for c in scaling.changes(rule, active, measured, NOW)} == {(0,), (1,)}
    assert Rule(None, 1_000, 1, 8, 10_000).share(Measured(10**9, 5_000)) == 0.5


def test_neighbours_merge_below_half_of_the_limit_together_and_only_if_nothing_splits() -> None:
    assert decided(even(4), 100, 100, 400, 100) == [(0, 1), (2, 3)]
    assert decided(even(4), 600, 100, 100, 600) == [(1, 2)]
    assert decided(even(4), 300, 300, 300, 300) == []
    assert decided(even(4), 0, 0, 0, 1_001) == [(3,)]
    assert decided(even(4), 0, 0, 0, 0, rule=dataclasses.replace(RULE, fewest=3)) == [(0, 1)]
    assert decided(even(4), 0, 0, 0, 0, rule=dataclasses.replace(RULE, fewest=4)) == []


def test_segments_are_merged_only_if_somebody_said_how_few_are_enough() -> None:
    rule = dataclasses.replace(RULE, fewest=None)
    assert decided(even(4), 0, 0, 0, 0, rule=rule) == []
    assert decided(even(4), 0, 0, 0, 9_000, rule=rule) == [(3,)]
    assert decided(even(1), 0, rule=rule) == []
    assert scaling.rule(Policies(split_rows_per_second=5, min_segments=1)) == Rule(5, None, 1, 64, scaling.COOL_DOWN_MS)


def test_a_young_segment_is_neither_split_nor_merged() -> None:
    assert decided(even(2, age_ms=9_999), 9_000, 9_000) == []
    assert decided(even(2, age_ms=9_999), 0, 0) == []
    assert decided(even(2, age_ms=10_000), 9_000, 0) == [(0,)]
    one_old = [*even(2, age_ms=9_999)[:1], *even(2)[1:]]
    assert decided(one_old, 0, 0) == []


def test_below_the_minimum_the_widest_segments_are_split_at_any_load_and_age() -> None:
    active = segments((0, 0x3FFF), (0x4000, 0xFFFF), age_ms=0)
    assert decided(active, 9_000, 0, rule=dataclasses.replace(RULE, fewest=3)) == [(1,)]
    assert decided(active, 0, 0, rule=dataclasses.replace(RULE, fewest=5)) == [(1,), (0,)]


def test_a_segment_of_one_hash_is_not_split() -> None:
    assert decided(segments((0, 0), (1, 0xFFFF)), 9_000, 9_000) == [(1,)]


def test_without_a_rate_limit_no_segment_is_scaled() -> None:
    assert scaling.rule(Policies()) is None
    assert scaling.rule(Policies(max_segments=9, min_segments=2)) is None
    assert scaling.rule(Policies(split_rows_per_second=5)) == Rule(5, None, None, scaling.MAX_SEGMENTS, scaling.COOL_DOWN_MS)
    whole = Policies(split_bytes_per_second=7, min_segments=9, max_segments=4, scaling_cool_down_ms=1)
    assert scaling.rule(whole) == Rule(None, 7, 9, 9, 1)


@pytest.mark.parametrize("seed", range(20))
def test_scaling_converges_under_an_even_load(seed: int) -> None:
    """After some passes the layout does not change any more. Its segments cover all hash values without a gap or an overlap."""
    rng = random.Random(seed)
    rule = dataclasses.replace(RULE, fewest=rng.choice((1, 2, 3)), most=rng.choice((4, 8, 30)))
    total = rng.choice((0, 500, 3_000, 20_000, 100_000))
    active, taken = even(rng.choice((1, 2, 4, 16))), 100
    for _ in range(12):
        measured = {i.segment_id: Measured(total * (i.hash_range.end + 1 - i.hash_range.start) // RING, 0) for i in active}
        found = scaling.changes(rule, active, measured, NOW)
        if not found:
            break
        for change in found:
            taken, active = _done(active, change, taken)
        assert [i.hash_range.start for i in active[1:]] == [i.hash_range.end + 1 for i in active[:-1]]
        assert (active[0].hash_range.start, active[-1].hash_range.end) == (0, RING - 1)
    assert not found
    assert (rule.fewest or 0) <= len(active) <= max(rule.most, 16)


def _done(active: list[SegmentInfo], change: Change, taken: int) -> tuple[int, list[SegmentInfo]]:
    parents = [i for i in active if i.segment_id in change.segments]
    ranges = child_ranges([p.hash_range for p in parents])
    children = [parents[0].model_copy(update={"segment_id": taken + k, "hash_range": r}) for k, r in enumerate(ranges)]
    at = active.index(parents[0])
    return taken + len(children), [*active[:at], *children, *active[at + len(parents) :]]


# --- scaling of a cluster -------------------------------------------------------------------------------------------


def publish(bench: Bench, rows: int, *, folded: bool = False) -> None:
    """Register `rows` rows in each active segment of T, published now."""
    party = bench.party()
    for info in party.topics.get(NAME).active():
        path = f"parts/{bench.unique()}.parquet"
        bench.disk.files[path] = (b"part", bench.clock.now_ms())
        write = SegmentWrite(parts=(Part(path, rows, 10, 0, (rows,), 0),), rows=rows, bytes=10, entries=1)
        segment = party.topics.get(NAME).segment(info)
        plain = Registration(publish_ms=bench.clock.now_ms(), segments={segment: write})
        party.cluster.store.append(paths.LOG, plain.to_bytes())
    if folded:
        party.sweeper.sweep()


def active(bench: Bench) -> list[int]:
    return [info.segment_id for info in bench.party().topics.get(NAME).active()]


def scaler(bench: Bench, gate: object = None) -> Autoscaler:
    party = bench.party() if gate is None else bench.party(gate)
    return Autoscaler(party.cluster, party.buffer)


def loaded(**policies: int) -> Bench:
    bench = Bench()
    set_for_topic(bench.party().cluster, NAME, {"split_rows_per_second": 100, "scaling_cool_down_ms": 10_000} | policies)
    bench.clock.now += 10_000
    return bench


@pytest.mark.parametrize("folded", [False, True])
def test_a_topic_under_load_is_split_and_an_idle_one_merged_again(folded: bool) -> None:
    """The load is measured from registrations, which are in the log or, if `folded`, in the index snapshots."""
    bench = loaded(min_segments=1)
    publish(bench, 1_001, folded=folded)
    one = scaler(bench)
    assert one.scale().splits == 2
    assert active(bench) == [2, 3, 4, 5]
    assert one.scale().splits == 0  # the new segments are too young for a split
    bench.clock.now += 5_000
    publish(bench, 300, folded=folded)
    bench.clock.now += 5_000
    assert vars(one.scale()) == {"splits": 0, "merges": 0, "failed": {}}  # two neighbours have 60 % of the limit together
    bench.clock.now += 5_001
    assert one.scale().merges == 2
    bench.clock.now += 10_000
    assert one.scale().merges == 1
    bench.clock.now += 10_000
    assert one.scale().merges == 0
    assert len(active(bench)) == 1
    bench.finish()


def test_a_scaling_policy_of_a_namespace_fills_the_gaps_of_a_topic() -> None:
    bench = Bench()
    set_for_namespace(bench.party().cluster, "public", "default", {"split_rows_per_second": 1, "min_segments": 4})
    set_for_topic(bench.party().cluster, topic_name(U), {"split_rows_per_second": -1})
    assert scaler(bench).scale().splits == 2
    assert len(active(bench)) == 4
    assert len(bench.party().topics.get(topic_name(U)).active()) == 1


def test_without_a_policy_nothing_splits() -> None:
    bench = Bench()
    publish(bench, 10**9)
    assert scaler(bench).scale().splits == 0
    assert active(bench) == [0, 1]


def test_only_the_current_leader_scales() -> None:
    bench = loaded()
    publish(bench, 5_000)
    first, second = scaler(bench), scaler(bench)
    assert first.leadership.leads()
    assert second.scale().splits == 0
    first.cluster.close()
    assert second.scale().splits == 2


def test_two_processes_that_both_believe_to_lead_do_no_harm() -> None:
    """The first leader is suspended in a split and loses its session. A second leader splits a segment. The first leader's split is
    then refused, or turns out to be the same split.
    """
    bench = loaded(max_segments=3)
    publish(bench, 5_000)
    second, slept = scaler(bench), list[bool]()

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith("Append /log/") and not slept:
            slept.append(True)
            bench.state.end_session(first.cluster.store.session)  # type: ignore[attr-defined]
            assert second.scale().splits == 1
        return Fate.GO

    first = scaler(bench, gate)
    done = first.scale()
    assert slept
    assert done.splits in (0, 1), "both leaders report the same split, or the split of the first leader was refused"
    assert not done.failed
    assert len(active(bench)) == 3
    bench.finish()


def test_a_leader_that_is_too_late_has_not_failed() -> None:
    """At each step of a leader another process splits the segment that the leader wants to split. The leader's split is refused or
    void. This is a lost race: another process did the work.
    """

    def run(k: int) -> At:
        bench = loaded(max_segments=3)
        publish(bench, 5_000)
        gate = At(k, meanwhile=lambda: bench.party().topics.split(NAME, 0))
        done = scaler(bench, gate).scale()
        assert done.failed == {}, gate.hit
        assert len(active(bench)) == 3
        return gate

    assert each(run) > 10


def test_a_leader_whose_store_fails_raises_the_error_of_the_store() -> None:
    """Otherwise each further topic would run into the same error, and its time limit."""

    def run(k: int) -> At:
        bench = loaded()
        publish(bench, 5_000)
        gate = At(k, Fate.UNAVAILABLE)
        done = None
        with suppress(Unavailable):
            done = scaler(bench, gate).scale()
        assert done is None or done.failed == {}, gate.hit
        return gate

    assert each(run) > 10


def test_a_split_decided_by_another_epoch_is_refused() -> None:
    bench = Bench()
    topics = bench.party().topics
    topics.split(NAME, 0, epoch=0)
    with pytest.raises(BadVersion, match="epoch 1; this split was decided by epoch 0"):
        topics.split(NAME, 1, epoch=0)
    with pytest.raises(BadVersion, match="this merge was decided by epoch 0"):
        topics.merge(NAME, 2, 3, epoch=0)
    assert topics.merge(NAME, 2, 3, epoch=1).layout.epoch == 2


def test_a_leader_that_dies_at_any_step_leaves_a_layout_that_the_next_can_scale() -> None:
    for step in range(12):
        bench = loaded()
        publish(bench, 5_000)
        writes = iter(range(100))

        def gate(kind: str, what: str, step: int = step, writes: object = writes) -> Fate:
            return Fate.CRASH_AFTER if kind == "write" and next(writes) == step else Fate.GO  # type: ignore[call-overload]

        first = scaler(bench, gate)
        try:
            first.scale()
        except Crashed:
            bench.state.end_session(first.cluster.store.session)  # type: ignore[attr-defined]
        second = scaler(bench)
        second.scale()  # this pass finishes the split that the first leader planned and did not finish
        second.scale()
        assert len(active(bench)) == 4
        bench.finish()
