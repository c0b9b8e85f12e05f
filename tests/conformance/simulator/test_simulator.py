"""Thousands of schedules of the real code break no rule, and a seed always gives the same schedule.

tests/conformance/mutants/test_mutants.py shows that the simulator finds faults.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from conformance.command.simulation import summaries
from conformance.history.format import Ack, Seal, Told, Trim
from conformance.simulator.casts import acking, compacting, moving, splitting
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import Summary, cast_of, play, schedule
from conformance.simulator.store import origins
from ledgers.compaction import Moved, Unit
from ledgers.storage import LedgerStorage


def simulated(count: int, only: str = "") -> Summary:
    """Run schedules on two cores, as `python -m conformance --simulate` does."""
    total = Summary()
    for part in summaries(2, count, 0, only):
        total.add(part)
    return total


@pytest.mark.slow
def test_8000_schedules_break_no_rule() -> None:
    found = simulated(8_000)
    assert not found.violations
    assert found.schedules == 8_000
    assert found.commits > 1_600
    assert found.crashes > 4_000


@pytest.mark.slow
def test_wide_schedules_break_no_rule() -> None:
    found = simulated(4_000, only="wide")
    assert not found.violations
    assert found.schedules == 4_000
    assert found.commits > 3_500
    assert found.crashes > 3_000


@pytest.mark.parametrize("only", ["", "wide"])
def test_the_same_seed_is_the_same_run(only: str) -> None:
    with quiet():
        for seed in range(20):
            first, second = (schedule(seed, only=only, trace=True) for _ in range(2))
            assert first.trace == second.trace
            assert first.digest == second.digest


def test_the_same_seed_is_the_same_run_in_another_process() -> None:
    """A seed gives the same schedule in another process, which has another hash seed and has run other schedules before."""
    with quiet():
        here = [schedule(seed, only=only, digest=True).digest for seed in range(24) for only in ("", "wide")]
    assert [_elsewhere(hash_seed) for hash_seed in ("1", "2")] == [here, here]


@pytest.mark.parametrize("only", ["", "wide"])
def test_a_run_that_is_traced_is_the_same_run(only: str) -> None:
    """A traced run is the same as a plain run, although actors wake each other directly only in a plain run."""
    with quiet():
        for seed in range(60):
            traced, plain = schedule(seed, only=only, trace=True), schedule(seed, only=only, digest=True)
            assert (traced.digest, traced.steps) == (plain.digest, plain.steps)


def _elsewhere(hash_seed: str) -> list[str]:
    code = "from conformance.simulator.schedules import schedule\n"
    code += "seeds = [(seed, only) for seed in range(24) for only in ('', 'wide')]\n"
    code += "for digest in reversed([schedule(s, only=k, digest=True).digest for s, k in reversed(seeds)]): print(digest)"
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return found.stdout.split()


def test_streams_read_every_row_despite_late_and_lost_watches() -> None:
    """Streams read all rows in 200 worlds. In some of these worlds a watch wakes a stream, in some a wake-up is lost, in some
    replicas lag.
    """
    worlds = [cast_of(seed, "wide").world for seed in range(200)]
    with quiet():
        for world in worlds:
            assert world.run(20_000)
    assert sum(world.watches.woken for world in worlds) > 5
    assert sum(world.watches.lost for world in worlds) > 5
    assert any(world.plan.lag for world in worlds)
    assert any(world.plan.zombie for world in worlds)


def test_consumers_that_acknowledge_break_no_rule() -> None:
    """Consumers acknowledge with and without transactions. Invariant 11 holds, even after crashes and lost replies."""
    alone, plain, states = 0, 0, Counter[str]()
    with quiet():
        for seed in range(40):
            cast = acking.drawn(random.Random(seed), False)
            assert not play(seed, cast, digest=False, trace=False).violations
            found = [event for event in cast.world.history.events if isinstance(event, Ack)]
            states += Counter(event.state for event in found)
            acks = [event for event in found if event.state == "acked"]
            alone += sum(len(end) > 2 for event in acks for ends in event.ranges for end in ends)
            plain += sum(event.txn is None for event in acks)
    assert alone > 20, "acks of single rows of an entry"
    assert plain > 20
    assert states["moved"] > 10, "cursors of a seek, or of a recreated subscription"
    assert states["deleted"] > 5


def test_movers_that_write_and_acknowledge_break_no_rule() -> None:
    """Movers write to two topics through staging manifests, and commit the rows together with acks of the rows that they read."""
    commits = 0
    with quiet():
        for seed in range(40):
            found = play(seed, moving.drawn(random.Random(seed), False), digest=False, trace=False)
            assert not found.violations
            commits += found.commits
    assert commits > 150  # the writers of the 40 worlds make 120 of these commits, the movers make the others


def test_compaction_and_trimming_beside_all_actors_break_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction and trimming run beside all actors, and no rule breaks. No actor sees that compaction has moved rows to other
    files, and trimmed rows do not come back.
    """
    moved: list[int] = []

    def counted(storage: LedgerStorage, folder: str, units: Sequence[Unit], *, name: str) -> Moved | None:
        found = origins.joined(storage, folder, units, name=name)
        moved.append(0 if found is None else len(found.parts))
        return found

    monkeypatch.setattr(compacting, "joined", counted)
    with quiet():
        found = [schedule(seed, only="compacting", digest=True) for seed in range(120)]
    assert not [outcome.violations for outcome in found if outcome.violations]
    assert sum(moved) > 80
    assert len(moved) > 30
    assert sum(isinstance(event, Trim) for outcome in found for event in outcome.events) > 10


def test_segments_split_and_merge_and_no_rule_breaks() -> None:
    """Segments split and merge beside keyed writers, two kinds of readers, sweepers and consumers. Invariants 12 and 13 hold."""
    whys, acks = list[str](), 0
    with quiet():
        for seed in range(60):
            cast = splitting.drawn(random.Random(seed), False)
            assert not play(seed, cast, digest=False, trace=False).violations
            whys += [event.why for event in cast.world.history.events if isinstance(event, Seal)]
            acks += sum(isinstance(event, Ack) for event in cast.world.history.events)
    assert whys.count("split") > 60
    assert whys.count("merge") > 15
    assert acks > 20


def test_short_schedules_split_merge_acknowledge_and_move() -> None:
    """Short schedules of three casts break no rule. The events for which a cast is made occur in its schedules."""
    seen = Counter[str]()
    with quiet():
        for cast_of_kind in (splitting.short, acking.short, moving.short):
            for seed in range(60):
                cast = cast_of_kind(random.Random(seed), False)
                assert not play(seed, cast, digest=False, trace=False).violations
                kind = cast_of_kind.__module__.rpartition(".")[2]
                for event in cast.world.history.events[len(cast.world.before) :]:
                    if isinstance(event, Seal):
                        seen[f"{kind} {event.why}"] += 1
                    elif isinstance(event, Ack):
                        seen[f"{kind} {event.state}"] += 1
                    elif isinstance(event, Told):
                        seen[f"{kind} {event.said}"] += 1
    for what in ("splitting split", "acking acked", "acking pending", "moving acked", "moving committed", "splitting committed"):
        assert seen[what] > 20, what
    for what in ("splitting merge", "splitting acked", "acking released", "acking moved"):
        assert seen[what] > 3, what
