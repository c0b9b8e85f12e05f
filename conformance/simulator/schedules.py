"""One schedule by its seed: set the stage, let the actors run, end all faults, sweep, and check."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import random
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from conformance.history.format import Event, Row
from conformance.simulator import checks
from conformance.simulator.pasts import PASTS, past
from conformance.simulator.plan import Plan
from conformance.simulator.quiet import quiet, quiet_forever, tidy
from conformance.simulator.readers import Stream, collect, saw, start_batch_reader, start_stream
from conformance.simulator.scheduler import SETTINGS, Actor, Process, World
from conformance.simulator.stage import D, T, U, staged
from conformance.simulator.sweepers import start_deleter, start_sweeper
from conformance.simulator.writers import Job, start_driver
from ledgers import snapshots
from metadata import coordinator, paths
from metadata.orphans import sweep_orphans
from metadata.topics import Topics
from metadata.transaction_buffer import Selection

STEPS = 20_000
BIG = 0.02
"""The share of schedules with everything in them."""
MIDDLE = 0.5
"""The share of those that begin in the middle of things; the others have two writers, a reader or two, a sweeper or two."""

SPLITTING = 0.1
"""The share in which topics with keys are split and merged."""
ACKING = 0.1
"""The share in which consumers acknowledge, row by row, in transactions and without."""
MOVING = 0.05
"""The share in which movers take, write two topics and acknowledge in one transaction, staged through manifests."""
COMPACTING = 0.05
"""The share in which somebody compacts and trims what the others write, read and acknowledge."""
BACKING = 0.02
"""The share in which backups are taken and restored."""
INSTREAM = 0.03
"""The share of the older model: persistent topics, some of them beside topic://."""
SHARES = {
    "splitting": SPLITTING,
    "acking": ACKING,
    "moving": MOVING,
    "compacting": COMPACTING,
    "backing": BACKING,
    "instream": INSTREAM,
}
KINDS = tuple(SHARES)
"""What schedules can be asked to be of alone."""


@dataclass
class Outcome:
    """What one schedule gave. `digest` is the same for the same seed. `before`: commits that its world began with."""

    seed: int
    violations: list[str]
    steps: int
    commits: int
    reads: int
    crashes: int
    digest: str
    trace: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """The history, for a file; with the digest only."""
    before: int = 0


def schedule(seed: int, *, only: str = "", trace: bool = False, digest: bool = False) -> Outcome:
    """Run the schedule of a seed; `only`: of one of the KINDS. Nothing else outside the seed has a say in it. `digest`: compute the
    outcome's digest (of all that was seen, said, committed and found), and the last state of the store; with `trace` it is, too.
    """
    rng = random.Random(seed)
    with _sizes(*rng.choice(((256, 8, 512 * 1024), (2, 2, 512 * 1024), (256, 8, 0), (2, 2, 0)))):
        cast = _drawn(rng, trace, only)
        outcome = play(seed, cast, digest=digest or trace, trace=trace)
        cast.world.close()
        return outcome


def cast_of(seed: int) -> Cast:
    """The world of a seed with everybody in it, before its first step (its snapshots are as big as in production)."""
    rng = random.Random(seed)
    return _drawn(rng, False)


def _drawn(rng: random.Random, trace: bool, only: str = "") -> Cast:
    chance = rng.random()
    if only:
        return _of_kind(only)(rng, trace)
    top = 1.0
    for kind, share in SHARES.items():
        top -= share
        if chance >= top:
            return _of_kind(kind)(rng, trace)
    return _big(rng, trace) if chance < BIG else middle(rng, trace) if chance < BIG + MIDDLE else _small(rng, trace)


def _of_kind(kind: str) -> Callable[[random.Random, bool], Cast]:
    from conformance.simulator import acking, backups, compacting, in_stream, moving, splitting  # they make casts of ours

    return {
        "splitting": splitting.drawn,
        "acking": acking.drawn,
        "moving": moving.drawn,
        "compacting": compacting.drawn,
        "backing": backups.drawn,
        "instream": in_stream.drawn,
    }[kind]


@contextmanager
def _sizes(tail_parts: int, fanout: int, inline: int) -> Iterator[None]:
    """So small that few transactions make ledger files of several levels, and manifests."""
    before = snapshots.TAIL_PARTS, snapshots.FANOUT, coordinator.MAX_INLINE
    snapshots.TAIL_PARTS, snapshots.FANOUT, coordinator.MAX_INLINE = tail_parts, fanout, inline
    try:
        yield
    finally:
        snapshots.TAIL_PARTS, snapshots.FANOUT, coordinator.MAX_INLINE = before


@dataclass
class Cast:
    """A world with everybody in it. `kept`: topics that nobody deletes. `forgets`: whether the end sweeps once more, when headers
    are old enough to go, and looks at what is left; `orphans`: whether it sweeps the files, too. `also_wrong`: what else is found
    when all is over. `settle`: what else ends in the calm; `finish`: what else is looked at when all is late.
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


def _big(rng: random.Random, trace: bool) -> Cast:
    """Up to five writers of several versions, readers in their processes, two streams, two sweepers, a topic that is deleted."""
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
    streams = [Stream("s0", Selection((T, U)), rng.choice((None, 1, 3))), Stream("s1", Selection((T,)), None)]
    streams = streams[: rng.choice((1, 2))]
    for job in jobs:
        process = start_driver(world, job)
        if rng.random() < 0.3:  # a reader in the same process: threads that share one memory of the log
            for i in range(rng.choice((1, 3))):
                start_batch_reader(world, f"{job.name}.reader{i}", Selection((T, U)), 3, process)
    for stream in streams:
        start_stream(world, stream)
    start_batch_reader(world, "b0", Selection((T, U)), 3)
    start_sweeper(world, "w0", 2, orphans=sweeps_files)
    if rng.random() < 0.5:
        start_sweeper(world, "w1", 2)
    if deleted:
        jobs.append(Job("drop", "drop", D, (D,), (0, 1)))
        start_driver(world, jobs[-1])
        start_deleter(world, "x0", D, recreate=rng.random() < 0.5)
        start_batch_reader(world, "b1", Selection((D,)), 2)
    return Cast(world, jobs, streams, frozenset({T, U} if deleted else {T, U, D}), forgets=True, orphans=True, topics=3)


def _small(rng: random.Random, trace: bool) -> Cast:
    """Two writers of one or two versions, a stream or a batch reader or both, a sweeper or two; now and then a deletion."""
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
                start_batch_reader(world, f"{job.name}.reader{i}", Selection(names), 2, process, within=30)
    crowded = rng.random() < 0.2  # many who read while others settle and fold
    reads = rng.random()
    if crowded or reads < 0.6:
        streams = [Stream("s0", Selection(names), rng.choice((None, 1)), left=4 if crowded else 2)]
        start_stream(world, streams[0], within=60)
    else:
        streams = []
    if crowded or reads > 0.5:
        batch = Selection((D,) if deleted and reads > 0.8 else names)
        start_batch_reader(world, "b0", batch, 4 if crowded else 2, within=60)
    if crowded or deleted or sweeps_files or rng.random() < 0.75:
        start_sweeper(world, "w0", 1 + crowded, orphans=sweeps_files, share=False, after=12, within=40)
    if crowded or rng.random() < 0.1:
        start_sweeper(world, "w1", 1 + crowded, share=rng.random() < 0.3, after=12, within=40)
    orphans = sweeps_files or rng.random() < 0.04
    return Cast(world, jobs, streams, frozenset({T, U}), forgets=orphans or rng.random() < 0.3, orphans=orphans, topics=2)


def middle(rng: random.Random, trace: bool) -> Cast:
    """What is committed is there: who sweeps, reads and goes on writing meet over it, and one of them sleeps at a bad moment."""
    before = past(rng.choice(_PASTS))
    sweeps_files = rng.random() < 0.05
    world = before.world(
        rng,
        Plan.draw(rng, small=True),
        SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 0, 0, 5, 4_000))}),
        trace=trace,
        files_go=sweeps_files,
        rested=rng.random() < 0.8,
    )
    selection = Selection((T, U))
    sweepers = [start_sweeper(world, "w0", 1, orphans=sweeps_files, share=False, within=16)]
    if rng.random() < 0.4:
        sweepers.append(start_sweeper(world, "w1", 1, share=False, within=50))
    readers, streams = list[Actor](), list[Stream]()
    kind = rng.random()
    if kind < 0.5:
        readers.append(start_batch_reader(world, "b0", selection, rng.choice((1, 2)), within=16))
    elif kind < 0.75:
        streams.append(Stream("s0", selection, rng.choice((None, 1)), left=2))
        readers.append(start_stream(world, streams[0], within=16))
    else:
        process = Process(world, "b")
        readers += [start_batch_reader(world, f"b{i}", selection, 2, process, within=16) for i in (0, 1)]
    jobs = [replace(job, versions=job.versions[: job.at]) for job in before.jobs]
    if rng.random() < 0.5:  # the next version, or the last one once more: Spark's commit log was lost
        at = before.jobs[0].at
        jobs[0] = replace(before.jobs[0], at=at - 1, versions=(0, 1, 2)[: at + rng.choice((0, 1))])
        if rng.random() < 0.5 and len(jobs[0].versions) > at:
            jobs[0].at = at
        start_driver(world, jobs[0], tries=4, within=40)
    for sleeper in readers:
        if rng.random() < 0.45:
            sleeper.nap = rng.choice((0, 1, 1, 2, 2, 3, 4, 6, 9, 14)), rng.choice((10, 30, 1_000))
    for sleeper in sweepers:
        if rng.random() < 0.45:
            sleeper.nap = rng.randrange(26), rng.choice((10, 30, 60, 1_000))
    orphans = sweeps_files or rng.random() < 0.02
    return Cast(world, jobs, streams, frozenset({T, U}), forgets=orphans or rng.random() < 0.3, orphans=orphans, topics=2)


_PASTS = tuple(PASTS)


def play(seed: int, cast: Cast, *, digest: bool, trace: bool) -> Outcome:
    world = cast.world
    history = world.history
    if world.run(STEPS):
        _finish(cast)
    else:
        history.bad(f"no end after {STEPS} steps: {[a.name for a in world.actors]}")
    return Outcome(
        seed,
        [*checks.violations(history), *cast.also_wrong()],
        world.steps,
        history.commits,
        history.reads,
        world.crashes,
        _digest(world) if digest else "",
        world.trace or [],
        history.recorded(seed) if digest else [],
        history.before,
    )


def _digest(world: World) -> str:
    found = hashlib.sha256(repr((world.history.digest(), world.steps, world.clock.now)).encode())
    for key, record in sorted(world.state.records.items()):
        found.update(repr((key, record.value, record.version)).encode())
    for path, (data, changed) in sorted(world.disk.files.items()):
        found.update(repr((path, data, changed)).encode())
    return found.hexdigest()[:16]


def _jobs(rng: random.Random) -> list[Job]:
    """One stream that always runs, and some others; twins are two jobs of one application."""
    empty = frozenset(v for v in (0, 1, 2) if rng.random() < 0.15)
    jobs = [Job("q", "q", T, (T,), (0, 1, 2)[: rng.choice((2, 3))], replays=True, by="query-q", empty=empty)]
    if rng.random() < 0.6:
        jobs.append(Job("q2", "q", T, (T,), jobs[0].versions, replays=True, by="query-q", empty=empty))
    if rng.random() < 0.15:  # a new checkpoint under the old name
        jobs.append(Job("o", "q", T, (T,), (0,), replays=True, by="query-o"))
    if rng.random() < 0.6:
        jobs.append(Job("m", "m", "", (T, U), (1, 2)))
    if rng.random() < 0.4:
        jobs.append(Job("r", "r-random", U, (U,), (1,), random=True, empty=frozenset({1} if rng.random() < 0.2 else ())))
    return jobs


def _finish(cast: Cast) -> None:
    world, jobs = cast.world, cast.jobs
    history = world.history
    world.calm = True
    for job in jobs:
        if not job.done:
            start_driver(world, job)
    if not world.run(world.steps + STEPS):
        history.bad(f"no end in the calm: {[a.name for a in world.actors]}")
        return
    cast.settle()
    for job in jobs:
        if not job.done:
            history.bad(f"the job {job.name} did not finish: at {job.at} of {job.versions}")
    process = Process(world, "end")
    late = world.settings.max_txn_timeout_ms + world.settings.deadline_allowance_ms + 1
    world.clock.catch_up()  # what was opened while it was ahead has its deadline there
    world.clock.now += late
    began, now_ms = history.now(), world.clock.now
    process.sweeper.sweep()
    cast.finish()
    history.swept("end", began, now_ms)
    if cast.orphans or not cast.forgets:
        _read_all(world, Process(world, "end0"), "after settling")
    if not cast.forgets:
        return
    world.clock.now += world.settings.header_retention_ms + 1
    process.sweeper.sweep()
    _read_all(world, Process(world, "end1"), "after forgetting")
    if cast.orphans:
        _sweep_files(world, process)
    apps = len({(j.app, j.app_topic) for j in jobs if not j.random})
    segments = sum(len(topic.layout.segments) for topic in Topics(process.cluster).list())
    checks.at_rest(history, world.state, apps, max(segments, 2 * cast.topics))


def _sweep_files(world: World, process: Process) -> None:
    """In the end only files are left that something names."""
    sweep_orphans(process.cluster)
    world.clock.now += world.settings.orphan_age_ms + 1
    sweep_orphans(process.cluster)
    for _ in range(3):  # a deleted topic's snapshots are kept for the grace period, then seen, then kept once more
        world.clock.now += world.settings.grace_period_ms + 1
        sweep_orphans(process.cluster)
    rows = _read_all(world, Process(world, "end2"), "after the orphan sweep")
    newest = b"".join(record.value for key, record in world.state.records.items() if key.path.startswith("/log/"))
    newest += b"".join(data for path, (data, _) in world.disk.files.items() if path.encode() in newest)  # its manifest
    read = {row.id for row in rows}
    unnamed = [path for path in world.disk.files if path.startswith("parts/") and path not in read and path.encode() not in newest]
    needed = _snapshot_files(process)
    unnamed += [path for path in world.disk.files if path.endswith(snapshots.SUFFIX) and path not in needed]
    if unnamed:
        world.history.bad(f"files are left that nothing names: {sorted(unnamed)[:3]}")


def _snapshot_files(process: Process) -> set[str]:
    found: set[str] = set()
    for topic in Topics(process.cluster).list():
        for record in process.store.view().get_many([paths.watermark(s) for s in topic.segments()]):
            head = None if record is None else json.loads(record.value).get("snapshot")
            if head is not None:
                found.update(snapshots.files(snapshots.read_head(process.cluster.storage, head)))
    return found


def _read_all(world: World, process: Process, when: str) -> tuple[Row, ...]:
    topics = tuple(str(t.name) for t in Topics(process.cluster).list())
    selection = Selection(topics)
    began = world.history.now()
    reading = process.buffer.read(selection)
    rows = collect(world, reading, 0, reading.cut)
    saw(world, f"reader {when}", began, topics, reading, rows, final=True)
    return rows


@dataclass
class Summary:
    schedules: int = 0
    commits: int = 0
    reads: int = 0
    crashes: int = 0
    steps: int = 0
    seconds: float = 0.0
    violations: list[tuple[int, str]] = field(default_factory=list)


def simulate(count: int, seed: int = 0, *, only: str = "", stop_after: int = 10) -> Summary:
    """Run the schedules of `count` seeds from `seed` on (`only`: as in `schedule`); stop once `stop_after` of them were bad."""
    summary = Summary()
    started = time.perf_counter()
    with quiet():
        for each in range(seed, seed + count):
            outcome = schedule(each, only=only)
            summary.schedules += 1
            summary.commits += outcome.commits
            summary.reads += outcome.reads
            summary.crashes += outcome.crashes
            summary.steps += outcome.steps
            if outcome.violations:
                summary.violations.append((each, outcome.violations[0]))
                if len(summary.violations) >= stop_after:
                    break
            if each % 200 == 0:
                tidy()
    summary.seconds = time.perf_counter() - started
    return summary


def simulate_on(cores: int, count: int, seed: int = 0) -> Summary:
    """`simulate`, spread over processes; the same schedules."""
    chunk = 100
    starts = range(seed, seed + count, chunk)
    total = Summary()
    started = time.perf_counter()
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn"), initializer=quiet_forever) as pool:
        for part in pool.map(simulate, (min(chunk, seed + count - s) for s in starts), starts):
            total.schedules += part.schedules
            total.commits += part.commits
            total.reads += part.reads
            total.crashes += part.crashes
            total.steps += part.steps
            total.violations += part.violations
    total.seconds = time.perf_counter() - started
    return total
