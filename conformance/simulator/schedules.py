"""Runs a schedule by its seed: create the world, run the actors, end all faults, sweep (in most worlds), read all rows, check."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from conformance.history.format import Event, Row
from conformance.simulator.actors.readers import collect, saw
from conformance.simulator.actors.writers import start_driver
from conformance.simulator.casts.casts import Cast
from conformance.simulator.casts.kinds import drawn
from conformance.simulator.quiet import quiet, tidy
from conformance.simulator.seen import checks
from conformance.simulator.world.scheduler import Process, World
from ledgers import snapshots
from ledgers.compaction import COMPACTED
from metadata.client.passes import delete_orphans
from metadata.instream import snapshots as buffer_snapshots
from metadata.instream import steps, transaction_log
from metadata.read.reading import LogSelection
from metadata.records import paths
from metadata.topics.topics import Topics
from metadata.write import coordinator

STEPS = 20_000
SWEPT = 0.1
"""The share of the brief worlds (`World.brief`) that end with a sweep although they do not need one. A world needs this sweep in
two cases. In the first case, the checks at the end count the remaining headers (`Cast.forgets`). In the second case, the world has
cursors, in which dead actors may have left pending acks. A brief world without this sweep ends with a read, and the reader finds
all records as the actors left them.
"""


@dataclass
class Outcome:
    """The result of one schedule. `commits`: the number of commits during the schedule. `before`: the number of commits in the
    world before its first step. `digest`: the same for the same seed and code; empty unless it was asked for.
    """

    seed: int
    violations: list[str]
    steps: int
    commits: int
    reads: int
    crashes: int
    digest: str
    trace: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    """The history, in the form of a history file. It is empty unless the digest was asked for."""
    before: int = 0


def schedule(seed: int, *, only: str = "", trace: bool = False, digest: bool = False) -> Outcome:
    """Run the schedule of a seed. Only the seed and `only` determine the schedule.

    `only`: the name of a kind in KINDS (empty: the casts of QUICK). `trace`: whether every step is recorded; this also computes the
    digest. `digest`: whether the digest of the outcome is computed. The digest covers the history, the number of steps, the time,
    and the last state of the store and the disk.
    """
    rng = random.Random(seed)
    with _sizes(*rng.choice(((256, 8, 512 * 1024), (2, 2, 512 * 1024), (256, 8, 0), (2, 2, 0)))):
        cast = drawn(rng, trace, only)
        outcome = play(seed, cast, digest=digest or trace, trace=trace)
        cast.world.close()
        return outcome


def cast_of(seed: int, only: str = "") -> Cast:
    """Return the world of a seed with all actors, before its first step. Its snapshots have the size limits of production."""
    rng = random.Random(seed)
    return drawn(rng, False, only)


@contextmanager
def _sizes(tail_parts: int, fanout: int, inline: int) -> Iterator[None]:
    """A context in which snapshots and inline content have these size limits. With low limits, a few transactions are enough for
    index snapshots of several levels, and for manifests. If `inline` is 0, all content that fits into a record is written into
    files instead.
    """
    sizes: list[tuple[Any, str, int]] = [
        (snapshots, "TAIL_PARTS", tail_parts),
        (snapshots, "FANOUT", fanout),
        (coordinator, "MAX_INLINE", inline),
    ]
    if not inline:
        sizes += [(steps, "MAX_INLINE", 0), (buffer_snapshots, "INLINE_BYTES", 0), (transaction_log, "INLINE_BYTES", 0)]
    before = [(module, name, getattr(module, name)) for module, name, _ in sizes]
    for module, name, value in sizes:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def play(seed: int, cast: Cast, *, digest: bool = False, trace: bool = False) -> Outcome:
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


def _finish(cast: Cast) -> None:
    world, jobs = cast.world, cast.jobs
    history = world.history
    world.calm = True
    for job in jobs:
        if not job.done:
            start_driver(world, job)
    cast.settle()
    if not world.run(world.steps + STEPS):
        history.bad(f"no end in the calm: {[a.name for a in world.actors]}")
        return
    for job in jobs:
        if not job.done:
            history.bad(f"the job {job.name} did not finish: at {job.at} of {job.versions}")
    process = Process(world, "end")
    late = world.settings.max_txn_timeout_ms + world.settings.deadline_allowance_ms + 1
    world.clock.catch_up()  # a transaction that was opened while the clock was ahead has a late deadline
    world.clock.now += late
    sweeps = not world.brief or cast.forgets or _subscribed(world) or world.rng.random() < SWEPT
    began, now_ms = history.now(), world.clock.now
    if sweeps:
        process.sweeper.sweep()
    cast.finish()
    if sweeps:
        history.swept("end", began, now_ms)
    if cast.orphans or not cast.forgets:
        _read_all(world, Process(world, "end0"), "after settling" if sweeps else "at the end")
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


def _subscribed(world: World) -> bool:
    return any(key.path.startswith("/cursors/") for key in world.state.records)


def _sweep_files(world: World, process: Process) -> None:
    """Sweep orphans after all ages have passed. Record a violation if a part or a snapshot file is left that nothing names."""
    delete_orphans(process.cluster)
    world.clock.now += world.settings.orphan_age_ms + 1
    delete_orphans(process.cluster)
    # The snapshots of a deleted topic stay for the grace period. Then a sweep notes them, and they stay for a second grace period.
    for _ in range(3):
        world.clock.now += world.settings.grace_period_ms + 1
        delete_orphans(process.cluster)
    _read_all(world, Process(world, "end2"), "after the orphan sweep")
    newest = b"".join(record.value for key, record in world.state.records.items() if key.path.startswith("/log/"))
    # The newest registration stays in the log, and may name its parts in a manifest. Add the content of this manifest.
    newest += b"".join(data for path, (data, _) in world.disk.files.items() if path.encode() in newest)
    read = _part_files(process)
    parts = [path for path in world.disk.files if path.startswith("parts/") or f"/{COMPACTED}" in path]
    unnamed = [path for path in parts if path not in read and path.encode() not in newest]
    needed = _snapshot_files(process)
    unnamed += [path for path in world.disk.files if path.endswith(snapshots.SUFFIX) and path not in needed]
    if unnamed:
        world.history.bad(f"files are left that nothing names: {sorted(unnamed)[:3]}")


def _part_files(process: Process) -> set[str]:
    """Return the paths of the parts that a read of all topics reads."""
    reading = process.buffer.read(LogSelection(tuple(str(t.name) for t in Topics(process.cluster).list())))
    ledgers = (found for segment in reading.segments for found in segment.ledgers(0, reading.cut))
    return {part.path for found in ledgers for part in found.parts}


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
    selection = LogSelection(topics)
    began = world.history.now()
    reading = process.buffer.read(selection)
    rows = collect(world, reading, 0, reading.cut, reading.whole_from())
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

    def add(self, part: Summary) -> None:
        """Add the counts and violations of another run. Its `seconds` are not added, since the two runs may overlap in time."""
        self.schedules += part.schedules
        self.commits += part.commits
        self.reads += part.reads
        self.crashes += part.crashes
        self.steps += part.steps
        self.violations += part.violations


def simulate(count: int, seed: int = 0, *, only: str = "", stop_after: int = 10) -> Summary:
    """Run the schedules of `count` seeds from `seed` on. Stop after `stop_after` bad schedules. `only`: as in `schedule`."""
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
            if each % 500 == 0:
                tidy()
    summary.seconds = time.perf_counter() - started
    return summary
