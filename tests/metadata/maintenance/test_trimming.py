"""Retention: rows are trimmed up to a log number, readers of trimmed rows get an error, and only the orphan sweep deletes files
(protocol.md sections 6 and 7). Guards against failure A19 (protocol.md section 9).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.client import Client
from metadata.client.passes import delete_orphans
from metadata.common.errors import DataLoss, TxnConflict, TxnSegmentError
from metadata.maintenance.trimming import Trimmed, Trimmer, trim_all
from metadata.read.reading import LogSelection
from metadata.read.selection import AtLog, AtTime, Earliest
from metadata.records.names import topic_name
from metadata.records.records import Policies
from metadata.records.row_ranges import end_of, rows, span, through_ledger, union
from metadata.rules import retention
from metadata.rules.acks import Ack, up_to
from metadata.rules.acks import done as done_of
from metadata.rules.retention import Kept
from metadata.store.contract import Put
from metadata.topics.policies import set_for_namespace, set_for_topic
from metadata.topics.subscriptions import Subscriptions
from spark_txn_source.log_ranges import LogRange, start_number
from spark_txn_source.losses import check_cursors, check_trims, known_trims
from tests.support.bench import At, Bench, T, U

DAY = 24 * 3_600_000


def filled(versions: int = 4) -> Bench:
    """Return a bench on which one version was committed and folded on each of `versions` days."""
    bench = Bench()
    for version in range(1, versions + 1):
        bench.party().coordinator.commit(bench.work(version))
        bench.party().sweeper.sweep()
        bench.clock.now += DAY
    bench.party().coordinator.commit(bench.work(versions + 1, topics=(U,)))
    bench.party().sweeper.sweep()
    return bench


def trim(party: Client) -> Trimmed:
    return Trimmer(party.cluster, party.buffer).trim(topic_name(T))


def numbers(bench: Bench) -> list[int]:
    reading = bench.party().buffer.read(LogSelection((T,)))
    return sorted({found.id for s in reading.segments for found in s.ledgers(0, reading.cut)})


def keep(bench: Bench, days: float) -> None:
    set_for_topic(bench.party().cluster, topic_name(T), {"retention_ms": int(days * DAY)})


def test_rows_older_than_the_limit_are_trimmed_and_readers_get_an_error() -> None:
    bench = filled()
    all_of_them = numbers(bench)
    assert trim(bench.party()).rows == 0, "without a policy all rows are kept"
    keep(bench, 2.5)
    done = trim(bench.party())
    assert (done.segments, done.rows) == (2, 4)
    assert numbers(bench) == all_of_them[2:]
    reading = bench.party().buffer.read(LogSelection((T,)))
    last = all_of_them[1]
    assert reading.trims() == {s.name: last for s in reading.segments}
    check_trims(LogRange(reading, 0, reading.cut), known_trims(reading, Earliest()))
    check_trims(LogRange(reading, last, reading.cut), known_trims(reading, AtLog(last)))
    with pytest.raises(DataLoss, match=f"0000-7fff-0 was trimmed by retention up to {last}:0: its rows after {last - 1} up"):
        check_trims(LogRange(reading, last - 1, reading.cut), known_trims(reading, AtLog(last - 1)))
    assert reading.last_change(0) >= last
    assert trim(bench.party()) == Trimmed(), "a second trim removes nothing"


def test_a_lagging_stream_is_woken_by_the_loss_of_all_its_rows() -> None:
    bench = filled()
    keep(bench, 0.001)
    trim(bench.party())
    assert numbers(bench) == []
    reading = bench.party().buffer.read(LogSelection((T,)))
    assert reading.last_change(1) == max(reading.trims().values()) > 1


def test_a_size_limit_trims_the_oldest_rows() -> None:
    bench = filled()
    all_of_them = numbers(bench)
    set_for_topic(bench.party().cluster, topic_name(T), {"retention_bytes": 9})  # a version has two parts of four bytes
    trim(bench.party())
    assert numbers(bench) == all_of_them[-1:]


def test_a_topic_policy_overrides_its_namespace_policy() -> None:
    bench = filled()
    all_of_them = numbers(bench)
    set_for_namespace(bench.party().cluster, "public", "default", {"retention_ms": DAY // 2})
    set_for_topic(bench.party().cluster, topic_name(T), {"retention_ms": retention.NO_LIMIT})
    trim(bench.party())
    assert numbers(bench) == all_of_them
    set_for_topic(bench.party().cluster, topic_name(T), {"retention_ms": None})
    trim(bench.party())
    assert numbers(bench) == []


def segments(bench: Bench) -> list[str]:
    return list(bench.party().topics.get(topic_name(T)).segments())


def subscriptions(bench: Bench) -> Subscriptions:
    party = bench.party()
    return Subscriptions(party.cluster, party.coordinator.acks)


def test_rows_that_a_subscription_needs_are_kept_unless_the_policy_overrides() -> None:
    bench = filled()
    all_of_them = numbers(bench)
    keep(bench, 0.001)
    here = subscriptions(bench)
    here.create(topic_name(T), "slow", at=all_of_them[1])
    here.create(topic_name(T), "fast", at=all_of_them[2])
    trim(bench.party())
    assert numbers(bench) == all_of_them[2:]
    bench.party().coordinator.acks.acknowledge([Ack(s, "slow", rows([span(all_of_them[3])])) for s in segments(bench)])
    trim(bench.party())
    assert numbers(bench) == all_of_them[2:], "`slow` has not acknowledged an earlier row"
    reading = bench.party().buffer.read(LogSelection((T,)))
    check_cursors(reading, {s.name: through_ledger(all_of_them[1]) for s in reading.segments}, "slow")
    set_for_topic(bench.party().cluster, topic_name(T), {"despite_subscriptions": True})
    trim(bench.party())
    assert numbers(bench) == []
    reading = bench.party().buffer.read(LogSelection((T,)))
    done = {s.name: union(through_ledger(all_of_them[1]), rows([span(all_of_them[3])])) for s in reading.segments}
    with pytest.raises(DataLoss, match=f"its rows after {all_of_them[1]} up to there, which the subscription 'slow' may need"):
        check_cursors(reading, done, "slow")
    here.seek(topic_name(T), "slow", to=0)
    here.create(topic_name(T), "new", at=0)
    for name in ("slow", "new"):
        cursors = here.cursors(bench.party().topics.get(topic_name(T)), name)
        check_cursors(reading, {segment: done_of(cursor) for segment, cursor in cursors.items()}, name)


def test_rows_with_pending_acks_are_kept() -> None:
    bench = filled()
    all_of_them = numbers(bench)
    keep(bench, 0.001)
    subscriptions(bench).create(topic_name(T), "s", at=all_of_them[0])
    bench.party().coordinator.acks.claim("0_977", [up_to(s, "s", end_of(all_of_them[1])) for s in segments(bench)])
    trim(bench.party())
    assert numbers(bench) == all_of_them[1:]


def test_a_timestamp_among_trimmed_rows_is_not_taken_for_a_later_one() -> None:
    bench = filled()
    all_of_them = numbers(bench)
    times = dict(bench.party().buffer.read(LogSelection((T,))).published(0, 10**9))
    keep(bench, 2.5)
    trim(bench.party())
    reading = bench.party().buffer.read(LogSelection((T,)))
    gone = all_of_them[1]
    start = start_number(reading, AtTime(times[gone]))
    with pytest.raises(DataLoss):
        check_trims(LogRange(reading, start, reading.cut), known_trims(reading, AtTime(times[gone])))
    start = start_number(reading, AtTime(times[gone] + 1))
    assert start == all_of_them[2] - 1
    check_trims(LogRange(reading, start, reading.cut), known_trims(reading, AtTime(times[gone] + 1)))


def test_one_segment_is_read_beside_a_removed_segment() -> None:
    """A sealed segment is trimmed and leaves the layout. A read of another segment does not show the trim of the removed
    segment.
    """
    bench = filled()
    other = segments(bench)[1]
    party = bench.party()
    party.topics.split(topic_name(T), 0)
    party.sweeper.sweep()
    keep(bench, 0.001)
    trim(bench.party())
    bench.clock.now += bench.settings.grace_period_ms + 1
    assert trim(bench.party()).left == 1
    reading = bench.party().buffer.read(LogSelection((other,)))
    assert reading.trims().keys() == {other}


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
def test_a_trim_interrupted_at_every_step_is_finished_by_the_next(fate: Fate) -> None:
    k = 0
    while True:
        bench = filled(3)
        keep(bench, 1.5)
        before = numbers(bench)
        gate = At(k, fate)
        try:
            trim(bench.party(gate))
        except (Crashed, TxnSegmentError):
            assert gate.hit
        trim(bench.party())
        assert numbers(bench) == before[2:], gate.hit
        reading = bench.party().buffer.read(LogSelection((T,)))
        assert set(reading.trims().values()) == {before[1]}, gate.hit
        if not gate.hit:
            return
        k += 1


def test_a_topic_whose_trims_lost_every_race_is_reported_and_not_taken_for_done() -> None:
    """Each time before this process writes the watermark, another process replaces the snapshot. So nothing is trimmed."""
    bench = filled(3)
    keep(bench, 1.5)
    before = numbers(bench)

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith("Put /txn/segment-state/watermark/"):
            found = next(record for key, record in bench.state.records.items() if key.path in what)
            bench.state.apply([Put(found.key, found.value, found)], 0)
        return Fate.GO

    party, done = bench.party(gate), Trimmed()
    failed = trim_all(party.cluster, party.buffer, done)
    assert done.rows == 0
    assert [type(error) for error in failed.values()] == [TxnConflict]
    assert "in each of 20 attempts" in str(failed[T])
    assert numbers(bench) == before


def test_the_orphan_sweep_deletes_trimmed_files_after_the_grace_period() -> None:
    bench = filled()
    keep(bench, 0.001)
    parts = {path for path in bench.disk.files if path.endswith("-t.parquet")}
    trim(bench.party())
    bench.clock.now += bench.settings.orphan_age_ms + 1
    for _ in range(2):
        delete_orphans(bench.party().cluster)
        assert parts <= bench.disk.files.keys(), "reads that were planned before need the files"
    for _ in range(2):
        bench.clock.now += bench.settings.grace_period_ms + bench.settings.orphan_age_ms + 1
        delete_orphans(bench.party().cluster)
    assert not parts & bench.disk.files.keys()


def test_a_drained_sealed_segment_leaves_the_layout_and_the_topic_keeps_the_guard() -> None:
    bench = filled()
    party = bench.party()
    party.topics.split(topic_name(T), 0)
    party.coordinator.commit(bench.work(6))
    party.sweeper.sweep()
    keep(bench, 0.001)
    highest = max(numbers(bench))
    assert trim(bench.party()).rows > 0
    assert [i.segment_id for i in party.topics.get(topic_name(T)).layout.kept()] == [0, 1, 2, 3], (
        "no segment leaves the layout within the grace period"
    )
    bench.clock.now += bench.settings.grace_period_ms + 1
    assert trim(bench.party()).left == 1
    layout = party.topics.get(topic_name(T)).layout
    assert [i.segment_id for i in layout.kept()] == [1, 2, 3]
    assert layout.trimmed_to is not None
    assert layout.trimmed_to.ledger_id < highest
    reading = bench.party().buffer.read(LogSelection((T,)))
    with pytest.raises(DataLoss, match="topic://public/default/t was trimmed"):
        check_trims(LogRange(reading, 0, reading.cut), {s.name: s.trimmed_to for s in reading.segments})
    bench.party().coordinator.commit(bench.work(7))
    bench.party().sweeper.sweep()
    assert len(numbers(bench)) == 1


@pytest.mark.parametrize("when", ["Append /log/", "Put /txn/id/ again"])
def test_a_writer_suspended_until_its_segment_left_the_layout_gets_a_too_old_error(when: str) -> None:
    """The writer is suspended before it registers, or after it has found the seal and before it reroutes its rows. Meanwhile its
    segment leaves the layout of the topic, which still exists. The writer gets an error that its write is too old.
    """
    bench, seen = filled(), list[str]()

    def gate(kind: str, what: str) -> Fate:
        if kind == "write" and what.startswith(when.removesuffix(" again")):
            seen.append(what)
            if when == "Append /log/" and len(seen) == 1:
                split_and_drained(bench)
            elif when != "Append /log/" and len(seen) == 2:  # this write aborts the attempt that found the seal
                drained(bench)
        elif kind == "write" and what.startswith("Append /log/") and when != "Append /log/":
            bench.party().topics.split(topic_name(T), 0)
        return Fate.GO

    with pytest.raises(TxnConflict, match="staged more than half the orphan age ago"):
        bench.party(gate).coordinator.commit(bench.work(6))
    assert seen
    assert [i.segment_id for i in bench.party().topics.get(topic_name(T)).layout.kept()] == [1, 2, 3]
    bench.finish()


def split_and_drained(bench: Bench) -> None:
    bench.party().topics.split(topic_name(T), 0)
    drained(bench)


def drained(bench: Bench) -> None:
    """Trim all rows of the sealed segment by retention, and let the segment leave the layout after the grace period."""
    bench.late()
    bench.party().sweeper.sweep()
    keep(bench, 0.001)
    trim(bench.party())
    bench.clock.now += bench.settings.grace_period_ms + 1
    assert trim(bench.party()).left == 1


@given(
    kept=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 100), st.integers(1, 50)), max_size=20),
    keep_ms=st.none() | st.integers(0, 100),
    keep_bytes=st.none() | st.integers(1, 400),
)
def test_a_trim_keeps_the_most_rows_within_the_limits(
    kept: list[tuple[int, int, int]], keep_ms: int | None, keep_bytes: int | None
) -> None:
    number, found = 0, []
    for gap, published, size in kept:
        number += gap
        found.append(Kept(number, published, size))
    total = sum(one.bytes for one in found)
    policies = Policies(retention_ms=keep_ms, retention_bytes=keep_bytes)
    through = retention.trim_to(found, policies, total_bytes=total, now_ms=100)
    rest = [one for one in found if one.number > through]
    if keep_bytes is not None:
        assert sum(one.bytes for one in rest) <= keep_bytes
    if rest and keep_ms is not None:
        assert max(one.publish_ms for one in found[: len(found) - len(rest) + 1]) + keep_ms >= 100
    if through:
        last = next(one for one in found if one.number == through)
        latest = max(one.publish_ms for one in found if one.number <= through)
        much = keep_bytes is not None and last.bytes + sum(one.bytes for one in rest) > keep_bytes
        assert much or (keep_ms is not None and latest + keep_ms < 100)
