"""A segment's maxReadPosition never goes back (protocol.md section 8, invariant 6)."""

from __future__ import annotations

import pytest

from conformance.simulator.store.faults import Crashed, Fate
from metadata.read.reading import LogSelection
from tests.support.bench import Bench, T


def test_max_read_position_never_goes_back_over_a_void_ledger() -> None:
    """A sweep folds a segment beyond a reader's cut, after the reader has read the log and before it reads the watermarks. The
    segment's maxReadPosition must not go back.

    Formerly the first read returned the watermark's position, which is that of a void ledger. The second read returned the lower
    position of the last visible ledger (found by the simulator with seed 101036, at commit 466bd05).
    """
    bench = Bench()
    party, reader = bench.party(), bench.party()
    party.coordinator.commit(bench.work(1, topics=(T,)))
    with pytest.raises(Crashed):
        bench.party(lambda kind, what: Fate.CRASH_BEFORE if what.startswith("Put /txn/op/") else Fate.GO).coordinator.commit(
            bench.work(2, topics=(T,))
        )
    bench.late()
    for _ in range(3):
        party.sweeper.sweep()
    selection = LogSelection((T,))
    before = reader.buffer.read(selection)
    tops = [s.last(before.cut) for s in before.segments]

    def fold_beyond(kind: str, what: str) -> Fate:
        if kind == "get" and what.startswith("/txn/segment-state/watermark/") and not folded:
            folded.append(True)
            other = bench.party()
            other.coordinator.commit(bench.work(3, topics=(T,)))
            bench.late()
            for _ in range(3):
                other.sweeper.sweep()
        return Fate.GO

    folded: list[bool] = []
    reader.cluster.store.gate = fold_beyond  # type: ignore[attr-defined]
    after = reader.buffer.read(selection)
    assert folded
    assert after.cut < after.segments[0].folded_to
    assert [s.last(after.cut) for s in after.segments] == tops == [(1, 0), (1, 0)]
