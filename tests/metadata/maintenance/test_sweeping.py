"""Tests of the sweeper (protocol.md section 7): the effect of one damaged file, when records are deleted, and the bounds on
records.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from pyspark.sql.types import LongType, StructField, StructType

from conformance.simulator.store.faults import Crashed, Fate
from ledgers.errors import CorruptSnapshot
from metadata.client.passes import delete_orphans
from metadata.common.errors import SweepIncomplete
from metadata.records.cluster_records import Settings
from metadata.records.names import topic_name
from metadata.records.records import State
from tests.support.bench import At, Bench, T, U, each_step


def flipped(bench: Bench, path: str) -> None:
    data, mtime = bench.disk.files[path]
    bench.disk.files[path] = (data[:-1] + bytes([data[-1] ^ 1]), mtime)


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
def test_a_sweeper_that_stops_anywhere_leaves_no_events(fate: Fate) -> None:
    """The next sweep removes the events that an interrupted sweep left, even those of idle segments (protocol.md section 8.14)."""

    def run(gate: At) -> None:
        bench = Bench()
        bench.party().coordinator.commit(bench.work(1))
        assert bench.kept("/txn/segment-events/")
        with suppress(Crashed):
            bench.party(gate).sweeper.sweep()
        bench.finish()
        assert not bench.kept("/txn/segment-events/"), gate.hit

    assert list(each_step(run, lambda k: At(k, fate, kinds=("write",))))


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("how", ["sweep", "share"])
def test_one_unreadable_snapshot_blocks_its_segment_only(how: str, gone: bool) -> None:
    bench = Bench(Settings(fold_after_registrations=2, fold_after_ms=1))
    party = bench.party()
    for topic in (T, U):
        party.coordinator.commit(bench.work(1, app=topic, topics=(topic,)))
    bench.party().sweeper.sweep()
    damaged = [path for path in bench.disk.files if path.startswith("public/default/u/") and path.endswith(".avro")]
    assert len(damaged) == 1
    was = bench.disk.files[damaged[0]]
    if gone:
        del bench.disk.files[damaged[0]]
    else:
        flipped(bench, damaged[0])
    for topic in (T, U):
        party.coordinator.commit(bench.work(2, app=topic, topics=(topic,)))
    bench.old()
    with pytest.raises(SweepIncomplete, match="cannot be folded") as told:
        getattr(bench.party().sweeper, how)()
    assert "default/u" in str(told.value)
    assert damaged[0] in str(told.value)
    assert not bench.headers(), "the headers were not expired"
    assert len(bench.kept("/log/")) == 1, "the rows of the other topic are folded, and its registration dropped"
    with pytest.raises(CorruptSnapshot):
        delete_orphans(bench.party().cluster)  # the damaged snapshot may name any file, so no file is deleted
    bench.disk.files[damaged[0]] = was
    bench.finish()


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
def test_ops_stay_until_their_registration_is_known_to_be_settled(fate: Fate) -> None:
    bench = Bench()

    def dies(kind: str, what: str) -> Fate:
        return Fate.CRASH_BEFORE if kind == "write" and "segment-events" in what else Fate.GO

    with pytest.raises(Crashed):
        bench.party(dies).coordinator.commit(bench.work(1))
    assert bench.kept("/txn/op/")

    def loses(kind: str, what: str) -> Fate:
        return fate if kind == "write" and what.startswith("Put /log/") else Fate.GO

    bench.party(loses).sweeper.sweep()
    assert bool(bench.kept("/txn/op/")) == (fate is Fate.LOSE_REQUEST)
    bench.finish()


@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_REPLY])
def test_a_sweep_reads_the_header_again_after_a_lost_reply_to_its_abort(fate: Fate) -> None:
    """The sweep's first request to abort a transaction past its deadline is lost, or the reply to this request is lost. The
    transaction is still aborted within this sweep (protocol.md section 8, invariant 10; found by the simulator with seed 1292).
    """
    bench = Bench()

    def dies(kind: str, what: str) -> Fate:
        return Fate.CRASH_AFTER if kind == "write" and "/txn/id/" in what else Fate.GO

    with pytest.raises(Crashed):
        bench.party(dies).coordinator.commit(bench.work(1))
    assert list(bench.headers().values()) == [State.OPEN]
    bench.late()
    lost: list[str] = []

    def loses_once(kind: str, what: str) -> Fate:
        if kind != "write" or "/txn/id/" not in what or lost:
            return Fate.GO
        lost.append(what)
        return fate

    bench.party(loses_once).sweeper.sweep()
    assert lost
    assert State.OPEN not in bench.headers().values()
    bench.finish()


def _schema(*names: str) -> StructType:
    return StructType([StructField(name, LongType()) for name in names])


def _cycle(bench: Bench, version: int) -> None:
    """Create a topic, evolve its schema, write to it, fold it and delete it."""
    name = topic_name("topic://public/default/v")
    topics = bench.party().topics
    topics.create(name, schema=_schema("a"))
    topics.evolve(name, _schema("a", "b"))
    bench.party().coordinator.commit(bench.work(version, app="cycle", topics=(str(name),)))
    bench.party().sweeper.sweep()
    topics.delete(name)
    bench.party().sweeper.sweep()


def test_deleted_topics_leave_a_tombstone_and_no_more() -> None:
    """Watermarks and schemas of deleted topics are deleted only after the grace period (protocol.md section 8, invariant 14)."""
    bench = Bench()
    for version in range(1, 6):
        _cycle(bench, version)
    cluster = bench.party().cluster

    def left() -> tuple[int, int]:
        watermarks = [path for path in bench.kept("/txn/segment-state/watermark/") if "%2Fv%2F" in path]
        return len(watermarks), len(bench.kept("/schemas/"))

    bench.party().sweeper.sweep()
    assert left() == (5, 10)
    delete_orphans(cluster)
    assert left() == (5, 10), "a reader may hold the older layout"
    bench.clock.now += bench.settings.grace_period_ms + bench.settings.orphan_age_ms + 1
    delete_orphans(cluster)
    bench.party().sweeper.sweep()
    assert left() == (0, 1), "the newest schema stays: its number is never used again"
    name = topic_name("topic://public/default/v")
    again = bench.party().topics.create(name, schema=_schema("c"))
    bench.party().coordinator.commit(bench.work(6, app="cycle", topics=(str(name),)))
    bench.party().sweeper.sweep()
    assert bench.party().topics.schema(again) == _schema("c")
    bench.clock.now += bench.settings.grace_period_ms + 1
    bench.party().sweeper.sweep()
    assert left() == (1, 1), "the current topic's watermark and schema stay, the deleted topic's schema goes"
    assert len(bench.read(topics=(str(name),))) == 1


def test_a_segment_folded_during_tombstone_collection_keeps_its_watermark() -> None:
    """At each step of a sweep another process creates a topic, writes and folds. The sweep does not delete the new watermark."""
    name = topic_name("topic://public/default/w")
    k = 0
    while True:
        bench = Bench()

        def meanwhile(bench: Bench = bench) -> None:
            bench.party().topics.create(name, schema=_schema("a"))
            bench.party().coordinator.commit(bench.work(1, app="w", topics=(str(name),)))
            bench.party().sweeper.sweep()

        gate = At(k, meanwhile=meanwhile)
        bench.party(gate).sweeper.sweep()
        if not gate.hit:
            return
        assert any("%2Fw%2F" in path for path in bench.kept("/txn/segment-state/watermark/")), gate.hit
        assert len(bench.read(topics=(str(name),))) == 1
        k += 1


def test_a_cluster_with_committers_only_stays_bounded() -> None:
    """Without a sweeper process the number of records and of unneeded files is bounded (protocol.md section 8, invariant 14)."""
    settings = Settings(
        fold_after_registrations=4,
        fold_after_ms=10_000,
        header_retention_ms=20_000,
        orphan_age_ms=60_000,
        grace_period_ms=60_000,
        orphan_sweep_ms=60_000,
        txn_timeout_ms=5_000,
        max_txn_timeout_ms=5_000,
        deadline_allowance_ms=1_000,
    )
    bench = Bench(settings)
    parties = [bench.party(), bench.party()]
    most: list[tuple[int, int]] = []
    for version in range(1, 401):
        bench.clock.now += 5_000
        bench.work(version, attempt=f"failed{version}")  # these parts are those of a failed attempt
        parties[version % 2].coordinator.commit(bench.work(version))
        parties[version % 2].sweeper.share()  # the product calls this share after each commit
        records = len(bench.state.records)
        unneeded = len(bench.disk.files) - 3 * version
        most.append((records, unneeded))
    early, late = most[:200], most[200:]
    assert max(r for r, _ in late) <= max(r for r, _ in early)
    # The 10 further files allow for index snapshots, of which there are a few more now and then.
    assert max(u for _, u in late) <= max(u for _, u in early) + 10
    bench.finish()


@pytest.mark.parametrize("dies", [False, True])
def test_a_store_clock_set_back_blocks_no_committer(dies: bool) -> None:
    """The store's clock was an hour ahead and is corrected, for example when another ZooKeeper server becomes the leader. The
    recorded time of the last turn to sweep then lies in the future. Committers still sweep and look for orphans, so the number of
    records stays bounded.
    """
    bench = Bench(Settings(fold_after_registrations=2, fold_after_ms=1_000, header_retention_ms=1_000, orphan_sweep_ms=2_000))
    hour = 3_600_000
    bench.clock.now += hour

    def gate(kind: str, what: str) -> Fate:
        # The sweeper dies before its first index scan. It has then just recorded that it takes the turn to sweep.
        return Fate.CRASH_BEFORE if dies and kind == "index" else Fate.GO

    with suppress(Crashed):
        bench.party(gate).sweeper.share()
    bench.clock.now -= hour
    for version in range(1, 10):
        party = bench.party()
        party.coordinator.commit(bench.work(version))
        bench.clock.now += 20_000
        party.sweeper.share()
    assert len(bench.kept("/log/")) <= 2
    assert len(bench.headers()) <= 2
    bench.finish()
