"""The threads of a simulated process are greenlets of one thread. Only one of the threads that request the same lock of
`Cluster.lock` runs at a time.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from conformance.simulator.store.faults import Fate
from conformance.simulator.world.plan import CHANCES, Plan
from conformance.simulator.world.scheduler import Process, World
from metadata.records.paths import Key

A = Key("/a", "")


def run(seed: int, *, locked: bool = True, crashes: int = 0) -> tuple[list[tuple[str, str]], World]:
    """Run three threads of a process, each of which reads three times, under one lock if `locked`. Return the order in which the
    threads began (`in`) and ended (`out`) their reads, and the world.
    """
    rng = random.Random(seed)
    fates = ((CHANCES // 20, Fate.CRASH_BEFORE),) if crashes else ()
    world = World(rng, replace(Plan.draw(rng), fates=fates, crashes=crashes))
    process, seen = Process(world, "p"), list[tuple[str, str]]()
    lock = process.cluster.lock()

    def reads(name: str) -> None:
        seen.append((name, "in"))
        for _ in range(3):
            process.store.view().get_many([A])
        seen.append((name, "out"))

    def thread(name: str) -> None:
        if not locked:
            reads(name)
            return
        with lock, lock:  # a thread that holds the lock may take it again
            reads(name)

    for name in ("a", "b", "c"):
        world.spawn(process, name, partial(thread, name))
    assert world.run(1_000)
    return seen, world


def apart(seen: list[tuple[str, str]]) -> bool:
    return all(seen[i][0] == seen[i + 1][0] for i in range(0, len(seen) - 1, 2))


def test_a_lock_serves_every_waiter_one_after_the_other() -> None:
    for seed in range(100):
        seen, _ = run(seed)
        assert sorted(seen) == [(name, way) for name in "abc" for way in ("in", "out")]
        assert apart(seen), (seed, seen)
    assert not all(apart(run(seed, locked=False)[0]) for seed in range(100)), "without the lock some schedules mix the threads"


def test_a_lock_waiter_dies_with_its_process() -> None:
    died = 0
    for seed in range(300):
        seen, world = run(seed, crashes=1)
        died += world.crashes
        assert apart(seen), (seed, seen)
        assert len(seen) == 6 or world.crashes
    assert died > 10
