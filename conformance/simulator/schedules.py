"""One schedule by its seed: set the stage, let the actors run, end all faults, sweep, and check."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from conformance.simulator import checks
from conformance.simulator.actors import (
    Job,
    Stream,
    collect,
    saw,
    start_batch_reader,
    start_deleter,
    start_driver,
    start_stream,
    start_sweeper,
)
from conformance.simulator.faults import GatedStore
from conformance.simulator.observer import Row
from conformance.simulator.scheduler import SETTINGS, Plan, Process, SimulatedClock, World
from conformance.simulator.storage import Disk, GatedStorage
from ledgers import snapshots
from ledgers.snapshots import SnapshotHead
from ledgers.storage import LedgerStorage
from metadata import coordinator, paths
from metadata.cluster import Cluster
from metadata.names import topic_name
from metadata.orphans import sweep_orphans
from metadata.records import JsonRecord
from metadata.store.memory import MemoryState
from metadata.topics import Topics
from metadata.transaction_buffer import Selection

T, U, D = "topic://public/default/t", "topic://public/default/u", "topic://public/default/d"
STEPS = 20_000


@dataclass
class Outcome:
    """What one schedule gave. `digest` is the same for the same seed."""

    seed: int
    violations: list[str]
    steps: int
    commits: int
    reads: int
    crashes: int
    digest: str
    trace: list[str] = field(default_factory=list)


def schedule(seed: int, *, trace: bool = False) -> Outcome:
    """Run the schedule of a seed. Nothing outside the seed has a say in it."""
    rng = random.Random(seed)
    with _sizes(*rng.choice(((256, 8, 512 * 1024), (2, 2, 512 * 1024), (256, 8, 0), (2, 2, 0)))):
        return _schedule(seed, rng, trace)


@contextmanager
def _sizes(tail_parts: int, fanout: int, inline: int) -> Iterator[None]:
    """So small that few transactions make ledger files of several levels, and manifests."""
    before = snapshots.TAIL_PARTS, snapshots.FANOUT, coordinator.MAX_INLINE
    snapshots.TAIL_PARTS, snapshots.FANOUT, coordinator.MAX_INLINE = tail_parts, fanout, inline
    try:
        yield
    finally:
        snapshots.TAIL_PARTS, snapshots.FANOUT, coordinator.MAX_INLINE = before


def _schedule(seed: int, rng: random.Random, trace: bool) -> Outcome:
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500, 4_000))})
    world = World(rng, Plan.draw(rng), settings, state=_stage(), trace=[] if trace else None)
    jobs = _jobs(rng)
    deleted = rng.random() < 0.25
    streams = [Stream("s0", Selection((T, U)), rng.choice((None, 1, 3))), Stream("s1", Selection((T,)), None)]
    for job in jobs:
        process = start_driver(world, job)
        if rng.random() < 0.3:  # a reader in the same process: threads that share one memory of the log
            for i in range(rng.choice((1, 3))):
                start_batch_reader(world, f"{job.name}.reader{i}", Selection((T, U)), 3, process)
    for stream in streams[: rng.choice((1, 2))]:
        start_stream(world, stream)
    start_batch_reader(world, "b0", Selection((T, U)), 3)
    start_sweeper(world, "w0", 2, orphans=rng.random() < 0.3)
    if rng.random() < 0.5:
        start_sweeper(world, "w1", 2)
    if deleted:
        jobs.append(Job("drop", "drop", D, (D,), (0, 1)))
        start_driver(world, jobs[-1])
        start_deleter(world, "x0", D, recreate=rng.random() < 0.5)
        start_batch_reader(world, "b1", Selection((D,)), 2)
    ended = world.run(STEPS)
    history = world.history
    if not ended:
        history.bad(f"no end after {STEPS} steps: {[a.name for a in world.actors]}")
    else:
        _finish(world, jobs, streams, kept=frozenset({T, U} if deleted else {T, U, D}))
    digest = hashlib.sha256()
    for entry in (*history.seen, *history.said, *sorted(history.truth.items()), *history.violations, world.steps, world.clock.now):
        digest.update(repr(_plain(entry)).encode())
    return Outcome(
        seed,
        list(dict.fromkeys(history.violations)),
        world.steps,
        len(history.truth),
        len(history.seen),
        world.crashes,
        digest.hexdigest()[:16],
        world.trace or [],
    )


def _plain(entry: object) -> object:
    """Sets have no order of their own."""
    segments = getattr(entry, "segments", None)
    return entry if segments is None else (repr(entry).partition("frozenset")[0], sorted(segments), getattr(entry, "rows", None))


_STAGES: dict[str, MemoryState] = {}


def _stage() -> MemoryState:
    """Three topics, made by the real code once and copied since."""
    if "stage" not in _STAGES:
        state, clock = MemoryState(), SimulatedClock()
        store, storage = GatedStore(state, clock), GatedStorage(Disk(clock))
        topics = Topics(Cluster("memory://stage", store, storage, SETTINGS, clock))
        topics.create(topic_name(T), segments=2)
        topics.create(topic_name(U), segments=1)
        topics.create(topic_name(D), segments=1)
        _STAGES["stage"] = state
    return _STAGES["stage"].copy()


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


def _finish(world: World, jobs: list[Job], streams: list[Stream], kept: frozenset[str]) -> None:
    history = world.history
    world.calm = True
    for job in jobs:
        if not job.done:
            start_driver(world, job)
    if not world.run(world.steps + STEPS):
        history.bad(f"no end in the calm: {[a.name for a in world.actors]}")
        return
    for job in jobs:
        if not job.done:
            history.bad(f"the job {job.name} did not finish: at {job.at} of {job.versions}")
    process = Process(world, "end")
    late = world.settings.max_txn_timeout_ms + world.settings.deadline_allowance_ms + 1
    world.clock.now += late
    process.sweeper.sweep()
    for key, record in world.state.records.items():
        if key.path.startswith("/txn/id/") and b'"state":"OPEN"' in record.value:
            history.bad(f"{key.path} is OPEN after a sweep past its deadline")
    _read_all(world, process, "after settling")
    world.clock.now += world.settings.header_retention_ms + 1
    process.sweeper.sweep()
    process.sweeper.sweep()
    _read_all(world, process, "after forgetting")
    sweep_orphans(process.cluster)
    world.clock.now += world.settings.orphan_age_ms + 1
    sweep_orphans(process.cluster)
    for _ in range(3):  # a deleted topic's snapshots are kept for the grace period, then seen, then kept once more
        world.clock.now += world.settings.grace_period_ms + 1
        sweep_orphans(process.cluster)
    rows = _read_all(world, Process(world, "end2"), "after the orphan sweep")
    newest = b"".join(record.value for key, record in world.state.records.items() if key.path.startswith("/log/"))
    newest += b"".join(data for path, (data, _) in world.disk.files.items() if path.encode() in newest)  # its manifest
    read = {row[2] for row in rows}
    unnamed = [path for path in world.disk.files if path.startswith("parts/") and path not in read and path.encode() not in newest]
    needed = _snapshot_files(process)
    unnamed += [path for path in world.disk.files if path.endswith(snapshots.SUFFIX) and path not in needed]
    if unnamed:
        history.bad(f"files are left that nothing names: {sorted(unnamed)[:3]}")
    history.violations += checks.reads(history, kept)
    history.violations += checks.streams(history, {s.name: s.rows for s in streams})
    history.violations += checks.answers(history)
    apps = len({(j.app, j.app_topic) for j in jobs if not j.random})
    history.violations += checks.leftovers(world.state, apps, segments=6)


def _snapshot_files(process: Process) -> set[str]:
    found: set[str] = set()
    for topic in Topics(process.cluster).list():
        for record in process.store.view().get_many([paths.watermark(s) for s in topic.segments()]):
            head = None if record is None else json.loads(record.value).get("snapshot")
            if head is not None:
                found.update(snapshots.files(snapshots.read_head(process.cluster.storage, head)))
    return found


def _read_all(world: World, process: Process, when: str) -> list[Row]:
    topics = tuple(str(t.name) for t in Topics(process.cluster).list())
    selection = Selection(topics)
    reading = process.buffer.read(selection)
    rows = collect(world, reading, 0, reading.cut)
    saw(world, f"reader {when}", "final", selection, reading, 0, reading.cut, rows)
    newest = max(world.history.truth, default=0)
    if reading.cut < newest:
        world.history.bad(f"{when}: the cut {reading.cut} lies below {newest}")
    return rows


@contextmanager
def quiet() -> Iterator[None]:
    """Without the log lines of thousands of transactions, and with pure decoding remembered: the same schedules, faster."""
    logger = logging.getLogger("txnsegment")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    decode, read_head = JsonRecord.__dict__["from_bytes"], snapshots.read_head
    JsonRecord.from_bytes = classmethod(lru_cache(maxsize=20_000)(decode.__func__))  # type: ignore[assignment,arg-type,method-assign]
    snapshots.read_head = _heads(read_head)  # type: ignore[assignment]
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        snapshots.read_head = read_head
        JsonRecord.from_bytes = decode  # type: ignore[method-assign]
        logger.setLevel(level)


def _heads(read_head: Callable[[LedgerStorage, str], SnapshotHead]) -> Callable[[LedgerStorage, str], SnapshotHead]:
    """The same function, which decodes the same bytes once."""
    known: dict[tuple[str, bytes], SnapshotHead] = {}

    def read(storage: LedgerStorage, path: str) -> SnapshotHead:
        assert isinstance(storage, GatedStorage)
        data = storage.disk.files.get(path, (b"", 0))[0]
        if (path, data) not in known or not data:
            if len(known) > 5_000:
                known.clear()
            known[path, data] = read_head(storage, path)
        else:
            storage.read(path)
        return known[path, data]

    return read


@dataclass
class Summary:
    schedules: int = 0
    commits: int = 0
    reads: int = 0
    crashes: int = 0
    steps: int = 0
    seconds: float = 0.0
    violations: list[tuple[int, str]] = field(default_factory=list)


def simulate(count: int, seed: int = 0, *, stop_after: int = 10) -> Summary:
    """Run the schedules of `count` seeds from `seed` on; stop once `stop_after` of them were bad."""
    summary = Summary()
    started = time.perf_counter()
    with quiet():
        for each in range(seed, seed + count):
            outcome = schedule(each)
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
                gc.collect()
    summary.seconds = time.perf_counter() - started
    return summary


def simulate_on(cores: int, count: int, seed: int = 0) -> Summary:
    """`simulate`, spread over processes; the same schedules."""
    chunk = 100
    starts = range(seed, seed + count, chunk)
    total = Summary()
    started = time.perf_counter()
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        for part in pool.map(simulate, (min(chunk, seed + count - s) for s in starts), starts):
            total.schedules += part.schedules
            total.commits += part.commits
            total.reads += part.reads
            total.crashes += part.crashes
            total.steps += part.steps
            total.violations += part.violations
    total.seconds = time.perf_counter() - started
    return total
