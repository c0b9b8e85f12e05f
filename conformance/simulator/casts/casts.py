"""The casts of schedules without splits and without acknowledgements. `big` has many actors in a new world, `small` has a few
actors in a new world. `middle` has a few actors in a world with a past, in which transactions were committed before the first step
(`pasts`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from conformance.simulator.actors.readers import Stream, start_batch_reader, start_stream
from conformance.simulator.actors.sweepers import start_deleter, start_sweeper
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.pasts import PASTS, Past, past
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import SETTINGS, Actor, Process, World
from conformance.simulator.world.stage import D, T, U, staged
from metadata.read.reading import LogSelection


@dataclass
class Cast:
    """A world with all its actors.

    kept        the topics that are never deleted
    forgets     whether a second sweep runs at the end, after the retention time of headers, and the remaining records are counted
    orphans     whether the orphan sweep also runs at the end (only if `forgets`)
    topics      a count of topics, from which the limit for the event records that may remain at the end is computed
    also_wrong  yields further violations at the end
    settle      starts further work in the last phase, which has no faults (`World.calm`)
    finish      makes further checks after all deadlines
    """

    world: World
    jobs: list[Job]
    streams: list[Stream]
    kept: frozenset[str]
    forgets: bool
    orphans: bool
    topics: int
    also_wrong: Callable[[], Iterable[str]] = tuple
    settle: Callable[[], None] = lambda: None
    finish: Callable[[], None] = lambda: None


def big(rng: random.Random, trace: bool) -> Cast:
    """Return a cast of up to five writers, a batch reader, one or two streams and one or two sweepers. In some worlds further
    readers run in the writers' processes. In some worlds one more writer writes to a topic that another actor deletes.
    """
    deleted, sweeps_files = rng.random() < 0.25, rng.random() < 0.3
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500, 4_000))})
    world = World(
        rng,
        Plan.draw(rng),
        settings,
        state=staged((T, 2), (U, 1), (D, 1)),
        trace=[] if trace else None,
        files_go=deleted or sweeps_files,
    )
    jobs = _jobs(rng)
    streams = [
        Stream("s0", rng.choice((None, 1, 3)), selection=LogSelection((T, U))),
        Stream("s1", None, selection=LogSelection((T,))),
    ]
    streams = streams[: rng.choice((1, 2))]
    for job in jobs:
        process = start_driver(world, job)
        if rng.random() < 0.3:  # readers in the same process, whose threads share one cache of the log
            for i in range(rng.choice((1, 3))):
                start_batch_reader(world, f"{job.name}.reader{i}", LogSelection((T, U)), 3, process)
    for stream in streams:
        start_stream(world, stream)
    start_batch_reader(world, "b0", LogSelection((T, U)), 3)
    start_sweeper(world, "w0", 2, orphans=sweeps_files)
    if rng.random() < 0.5:
        start_sweeper(world, "w1", 2)
    if deleted:
        jobs.append(Job("drop", "drop", D, (D,), (0, 1)))
        start_driver(world, jobs[-1])
        start_deleter(world, "x0", D, recreate=rng.random() < 0.5)
        start_batch_reader(world, "b1", LogSelection((D,)), 2)
    return Cast(world, jobs, streams, frozenset({T, U} if deleted else {T, U, D}), forgets=True, orphans=True, topics=3)


def small(rng: random.Random, trace: bool, *, brief: bool = False) -> Cast:
    """Return a cast of two writers of one or two versions, a stream or a batch reader or both, up to two sweepers, and in some
    worlds a deleted topic.
    """
    deleted, sweeps_files = rng.random() < 0.16, rng.random() < 0.03
    update = {"header_retention_ms": rng.choice((0, 0, 5, 500, 4_000)), "fold_after_registrations": rng.choice((1, 3, 64))}
    world = World(
        rng,
        Plan.draw(rng, small=True),
        SETTINGS.model_copy(update=update),
        state=staged((T, 2), (D, 1)) if deleted else staged((T, 2), (U, 1)),
        trace=[] if trace else None,
        files_go=deleted or sweeps_files,
        rested=rng.random() < 0.6,
    )
    world.brief = brief
    empty = frozenset(v for v in (0, 1) if rng.random() < 0.15)
    versions = rng.choice(((0,), (0,), (0,), (0, 1)))
    jobs = [Job("q", "q", T, (T,), versions, replays=True, by="query-q", empty=empty)]
    names = (T,) if deleted else (T, U)
    if deleted:
        jobs.append(Job("drop", "drop", D, (D,), (0,)))
        start_deleter(world, "x0", D, recreate=rng.random() < 0.5, within=60)
    else:
        jobs.append(
            rng.choice(
                (
                    Job("q2", "q", T, (T,), versions, replays=True, by="query-q", empty=empty),
                    Job("q2", "q", T, (T,), versions, replays=True, by="query-q", empty=empty),
                    Job("o", "q", T, (T,), (0,), replays=True, by="query-o"),
                    Job("m", "m", "", (T, U), (1,)),
                    Job("m", "m", "", (T, U), (1,)),
                    Job("r", "r-random", U, (U,), (1,), random=True, empty=frozenset({1} if rng.random() < 0.2 else ())),
                )
            )
        )
    for job in jobs:
        process = start_driver(world, job, tries=4, within=8)
        if rng.random() < 0.1:
            for i in range(2):
                start_batch_reader(world, f"{job.name}.reader{i}", LogSelection(names), 2, process, within=30)
    crowded = rng.random() < 0.2  # many reads while other actors settle and fold
    reads = rng.random()
    if crowded or reads < 0.6:
        streams = [Stream("s0", rng.choice((None, 1)), selection=LogSelection(names), left=4 if crowded else 2)]
        start_stream(world, streams[0], within=60)
    else:
        streams = []
    if crowded or reads > 0.5:
        batch = LogSelection((D,) if deleted and reads > 0.8 else names)
        start_batch_reader(world, "b0", batch, 4 if crowded else 2, within=60)
    if crowded or deleted or sweeps_files or rng.random() < 0.75:
        start_sweeper(world, "w0", 1 + crowded, orphans=sweeps_files, share=False, after=12, within=40)
    if crowded or rng.random() < 0.1:
        start_sweeper(world, "w1", 1 + crowded, share=rng.random() < 0.3, after=12, within=40)
    orphans = sweeps_files or rng.random() < 0.04
    return Cast(world, jobs, streams, frozenset({T, U}), forgets=orphans or rng.random() < 0.3, orphans=orphans, topics=2)


def middle(rng: random.Random, trace: bool, *, sweeping: float = 0.04, brief: bool = False) -> Cast:
    """Return a cast of one or two sweepers, readers and at most one writer, in a world with a past (`pasts`). Some of the actors
    pause for many steps while the others work. `sweeping`: the share of worlds in which orphans are swept, too. `brief`: as in
    `World`.
    """
    before = past(rng.choice(PAST_NAMES))
    sweeps_files = rng.random() < sweeping
    world = before.world(
        rng,
        Plan.draw(rng, small=True),
        SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 0, 0, 5, 4_000))}),
        trace=trace,
        files_go=sweeps_files,
        rested=rng.random() < 0.8,
    )
    world.brief = brief
    selection = LogSelection((T, U))
    sweepers = [start_sweeper(world, "w0", 1, orphans=sweeps_files, share=False, within=16)]
    if rng.random() < 0.25:
        sweepers.append(start_sweeper(world, "w1", 1, share=False, within=50))
    readers, streams = list[Actor](), list[Stream]()
    kind = rng.random()
    if kind < 0.55:
        readers.append(start_batch_reader(world, "b0", selection, rng.choice((1, 1, 2)), within=16))
    elif kind < 0.8:
        streams.append(Stream("s0", rng.choice((None, 1)), selection=selection, left=2))
        readers.append(start_stream(world, streams[0], within=16))
    else:
        process = Process(world, "b")
        readers += [start_batch_reader(world, f"b{i}", selection, rng.choice((1, 2)), process, within=16) for i in (0, 1)]
    jobs = go_on(world, before, 0.3)
    for sleeper in readers:
        if rng.random() < 0.45:
            sleeper.nap = rng.choice((0, 1, 1, 2, 2, 3, 4, 6, 9, 14)), rng.choice((10, 30, 1_000))
    for sleeper in sweepers:
        may_nap(sleeper, 0.45, 26)
    orphans = sweeps_files or rng.random() < 0.02
    return Cast(world, jobs, streams, frozenset({T, U}), forgets=orphans or rng.random() < 0.22, orphans=orphans, topics=2)


def go_on(world: World, before: Past, share: float, *, within: int = 40) -> list[Job]:
    """Return the jobs of a past with their progress. In `share` of the worlds, also start a driver for the first job. The driver
    writes the job's last version again, as if Spark's commit log had lost its entry, or its next version, or both.
    """
    rng = world.rng
    jobs = [replace(job, versions=job.versions[: job.at]) for job in before.jobs]
    if rng.random() < share:
        at = before.jobs[0].at
        jobs[0] = replace(before.jobs[0], at=at - 1, versions=(0, 1, 2)[: at + rng.choice((0, 1))])
        if rng.random() < 0.5 and len(jobs[0].versions) > at:
            jobs[0].at = at
        start_driver(world, jobs[0], tries=4, within=within)
    return jobs


def may_nap(actor: Actor, share: float, steps: int) -> None:
    """In `share` of the worlds, let the actor pause once within its first `steps` steps. The pause may last until all other actors
    are done.
    """
    rng = actor.process.world.rng
    if rng.random() < share:
        actor.nap = rng.randrange(steps), rng.choice((10, 30, 60, 1_000))


PAST_NAMES = tuple(PASTS)


def _jobs(rng: random.Random) -> list[Job]:
    """Return one streaming job, and some other jobs at random. Two jobs of one application are twins."""
    empty = frozenset(v for v in (0, 1, 2) if rng.random() < 0.15)
    jobs = [Job("q", "q", T, (T,), (0, 1, 2)[: rng.choice((2, 3))], replays=True, by="query-q", empty=empty)]
    if rng.random() < 0.6:
        jobs.append(Job("q2", "q", T, (T,), jobs[0].versions, replays=True, by="query-q", empty=empty))
    if rng.random() < 0.15:  # a new checkpoint of the same application
        jobs.append(Job("o", "q", T, (T,), (0,), replays=True, by="query-o"))
    if rng.random() < 0.6:
        jobs.append(Job("m", "m", "", (T, U), (1, 2)))
    if rng.random() < 0.4:
        jobs.append(Job("r", "r-random", U, (U,), (1,), random=True, empty=frozenset({1} if rng.random() < 0.2 else ())))
    return jobs
