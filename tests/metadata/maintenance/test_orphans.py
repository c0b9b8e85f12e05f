"""The orphan sweep deletes only files that no record can name any more (protocol.md section 7)."""

from __future__ import annotations

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.client.passes import delete_orphans
from metadata.common.errors import TxnConflict, TxnSegmentError
from metadata.maintenance.orphans import _seen
from metadata.write.write_set import WriteSet
from tests.support.bench import At, Bench, T, U


def _parts(bench: Bench) -> set[str]:
    return {path for path in bench.disk.files if path.startswith("parts/")}


def _history(bench: Bench) -> set[str]:
    """Commit two versions, and fold after each of them, so that one snapshot of each segment is superseded. Return the parts."""
    for version in (1, 2):
        bench.party().coordinator.commit(bench.work(version))
        bench.party().sweeper.sweep()
    return _parts(bench)


def _snapshots(bench: Bench) -> set[str]:
    return {path for path in bench.disk.files if path.endswith(".avro")}


def test_orphans_go_at_the_orphan_age_and_superseded_snapshots_after_the_grace_period() -> None:
    bench = Bench()
    needed = _history(bench)
    assert len(_snapshots(bench)) == 6
    bench.work(3)  # these parts are staged and never committed
    assert delete_orphans(bench.party().cluster).files == 0
    bench.clock.now += bench.settings.orphan_age_ms + 1
    assert delete_orphans(bench.party().cluster).files == 3
    assert _parts(bench) == needed
    bench.clock.now += bench.settings.grace_period_ms + 1
    assert delete_orphans(bench.party().cluster).files == 3
    assert len(_snapshots(bench)) == 3
    bench.finish()


def test_the_grace_period_counts_from_when_a_file_was_superseded() -> None:
    """An orphan sweep may see a new snapshot before a record names it. The snapshot's grace period must not start then, but when
    the next fold supersedes the snapshot.
    """
    k = 0
    while True:
        bench = Bench()
        bench.party().coordinator.commit(bench.work(1))
        gate = At(k, meanwhile=lambda bench=bench: delete_orphans(bench.party().cluster), kinds=("write",))
        bench.party(gate).sweeper.sweep()
        bench.clock.now += bench.settings.grace_period_ms + bench.settings.orphan_age_ms
        bench.party().coordinator.commit(bench.work(2))
        named = _snapshots(bench)
        assert len(named) == 3
        bench.party().sweeper.sweep()  # this fold supersedes the snapshots
        delete_orphans(bench.party().cluster)
        assert named <= _snapshots(bench), gate.hit
        if not gate.hit:
            return
        k += 1


def test_two_orphan_sweeps_at_once() -> None:
    k = 0
    while True:
        bench = Bench()
        needed = _history(bench)
        bench.clock.now += bench.settings.orphan_age_ms + 1
        gate = At(k, meanwhile=lambda bench=bench: delete_orphans(bench.party().cluster))
        delete_orphans(bench.party(gate).cluster)
        bench.clock.now += bench.settings.grace_period_ms + 1
        delete_orphans(bench.party().cluster)
        delete_orphans(bench.party().cluster)
        assert _parts(bench) == needed, gate.hit
        assert len(_snapshots(bench)) == 3, gate.hit
        bench.finish()
        if not gate.hit:
            return
        k += 1


@pytest.mark.parametrize("fate", [Fate.CRASH_BEFORE, Fate.CRASH_AFTER])
def test_an_orphan_sweep_that_dies_at_every_step_deletes_no_live_file(fate: Fate) -> None:
    k = 0
    while True:
        bench = Bench()
        needed = _history(bench)
        bench.clock.now += bench.settings.orphan_age_ms + 1
        gate = At(k, fate)
        try:
            delete_orphans(bench.party(gate).cluster)
        except (Crashed, TxnSegmentError):
            assert gate.hit
        bench.clock.now += bench.settings.grace_period_ms + 1
        delete_orphans(bench.party().cluster)
        bench.clock.now += bench.settings.grace_period_ms + 1
        delete_orphans(bench.party().cluster)
        assert _parts(bench) == needed, gate.hit
        assert len(_snapshots(bench)) == 3, gate.hit
        if not gate.hit:
            return
        k += 1


@pytest.mark.parametrize("before_deciding", [False, True])
def test_a_driver_suspended_beyond_the_orphan_age_cannot_commit_deleted_parts(before_deciding: bool) -> None:
    """The driver is suspended after it has opened its transaction. The orphan sweep aborts the transaction before it deletes the
    parts, so the commit fails.
    """
    bench = Bench()
    work: WriteSet = bench.work(1)

    def long_after() -> None:
        bench.clock.now += bench.settings.orphan_age_ms + 1
        delete_orphans(bench.party().cluster)

    # Write 2 of the commit appends the registration, write 4 is the deciding CAS.
    gate = At(4 if before_deciding else 2, meanwhile=long_after, kinds=("write",))
    with pytest.raises(TxnConflict):
        bench.party(gate).coordinator.commit(work)
    assert not bench.committed(1), gate.hit


def test_a_slow_orphan_sweep_spares_parts_committed_meanwhile() -> None:
    """A sweep runs just before the driver's deciding CAS, and is suspended for the orphan age at one of its steps. It deletes no
    part of a committed transaction.
    """
    for k in range(40):
        bench = Bench()
        work = bench.work(1)

        def slept(bench: Bench = bench) -> None:
            bench.clock.now += bench.settings.orphan_age_ms + 1

        def sweep(slept: object = slept, bench: Bench = bench, k: int = k) -> None:
            delete_orphans(bench.party(At(k, meanwhile=slept)).cluster)

        try:
            bench.party(At(4, meanwhile=sweep, kinds=("write",))).coordinator.commit(work)
        except TxnConflict:
            assert not bench.committed(1)
        missing = [p.path for parts in work.parts.values() for p in parts if p.path not in bench.disk.files]
        assert not (missing and bench.committed(1)), k


def test_parts_staged_too_long_ago_are_refused() -> None:
    bench = Bench()
    work = bench.work(1)
    bench.clock.now += bench.settings.orphan_age_ms // 2 + 1
    with pytest.raises(TxnConflict, match="staged"):
        bench.party().coordinator.commit(work)
    assert not bench.headers()
    bench.party().coordinator.commit(bench.work(1, topics=(T, U)))
    bench.finish()


def test_two_orphan_notes_merge_to_their_common_files_and_later_times() -> None:
    """Two concurrent sweeps have each written a note of unprotected files. If only one note lists a file, the file was still
    protected when the other note was written, so its grace period starts again.
    """
    storage, now_ms = (cluster := Bench().party().cluster).storage, 1_000
    storage.publish("sweep/unprotected-1.json", b'{"a.avro": 500, "b.avro": 600}')
    storage.publish("sweep/unprotected-2.json", b'{"a.avro": 700}')
    assert _seen(cluster, ["sweep/unprotected-1.json", "sweep/unprotected-2.json"], now_ms) == {"a.avro": 700}
