"""Tests of the compaction of a bench, with crashes, refusals and other work at every step (protocol.md sections 1 and 7)."""

from __future__ import annotations

import pytest

from conformance.history.format import Row
from conformance.simulator.store.faults import Crashed, Fate
from conformance.simulator.store.origins import joined
from ledgers import snapshots
from ledgers.compaction import Policy
from ledgers.model import CompactedPart
from metadata.client.client import Client
from metadata.client.passes import delete_orphans
from metadata.common.errors import TxnSegmentError
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.read.reading import LogSelection
from metadata.records.names import topic_name
from tests.support.bench import At, Bench, T, U


def filled(versions: int = 3) -> Bench:
    bench = Bench()
    for version in range(1, versions + 1):
        bench.party().coordinator.commit(bench.work(version))
        bench.party().sweeper.sweep()
    # A sweep never drops the newest registration from the log. This further commit lets the sweep drop all earlier ones.
    bench.party().coordinator.commit(bench.work(versions + 1, topics=(U,)))
    bench.party().sweeper.sweep()
    return bench


def compact(party: Client, topic: str = T) -> Compacted:
    done = Compacted()
    for segment in party.topics.get(topic_name(topic)).segments():
        Compactor(party.cluster, joined).compact(segment, Policy(), done)
    return done


def rows(bench: Bench) -> list[Row]:
    return bench.read()


def files(bench: Bench) -> set[str]:
    """Return the paths of the files that contain the visible rows."""
    reading = bench.party().buffer.read(LogSelection((T, U)))
    return {p.path for s in reading.segments for found in s.ledgers(0, reading.cut) for p in found.parts}


def test_compaction_keeps_rows_and_only_the_orphan_sweep_deletes_old_files() -> None:
    bench = filled()
    before, old = rows(bench), files(bench)
    done = compact(bench.party())
    assert (done.files_before, done.files_after, done.parts) == (6, 2, 6)
    assert rows(bench) == before
    assert len(files(bench)) == 2 + 4
    bench.clock.now += bench.settings.orphan_age_ms + 1
    delete_orphans(bench.party().cluster)
    assert old <= bench.disk.files.keys(), "reads that were planned before need the old files"
    bench.clock.now += bench.settings.grace_period_ms
    delete_orphans(bench.party().cluster)
    assert old <= bench.disk.files.keys()
    bench.clock.now += 2
    for _ in range(2):  # the first sweep deletes the snapshot that lists the files, the second sweep deletes the files
        delete_orphans(bench.party().cluster)
        bench.clock.now += bench.settings.orphan_age_ms + 1
    kept = {path for path in bench.disk.files if path.endswith(".parquet")}
    assert kept == files(bench)
    assert not [path for path in bench.disk.files if path.startswith("sweep/retired")]
    assert rows(bench) == before
    bench.finish()


def test_the_watermark_and_totals_stay_and_the_parts_are_counted_as_before() -> None:
    bench = filled()
    before = bench.party().buffer.read(LogSelection((T,)))
    compact(bench.party())
    after = bench.party().buffer.read(LogSelection((T,)))
    for a, b in zip(before.segments, after.segments, strict=True):
        assert a.head is not None
        assert b.head is not None
        assert (a.folded_to, a.head.rows, a.head.bytes, a.head.ledgers) == (b.folded_to, b.head.rows, b.head.bytes, b.head.ledgers)
        assert a.head.path != b.head.path
    assert list(before.weights(0, before.cut)) == list(after.weights(0, after.cut))
    assert list(before.published(0, before.cut)) == list(after.published(0, after.cut))
    assert after.last_change(0) == before.last_change(0)


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LOSE_REPLY, Fate.LOSE_REQUEST])
def test_a_compaction_interrupted_at_every_step_loses_no_row(fate: Fate) -> None:
    k = 0
    while True:
        bench = filled(2)
        before = rows(bench)
        gate = At(k, fate)
        try:
            compact(bench.party(gate))
        except (Crashed, TxnSegmentError):
            assert gate.hit
        assert rows(bench) == before, gate.hit
        compact(bench.party())
        assert rows(bench) == before, gate.hit
        bench.clock.now += bench.settings.orphan_age_ms + bench.settings.grace_period_ms + 2
        for _ in range(3):
            delete_orphans(bench.party().cluster)
            bench.clock.now += bench.settings.orphan_age_ms + bench.settings.grace_period_ms + 2
        assert {path for path in bench.disk.files if path.endswith(".parquet")} == files(bench), gate.hit
        assert rows(bench) == before, gate.hit
        if not gate.hit:
            return
        k += 1


@pytest.mark.parametrize("other", ["sweep", "compact", "orphans"])
def test_a_compaction_with_other_work_at_every_step_loses_no_row(other: str) -> None:
    k = 0
    while True:
        bench = filled(2)
        bench.party().coordinator.commit(bench.work(4))
        before = rows(bench)

        def meanwhile(bench: Bench = bench) -> None:
            party = bench.party()
            if other == "sweep":
                party.sweeper.sweep()
            elif other == "compact":
                compact(party)
            else:
                bench.clock.now += bench.settings.orphan_age_ms // 4
                delete_orphans(party.cluster)

        gate = At(k, meanwhile=meanwhile)
        compact(bench.party(gate))
        assert rows(bench) == before, gate.hit
        bench.party().sweeper.sweep()
        compact(bench.party())
        assert rows(bench) == before, gate.hit
        assert len(files(bench)) == 2 + 4, gate.hit
        if not gate.hit:
            return
        k += 1


def test_a_compaction_at_every_step_of_an_orphan_sweep_takes_no_file_from_a_reader() -> None:
    """The compaction may write its note of replaced files after the sweep has listed the files and before the sweep reads the
    notes. The note must still protect the replaced files.
    """
    k = 0
    while True:
        bench = filled(2)
        old = files(bench)
        bench.clock.now += bench.settings.orphan_age_ms + 1
        gate = At(k, meanwhile=lambda bench=bench: compact(bench.party()))
        delete_orphans(bench.party(gate).cluster)
        assert old <= bench.disk.files.keys(), gate.hit
        if not gate.hit:
            return
        k += 1


def test_a_compaction_suspended_too_long_does_not_publish_its_files() -> None:
    k = 0
    while True:
        bench = filled()
        before = rows(bench)

        def slept(bench: Bench = bench) -> None:
            bench.clock.now += bench.settings.orphan_age_ms + 1
            delete_orphans(bench.party().cluster)

        gate = At(k, meanwhile=slept)
        try:
            compact(bench.party(gate))
        except TxnSegmentError:
            assert gate.hit
        assert rows(bench) == before, gate.hit
        if not gate.hit:
            return
        k += 1


def test_a_compacted_segment_is_listed_in_one_file() -> None:
    bench = filled()
    compact(bench.party())
    reading = bench.party().buffer.read(LogSelection((T,)))
    for segment in reading.segments:
        assert segment.head is not None
        parts = [p for found in snapshots.read_ledgers(bench.party().cluster.storage, segment.head, -1, 10**9) for p in found.parts]
        assert all(isinstance(part, CompactedPart) for part in parts)
        assert len({part.path for part in parts}) == 1
