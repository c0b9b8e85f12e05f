"""Who acts in a simulated world. They run the code of `metadata` as it is; only what Spark would do around it stands here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from conformance.simulator.faults import Crashed
from conformance.simulator.observer import Row, Seen
from conformance.simulator.scheduler import Process, World
from ledgers.errors import CorruptSnapshot, MissingFile
from ledgers.model import Part
from metadata import transitions
from metadata.coordinator import Coordinator, WriteSet
from metadata.errors import (
    SegmentSealed,
    StorageError,
    TopicExists,
    TopicNotFound,
    TxnSegmentError,
    VersionConflict,
)
from metadata.names import topic_name
from metadata.orphans import sweep_orphans
from metadata.topics import Topics
from metadata.transaction_buffer import Reading, Selection
from metadata.transitions import Claim


@dataclass
class Job:
    """A writer's durable side: what a checkpoint would keep. `versions` still to be written are those from `at` on."""

    name: str
    app: str
    app_topic: str
    topics: tuple[str, ...]
    versions: Sequence[int]
    replays: bool = False
    by: str | None = None
    random: bool = False
    empty: frozenset[int] = frozenset()
    at: int = 0
    tries: int = 0
    stopped: str = ""

    @property
    def done(self) -> bool:
        return bool(self.stopped) or self.at >= len(self.versions)


def coordinator(world: World, process: Process) -> Coordinator:
    """A committer of the process; what it does not wait for becomes another thread of the same process."""

    def aftermath(job: Callable[[], None]) -> None:
        def run() -> None:
            for each in (job, process.sweeper.share):
                try:
                    each()
                except TxnSegmentError:
                    continue  # as metadata.aftermath: put off to the next sweep

        world.spawn(process, f"{process.name}/after", run)

    return Coordinator(process.cluster, aftermath, process.buffer.log)


def start_driver(world: World, job: Job, *, tries: int = 8) -> Process:
    """A process that runs the job's versions from its checkpoint on; restarted when it crashes."""
    process = Process(world, f"{job.name}.{job.tries}")

    def again() -> None:
        job.tries += 1
        if job.random:
            job.stopped = "crashed"  # a batch write whose driver died is another write, with another id, when it is run again
        if not job.done and (job.tries < tries or world.calm):
            start_driver(world, job, tries=tries)

    world.spawn(process, process.name, lambda: _drive(world, process, job, again), on_crash=again, delay=world.rng.randrange(20))
    return process


def _drive(world: World, process: Process, job: Job, again: Callable[[], None]) -> None:
    actor = world.current
    assert actor is not None
    committer = coordinator(world, process)
    topics = Topics(process.cluster)
    while not job.done:
        version = job.versions[job.at]
        claim = Claim(version, job.by, world.unique(), job.replays)
        actor.opened = False
        txn = ""
        world.history.queries[claim.attempt] = job.by
        try:
            work = _stage(world, process, topics, job, claim)
            answer = committer.commit(work)
            said, txn = ("skipped" if answer.skipped else "committed"), answer.txn_id or ""
        except VersionConflict:
            said, job.stopped = "VersionConflict", "VersionConflict"
        except TopicNotFound:
            said, job.stopped = "TopicNotFound", "TopicNotFound"
        except TxnSegmentError as error:
            said = type(error).__name__
        world.history.said.append((process.name, f"{job.app}:{job.app_topic}", version, said, txn, job.by))
        if said in ("skipped", "committed"):
            if world.calm or job.random or world.rng.random() < 0.85:  # else Spark's commit log is lost: the version replays
                job.at += 1
            continue
        if job.stopped:
            return
        job.tries += 1
        if world.rng.random() < 0.4 and not world.calm:
            _start_late_abort(world, job, claim)
        if job.random:
            job.stopped = said
            return
        if job.tries >= 8 and not world.calm:
            return
        if world.rng.random() < 0.5:
            again()
            return


def _stage(world: World, process: Process, topics: Topics, job: Job, claim: Claim) -> WriteSet:
    staged_ms = process.cluster.store.view().now_ms()
    parts: dict[str, list[Part]] = {}
    if claim.version not in job.empty:
        for topic in job.topics:
            for segment in topics.get(topic_name(topic)).active():
                name = topic_name(topic).segment(segment.range, segment.segment_id)
                for i in range(1 + (segment.segment_id + claim.version) % 2):
                    path = f"parts/{job.app}/{claim.version}/{claim.attempt}/{segment.segment_id}-{topic[-1]}-{i}.parquet"
                    process.cluster.storage.publish(path, b"part")
                    parts.setdefault(name, []).append(Part(path, 1, 4, 0, (1,), 0))
    timeout = world.rng.choice((200, 1_000))
    return WriteSet(job.app, job.app_topic, claim, parts, staged_ms, timeout, random=job.random)


def _start_late_abort(world: World, job: Job, claim: Claim) -> None:
    """Spark's abort of this attempt: in a new process, perhaps long after a successor took over."""
    process = Process(world, f"{job.name}.abort")
    committer = coordinator(world, process)

    def run() -> None:
        try:
            committer.abort_attempt(job.app, job.app_topic, claim)
        except TxnSegmentError:
            return

    actor = world.spawn(process, process.name, run, delay=world.rng.choice((0, 10, 60, 200)))
    actor.aborts = claim.attempt


# --- readers ------------------------------------------------------------------------------------------------------


@dataclass
class Stream:
    """A streaming query's checkpoint: the offset it has finished, and the end it has planned but perhaps not finished."""

    name: str
    selection: Selection
    max_rows: int | None
    offset: int = 0
    planned: int | None = None
    left: int = 4
    rows: list[Row] = field(default_factory=list)
    restarts: int = 0
    cut: int = 0


def start_batch_reader(world: World, name: str, selection: Selection, rounds: int, process: Process | None = None) -> None:
    process = process or Process(world, name)

    def run() -> None:
        cut = 0
        for _ in range(rounds):
            try:
                reading = process.buffer.read(selection)
                rows = collect(world, reading, 0, reading.cut)
            except (CorruptSnapshot, MissingFile) as error:
                world.history.bad(f"{name} misses a file: {error}")
                return
            except TxnSegmentError:
                continue
            if reading.cut < cut:
                world.history.bad(f"{name}: the cut went back from {cut} to {reading.cut}")
            cut = reading.cut
            saw(world, name, "batch", selection, reading, 0, reading.cut, rows)

    world.spawn(process, name, run, delay=world.rng.randrange(100))


def start_stream(world: World, stream: Stream) -> None:
    process = Process(world, f"{stream.name}.{stream.restarts}")

    def again() -> None:
        stream.restarts += 1
        if stream.restarts < 5:
            start_stream(world, stream)

    world.spawn(process, process.name, lambda: _stream(world, process, stream), on_crash=again, delay=world.rng.randrange(40))


def _stream(world: World, process: Process, stream: Stream) -> None:
    while stream.left > 0:
        stream.left -= 1
        try:
            _micro_batch(world, process, stream)
        except (CorruptSnapshot, MissingFile) as error:
            world.history.bad(f"{stream.name} misses a file: {error}")
            return
        except TxnSegmentError as error:
            if type(error).__name__ == "OffsetOutOfRange":
                world.history.bad(f"{stream.name} cannot plan its own offset: {error}")
                return


def _micro_batch(world: World, process: Process, stream: Stream) -> None:
    buffer, begin = process.buffer, stream.offset
    if stream.planned is None:
        reading = buffer.read(stream.selection)
        if reading.cut < stream.cut:
            world.history.bad(f"{stream.name}: the cut went back from {stream.cut} to {reading.cut}")
        stream.cut = reading.cut
        last = max(begin, reading.last_change(begin))
        end = transitions.limited(reading.weights(begin, last), last, max_rows=stream.max_rows, seals=reading.seals(begin, last))
        _expect_progress(world, stream, reading, begin, end)
        stream.planned = end
    end = stream.planned
    if end < begin:
        world.history.bad(f"{stream.name}: a micro-batch from {begin} to {end}")
    for _ in range(1 if world.rng.random() < 0.7 else 2):  # the second time a replay
        reading = buffer.read_to(stream.selection, end)
        rows = collect(world, reading, begin, end)
        saw(world, stream.name, "stream", stream.selection, reading, begin, end, rows)
    stream.rows += rows
    stream.offset, stream.planned = end, None


def _expect_progress(world: World, stream: Stream, reading: Reading, begin: int, end: int) -> None:
    if end > reading.cut and end > begin:
        world.history.bad(f"{stream.name}: planned up to {end}, beyond the cut {reading.cut}")
    names = _topics(stream.selection)
    waiting = [n for n, rows in world.history.truth.items() if begin < n <= reading.cut and any(_of(s, names) for _, s, _ in rows)]
    if waiting and end <= begin:
        world.history.bad(f"{stream.name} stands still at {begin} although {min(waiting)} is visible (cut {reading.cut})")


def collect(world: World, reading: Reading, start: int, end: int) -> list[Row]:
    rows: list[Row] = []
    for segment in reading.segments:
        for ledger in reading.ledgers(segment, start, end):
            for part in ledger.parts:
                rows.append((ledger.id, segment.name, part.path))
                if part.path not in world.disk.files:
                    world.history.bad(f"the part {part.path} of {ledger.id} is gone although it is visible")
    return rows


def saw(world: World, who: str, kind: str, selection: Selection, reading: Reading, start: int, end: int, rows: list[Row]) -> None:
    known = frozenset(s.name for s in reading.segments)
    world.history.seen.append(Seen(who, kind, _topics(selection), known, start, end, reading.cut, tuple(rows)))
    for row in rows:
        if row[0] not in world.history.truth:
            world.history.bad(f"{who} read {row} before it was committed, or although it never was")
    for segment in reading.segments:
        top = reading.max_read_position(segment)
        if top is not None and top[0] > reading.cut:
            world.history.bad(f"{who}: maxReadPosition {top} of {segment.name} lies beyond the cut {reading.cut}")


def _topics(selection: Selection) -> tuple[str, ...]:
    return selection.names


def _of(segment: str, topics: Sequence[str]) -> bool:
    return "topic://" + segment.removeprefix("segment://").rpartition("/")[0] in topics


# --- sweepers, deleters -------------------------------------------------------------------------------------------


def start_sweeper(world: World, name: str, rounds: int, *, orphans: bool = False) -> None:
    process = Process(world, name)

    def run() -> None:
        for i in range(rounds):
            for each in (process.sweeper.sweep, process.sweeper.share) if i % 2 == 0 else (process.sweeper.sweep,):
                try:
                    each()
                except (CorruptSnapshot, MissingFile, StorageError) as error:
                    world.history.bad(f"{name}: {error}")
                    return
                except TxnSegmentError:
                    continue
            if orphans:
                try:
                    sweep_orphans(process.cluster)
                except (CorruptSnapshot, MissingFile, StorageError) as error:
                    world.history.bad(f"{name}: {error}")
                    return
                except TxnSegmentError:
                    continue

    world.spawn(process, name, run, delay=world.rng.randrange(120))


def start_deleter(world: World, name: str, topic: str, *, recreate: bool) -> None:
    process = Process(world, name)

    def run() -> None:
        topics = Topics(process.cluster)
        try:
            topics.delete(topic_name(topic))
            if recreate:
                topics.create(topic_name(topic), segments=1)
        except (TopicNotFound, TopicExists):
            return
        except TxnSegmentError:
            return

    world.spawn(process, name, run, delay=world.rng.randrange(250))


__all__ = [
    "Crashed",
    "Job",
    "SegmentSealed",
    "Stream",
    "collect",
    "coordinator",
    "replace",
    "saw",
    "start_batch_reader",
    "start_deleter",
    "start_driver",
    "start_stream",
    "start_sweeper",
]
