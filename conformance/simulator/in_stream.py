"""Schedules of the older model: persistent topics, whose logs decide, through the same faults as everything else; in a quarter of
them beside writers and readers of topic://. Nobody owns a topic or a coordinator's log: all of them act as both.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from conformance.simulator.in_stream_clients import Party, start_client, start_in_stream_driver, start_producer
from conformance.simulator.in_stream_readers import read_all, start_in_stream_reader, start_in_stream_stream
from conformance.simulator.plan import Plan
from conformance.simulator.readers import Stream, start_batch_reader
from conformance.simulator.scheduler import SETTINGS, Process, World
from conformance.simulator.schedules import STEPS, Cast
from conformance.simulator.stage import P, Q, T, staged
from conformance.simulator.writers import Job, start_driver
from metadata.errors import TxnSegmentError
from metadata.transaction_buffer import Selection


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Twins of one application, another one over both topics, clients that go step by step, a producer, readers, sweepers."""
    mixed = rng.random() < 0.25
    world = World(
        rng,
        Plan.draw(rng, small=True),
        SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500))}),
        state=staged(*([(T, 2)] if mixed else []), persistent=(P, Q)),
        trace=[] if trace else None,
        files_go=False,
        rested=True,
    )
    jobs = _jobs(rng)
    for job in jobs:
        process = start_in_stream_driver(world, job)
        if rng.random() < 0.15:  # a reader in the same process
            start_in_stream_reader(world, f"{job.name}.reader", (P, Q), 2, process)
    for i in range(rng.choice((0, 1, 2))):
        start_client(world, f"c{i}", (P, Q), rng.choice((1, 2)))
    if rng.random() < 0.4:
        start_producer(world, "plain", P, rng.choice((1, 3)))
    if rng.random() < 0.7:
        start_in_stream_reader(world, "b0", (P, Q), rng.choice((2, 4)))
    streams = [Stream("s0", Selection((P,)), rng.choice((None, 1)), left=3)] if rng.random() < 0.5 else []
    for stream in streams:
        start_in_stream_stream(world, stream, P)
    for i in range(rng.choice((0, 1, 1, 2))):
        start_keeper(world, f"k{i}", rng.choice((1, 2)))
    others = _others(world) if mixed else []
    cast = Cast(world, others, [], frozenset({T}) if mixed else frozenset(), forgets=False, orphans=False, topics=1)
    cast.settle, cast.finish = _settle(world, jobs), lambda: _finish(world)
    return cast


def _jobs(rng: random.Random) -> list[Job]:
    versions = rng.choice(((0,), (0, 1), (0, 1, 2)))
    empty = frozenset(v for v in (0, 1, 2) if rng.random() < 0.12)
    jobs = [Job("q", "q", "", rng.choice(((P,), (P, Q))), versions, replays=True, by="query-q", empty=empty)]
    if rng.random() < 0.5:
        jobs.append(Job("q2", "q", "", jobs[0].topics, versions, replays=True, by="query-q", empty=empty))
    if rng.random() < 0.15:  # a new checkpoint under the old name
        jobs.append(Job("o", "q", "", jobs[0].topics, (0,), replays=True, by="query-o"))
    if rng.random() < 0.5:
        jobs.append(Job("m", "m", "", (P, Q), (1, 2)[: rng.choice((1, 2))]))
    if rng.random() < 0.2:
        jobs.append(Job("r", "r-random", "", (Q,), (1,), random=True))
    return jobs


def _others(world: World) -> list[Job]:
    """Those who have nothing to do with it, on the same store."""
    jobs = [Job("t", "q", T, (T,), (0, 1), replays=True, by="query-t")]
    for job in jobs:
        start_driver(world, job, tries=4, within=30)
    start_batch_reader(world, "bt", Selection((T,)), 2)
    return jobs


def start_keeper(world: World, name: str, rounds: int, *, within: int = 200) -> None:
    """Somebody who sweeps: he ends what is late and finishes what is decided. One who sleeps over it wakes to another world."""
    process, rng = Process(world, name), world.rng

    def run() -> None:
        for _ in range(rounds):
            try:
                _sweep(Party(world, process))
            except TxnSegmentError:
                continue
            process.cluster.clock.sleep(0.2)

    actor = world.spawn(process, name, run, delay=rng.randrange(within))
    if rng.random() < 0.4:
        actor.nap = rng.randrange(20), rng.choice((10, 30, 60, 1_000))


def _sweep(party: Party) -> None:
    party.coordinator.ending.timeouts()
    party.coordinator.ending.finish_all()


# --- the end ------------------------------------------------------------------------------------------------------------


def _settle(world: World, jobs: list[Job]) -> Callable[[], None]:
    """In the calm everybody finishes what he had to write."""

    def settle() -> None:
        for job in jobs:
            if not job.done:
                start_in_stream_driver(world, job)
        if not world.run(world.steps + STEPS):
            world.history.bad(f"no end in the calm: {[a.name for a in world.actors]}")
        for job in jobs:
            if not job.done:
                world.history.bad(f"the job {job.name} did not finish: at {job.at} of {job.versions}")

    return settle


def _finish(world: World) -> None:
    """Everything is late by now: one sweep, and every participant shows what was committed, to old readers and to new ones."""
    _sweep(Party(world, Process(world, "end")))
    for topic in (P, Q):
        read_all(world, Party(world, Process(world, "end0")), "reader at the end", topic, final=True)
