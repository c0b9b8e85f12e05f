"""Schedules of the marker-based model: persistent topics, whose logs have markers. The faults are the same as in other schedules.
A quarter of the schedules also have a writer and a reader of a topic:// topic. No process owns the log of a topic or of a
coordinator: every process works on all of these logs.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from conformance.history.format import Counts
from conformance.simulator.actors.consuming import start_consumer
from conformance.simulator.actors.in_stream_clients import start_client, start_producer
from conformance.simulator.actors.in_stream_readers import read_all, start_in_stream_reader
from conformance.simulator.actors.readers import start_batch_reader, start_stream
from conformance.simulator.actors.spark_readers import SparkStream
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.casts import Cast
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import SETTINGS, Process, World
from conformance.simulator.world.stage import P, Q, T, staged
from metadata.client.passes import delete_orphans
from metadata.instream.client import InStream
from metadata.read.reading import LogSelection
from metadata.records.names import persistent_name

SUBSCRIPTION = "s"
"""The subscription of P and Q in worlds with consumers."""
PACE = {"tries": 6, "within": 30}
"""Arguments of `start_driver`: the number of tries of a job, and the number of steps within which its driver begins."""
COORDINATORS = "/persistent/logs/persistent%3A%2F%2Fpulsar%2F"


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a long cast: twins of one application, another application over both topics, clients, producers of plain messages,
    readers, and keepers, which sweep. Some worlds also have an actor that trims, or an actor that terminates a topic.
    """
    return _cast(rng, trace, long=True)


def short(rng: random.Random, trace: bool) -> Cast:
    """Return a short cast: fewer actors than `drawn`, with fewer rounds each."""
    return _cast(rng, trace, long=False)


def _cast(rng: random.Random, trace: bool, *, long: bool) -> Cast:
    mixed, consumed = rng.random() < 0.25, rng.random() < 0.25
    world = world_of(rng, trace, mixed=mixed, consumed=consumed)
    within = 120 if long else 50
    later = 2 * within  # readers start later, when rows exist
    jobs = _jobs(rng, long=long)
    for job in jobs:
        process = start_driver(world, job, **PACE)
        if rng.random() < 0.15:  # a reader in the same process
            start_in_stream_reader(world, f"{job.name}.reader", (P, Q), 2, process, within=within)
        if rng.random() < 0.15:  # a sweeper in the same process
            start_keeper(world, f"{job.name}.keeper", 1, process, within=within)
    for i in range(rng.choice((0, 1, 2) if long else (0, 1))):
        start_client(world, f"c{i}", (P, Q), rng.choice((1, 2)), within=within)
    if rng.random() < (0.5 if long else 0.25):
        start_producer(world, "plain", rng.choice((P, Q)), rng.choice((1, 3)), within=within)
    if rng.random() < 0.7:
        process = Process(world, "b")
        for i in range(rng.choice((1, 1, 2))):  # two threads share one cache of the logs, like two queries of one program
            start_in_stream_reader(world, f"b{i}", (P, Q), rng.choice((2, 4) if long else (1, 2)), process, within=later)
    if rng.random() < 0.4:
        start_stream(world, SparkStream("s0", rng.choice((None, 1)), topic=P), within=later)
    for i in range(rng.choice((1, 2, 3) if long else (0, 1, 1))):
        start_keeper(world, f"k{i}", rng.choice((1, 3) if long else (1, 2)), within=within)
    if consumed:
        for i in range(3):
            start_consumer(world, f"u{i}", P, SUBSCRIPTION, rounds=3, plain=i == 2, within=later, cumulative=0.3)
    elif rng.random() < 0.2:
        start_trimmer(world, "r0", rng.choice((P, Q)), within=later)
    if rng.random() < 0.05:
        _start_terminating(world, "x0", Q, within=within)
    others = _others(world) if mixed else []
    cast = Cast(world, others, [], frozenset({T}) if mixed else frozenset(), forgets=False, orphans=False, topics=1)
    cast.settle, cast.finish = partial(settle_in_stream, world, jobs), partial(finish_in_stream, world, jobs)
    return cast


def world_of(rng: random.Random, trace: bool, *, mixed: bool, consumed: bool) -> World:
    """Return a world with the persistent topics P and Q. `mixed`: also the topic T. `consumed`: P and Q have a subscription."""
    return World(
        rng,
        Plan.draw(rng, small=True),
        SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500))}),
        state=staged(*([(T, 2)] if mixed else []), persistent=(P, Q), subscription=SUBSCRIPTION if consumed else None),
        trace=[] if trace else None,
        files_go=False,
        rested=True,
    )


def _jobs(rng: random.Random, *, long: bool) -> list[Job]:
    versions = rng.choice(((0, 1), (0, 1, 2)) if long else ((0,), (0,), (0, 1)))
    empty = frozenset(v for v in (0, 1, 2) if rng.random() < 0.12)
    jobs = [Job("q", "q", "", rng.choice(((P,), (P, Q))), versions, replays=True, by="query-q", empty=empty)]
    if rng.random() < 0.5:
        jobs.append(Job("q2", "q", "", jobs[0].topics, versions, replays=True, by="query-q", empty=empty))
    if rng.random() < 0.15:  # a new checkpoint of the same application
        jobs.append(Job("o", "q", "", jobs[0].topics, (0,), replays=True, by="query-o"))
    if rng.random() < 0.5:
        jobs.append(Job("m", "m", "", (P, Q), (1, 2)[: rng.choice((1, 2))]))
    if rng.random() < 0.2:
        jobs.append(Job("r", "r-random", "", (Q,), (1,), random=True))
    return jobs


def _others(world: World) -> list[Job]:
    """Start a writer and a reader of a topic:// topic on the same store. Return the jobs."""
    jobs = [Job("t", "q", T, (T,), (0, 1), replays=True, by="query-t")]
    for job in jobs:
        start_driver(world, job, tries=4, within=30)
    start_batch_reader(world, "bt", LogSelection((T,)), 2)
    return jobs


def start_keeper(world: World, name: str, rounds: int, process: Process | None = None, *, within: int) -> None:
    """Start an actor that runs a sweep or one part of a sweep in each round. Sometimes the actor pauses for many steps while the
    others work.
    """
    rng = world.rng

    def keep(process: Process) -> None:
        hands = process.client.instream
        parts: dict[str, Callable[[], object]] = {
            "sweep": lambda: hands.sweeper.sweep().complain(),
            "end": lambda: (hands.sweeper.timeouts(), hands.coordinator.ending.finish_all()),
            "snapshot": lambda: [hands.buffer.snapshot(persistent_name(topic)) for topic in (P, Q)],
            "compact": hands.coordinator.log.compact,
        }
        parts["sweep" if rng.random() < 0.5 else rng.choice(sorted(parts))]()

    actor = start_rounds(world, name, rounds, keep, process=process, pause=0.2, within=within)
    if rng.random() < 0.4:
        actor.nap = rng.randrange(20), rng.choice((10, 30, 60, 1_000))


def start_trimmer(world: World, name: str, topic: str, *, within: int) -> None:
    """Start an actor that trims the rows of a topic up to a random number at or below the cut."""

    def trim(process: Process) -> None:
        hands = process.client.instream
        reading = hands.buffer.read(persistent_name(topic))
        hands.sweeper.trimmer.trim_to(reading, world.rng.randint(0, reading.cut))
        hands.sweeper.trimmer.leave(persistent_name(topic))

    start_rounds(world, name, 2, trim, pause=0.2, within=within)


def _start_terminating(world: World, name: str, topic: str, *, within: int) -> None:
    def terminate(process: Process) -> None:
        process.client.instream.sealing.terminate(persistent_name(topic))

    start_rounds(world, name, 1, terminate, within=within)


# --- the end ------------------------------------------------------------------------------------------------------------


def settle_in_stream(world: World, jobs: list[Job]) -> None:
    """Start a driver for each job that is not done. This is called after the faults have ended, so that all writes succeed."""
    for job in jobs:
        if not job.done:
            start_driver(world, job, **PACE)


def finish_in_stream(world: World, jobs: list[Job]) -> None:
    """Check the world at its end, after all deadlines. Each job must be done. After a sweep, new readers must see the committed
    rows. After the retention time of headers and another sweep, no coordinator's log may have entries.
    """
    for job in jobs:
        if not job.done:
            world.history.bad(f"the job {job.name} did not finish: at {job.at} of {job.versions}")
    _end(world).sweeper.sweep().complain()
    _read_everything(world, "end0")
    if world.rng.random() < 0.15:  # check that the orphan sweep deletes no file in use
        world.clock.now += world.settings.orphan_age_ms + 1
        for _ in range(2):
            delete_orphans(Process(world, "end").cluster)
            world.clock.now += world.settings.grace_period_ms + 1
        _read_everything(world, "end1")
    world.clock.now += world.settings.header_retention_ms + 1
    _end(world).sweeper.sweep().complain()
    left = sum(key.path.startswith(COORDINATORS) for key in world.state.records)
    history = world.history
    history.events.append(Counts(history.now(), "at the end", {"entries of a coordinator": left}, {"entries of a coordinator": 0}))


def _end(world: World) -> InStream:
    return Process(world, "end").client.instream


def _read_everything(world: World, name: str) -> None:
    for topic in (P, Q):
        read_all(world, Process(world, name).client.instream.buffer, "reader at the end", topic, final=True)
