"""The sweeper (protocol.md section 7): what one damaged file may hold up, what is deleted when, what stays bounded."""

from __future__ import annotations

import pytest
from bench import Bench, T, U

from conformance.simulator.faults import Crashed, Fate
from ledgers.errors import CorruptSnapshot
from metadata.errors import SweepIncomplete
from metadata.orphans import sweep_orphans
from metadata.records import Settings


def flipped(bench: Bench, path: str) -> None:
    data, mtime = bench.disk.files[path]
    bench.disk.files[path] = (data[:-1] + bytes([data[-1] ^ 1]), mtime)


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("how", ["sweep", "share"])
def test_one_unreadable_snapshot_holds_up_its_segment_only(how: str, gone: bool) -> None:
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
    assert not bench.headers(), "forgetting stopped"
    assert len(bench.kept("/log/")) == 1, "the rows of the other topic are folded, and its registration dropped"
    with pytest.raises(CorruptSnapshot):
        sweep_orphans(bench.party().cluster)  # what the snapshot protects is unknown: no file is deleted
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
