"""Drivers of jobs, on topics of either model. A job writes one version after the other. For each version, tasks stage the rows.
Then the sink or the coordinator of the model commits them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from pyspark.sql.types import StructType

from conformance.history.format import Commit, Written
from conformance.simulator.store import keyed
from conformance.simulator.store.storage import GatedStorage
from conformance.simulator.world.scheduler import Process, World
from ledgers.model import Part
from metadata.client.client import Client
from metadata.common.errors import (
    OptionError,
    TopicNotFound,
    TopicSealed,
    TransactionUnfinished,
    TxnSegmentError,
    VersionConflict,
)
from metadata.records.names import is_persistent, topic_name
from metadata.rules.transitions import Claim
from metadata.topics.routing import Target, targets
from metadata.write.write_set import Committed, WriteSet
from spark_txn_sink import commit as sink
from spark_txn_sink.planned import Identity, TaskOptions, WritePlan
from spark_txn_sink.staging import Staged


@dataclass
class Job:
    """The durable state of a writer, as in a checkpoint. `at`: the index in `versions` of the first version that is still to be
    written. `empty`: the versions without rows.
    """

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
    keyed: bool = False
    """Whether the job's rows have keys (`simulator.store.keyed`). A job without keys writes parts of one row each into every
    segment.
    """

    @property
    def done(self) -> bool:
        return bool(self.stopped) or self.at >= len(self.versions)

    @property
    def in_stream(self) -> bool:
        """Whether the job's topics are persistent topics."""
        return is_persistent(self.topics[0])


def start_driver(world: World, job: Job, *, tries: int = 8, within: int = 20) -> Process:
    """Start a process that continues the job from its checkpoint. The process begins after fewer than `within` steps. After a crash
    a new process continues the job (`start_again`).
    """
    process = Process(world, f"{job.name}.{job.tries}")
    again = partial(start_again, world, job, tries, partial(start_driver, world, job, tries=tries, within=within))
    delay = world.rng.randrange(within)
    world.spawn(process, process.name, lambda: _drive(world, process, job, again, tries), on_crash=again, delay=delay)
    return process


def start_again(world: World, job: Job, tries: int, start: Callable[[], object]) -> None:
    """Continue a job in a new process after a crash, from the job's checkpoint, unless the job has used up its `tries`. After the
    faults have ended, the number of tries has no limit.
    """
    job.tries += 1
    if job.random:
        job.stopped = "crashed"  # the application id is random, so a user repeats the write under another id
    if not job.done and (job.tries < tries or world.calm):
        start()


def continues(world: World, job: Job, said: str, tries: int, *, again: Callable[[], None], late_abort: Callable[[], None]) -> bool:
    """Return whether the same process continues with the job after an attempt with the result `said`. After a failure, Spark may
    abort the attempt late (`late_abort`), and often another process makes the next attempt (`again`).
    """
    if said in ("skipped", "committed"):
        # If `at` is not raised, this is as if Spark's commit log had lost its entry: the job writes the version again.
        if world.calm or job.random or world.rng.random() < 0.85:
            job.at += 1
        return True
    if job.stopped:
        return False
    job.tries += 1
    if world.rng.random() < 0.4 and not world.calm:
        late_abort()
    if job.random:
        job.stopped = said
        return False
    if job.tries >= tries and not world.calm:
        return False
    if world.rng.random() < 0.5:
        again()
        return False
    return True


def start_late_abort(world: World, process: Process, attempt: str, abort: Callable[[], object]) -> None:
    """Start an actor that aborts a failed attempt, as Spark does. The abort may come long after the next attempt has begun."""

    def run() -> None:
        try:
            abort()
        except TxnSegmentError:
            return

    actor = world.spawn(process, process.name, run, delay=world.rng.choice((0, 10, 60, 200)))
    actor.aborts = attempt


def _drive(world: World, process: Process, job: Job, again: Callable[[], None], tries: int) -> None:
    actor = world.current
    assert actor is not None
    client = process.client
    while not job.done:
        write = begun(world, client, job)
        actor.opened = False
        txn = ""
        try:
            write.stage()
            world.history.asked(write.asked(process.name, world.history.now()))
            answer = write.commit()
            said, txn = ("skipped" if answer.skipped else "committed"), answer.txn_id or ""
        except TxnSegmentError as error:
            said = type(error).__name__
            if write.is_refused(error, calm=world.calm):
                job.stopped = said
        if write.staged:
            world.history.told(write.claim.attempt, said, txn or None)
        if not continues(world, job, said, tries, again=again, late_abort=partial(_abort_late, world, job, write)):
            return


def _abort_late(world: World, job: Job, write: Write) -> None:
    process = Process(world, f"{job.name}.abort")
    start_late_abort(world, process, write.claim.attempt, partial(write.abort, process.client))


def begun(world: World, client: Client, job: Job) -> Write:
    """Return a new attempt at the job's next version."""
    version, attempt = job.versions[job.at], world.unique()
    if job.in_stream:
        return InStreamWrite(client, job, version, attempt, world.rng)
    return Write(client, job, version, attempt, world.rng.choice((200, 1_000)))


class Write:
    """One attempt at one version. If the job's application belongs to one topic, the attempt is a Spark write. Otherwise it is a
    transaction of a program over several topics.
    """

    def __init__(self, client: Client, job: Job, version: int, staging_id: str, timeout_ms: int) -> None:
        self._client, self._job, self._staging_id, self._timeout_ms = client, job, staging_id, timeout_ms
        self._messages: list[Staged | None] = []
        self._rows: list[Written] = []
        self.staged = False
        self._staged_ms = 0
        self._identity = Identity(job.app, version, job.random, streaming=job.replays)
        if job.app_topic:
            self.claim = sink.claim(self._identity, [self._message((), 0)])
        else:
            self.claim = Claim(version, job.by, staging_id, job.replays)

    def _message(self, parts: Sequence[tuple[str, Part]], staged_ms: int) -> Staged:
        return Staged(self._staging_id, tuple(parts), staged_ms, self._job.by, keyed.COLUMN if self._job.keyed else None)

    def stage(self) -> None:
        """Do the work of the tasks: read the layouts and write the parts. All part files of a job without keys are written in one
        step, since no record names them yet.
        """
        client, job, version = self._client, self._job, self.claim.version
        staged_ms = client.cluster.store.view().now_ms()
        parts: list[tuple[str, Part]] = []
        storage = client.cluster.storage
        assert isinstance(storage, GatedStorage)
        if version not in job.empty and job.keyed:
            for topic in job.topics:
                parts += self._stage_keyed(storage, topic)
        elif version not in job.empty:
            for topic in job.topics:
                name = topic_name(topic)
                for segment in client.topics.get(name).active():
                    full = name.segment(segment.range, segment.segment_id)
                    for i in range(1 + (segment.segment_id + version) % 2):
                        path = f"parts/{job.app}/{version}/{self.claim.attempt}/{segment.segment_id}-{topic[-1]}-{i}.parquet"
                        parts.append((full, Part(path, 1, 4, 0, (1,), 0)))
            self._rows = [Written(part.path, None, segment) for segment, part in parts]
            storage.publish_all({part.path: b"part" for _, part in parts})
        self._messages = [self._message(parts, staged_ms)]
        self.staged = True
        self._staged_ms = staged_ms

    def _stage_keyed(self, storage: GatedStorage, topic: str) -> list[tuple[str, Part]]:
        """Stage rows with keys in two tasks, and return (segment, part) of each part. Both tasks of a Spark write use the layout
        that the driver read. A transaction of a program reads the layout again for each task.
        """
        job, name, parts = self._job, topic_name(topic), list[tuple[str, Part]]()
        to: tuple[Target, ...] = ()
        for task in (0, 1):
            if not to or not job.app_topic:
                to = targets(self._client.topics.get(name))
            stem = f"{job.app}/{self.claim.version}/{self.claim.attempt}/{topic[-1]}{task}"
            rows = [(f"{stem}.{i}", keyed.KEYS[(self.claim.version + 2 * i) % len(keyed.KEYS)]) for i in range(6)]
            files = {}
            for segment, own in keyed.by_segment(rows, to).items():
                path = f"parts/{stem}-{segment.rpartition('-')[2]}.parquet"
                files[path] = keyed.content(own)
                parts.append((segment, keyed.part_of(path, own)))
                self._rows += [Written(row, key, segment) for row, key in own]
            storage.publish_all(files)
        return parts

    def is_refused(self, error: TxnSegmentError, *, calm: bool) -> bool:
        """Return whether another attempt would raise the same error. `calm`: whether the faults of the schedule have ended."""
        return isinstance(error, (VersionConflict, TopicNotFound))

    def asked(self, who: str, at: int) -> Commit:
        """Return the history's event for the commit that is about to begin."""
        job, claim = self._job, self.claim
        return Commit(
            at,
            claim.attempt,
            who,
            job.app,
            job.app_topic,
            claim.version,
            tuple(self._rows),
            job.by,
            claim.attempt,
            job.replays,
            job.random,
        )

    def commit(self) -> Committed:
        if self._job.app_topic:
            return sink.commit(self._client, self._plan(), self._identity, self._timeout_ms, self._messages)
        return self._client.coordinator.commit(self._work(self._timeout_ms))

    def _work(self, timeout_ms: int) -> WriteSet:
        job, parts = self._job, dict[str, list[Part]]()
        for message in self._messages:
            assert message is not None
            for segment, part in message.parts:
                parts.setdefault(segment, []).append(part)
        keys = dict.fromkeys(job.topics, keyed.COLUMN) if job.keyed else {}
        return WriteSet(job.app, job.app_topic, self.claim, parts, self._staged_ms, timeout_ms, random=job.random, keys=keys)

    def abort(self, client: Client) -> None:
        """Abort the attempt as Spark does, in any process."""
        if self._job.app_topic:
            sink.abort(client, self._plan(), self._identity, self._messages)
        else:
            client.coordinator.abort_attempt(self._job.app, "", self.claim)

    def _plan(self) -> WritePlan:
        """Return a plan for a Spark write whose columns are all in the topic's schema already."""
        name = topic_name(self._job.app_topic)
        options = TaskOptions(name, None, "zstd", 1 << 20, 1 << 20)
        return WritePlan(
            name,
            (),
            keyed.COLUMN if self._job.keyed else None,
            StructType(),
            0,
            self._staged_ms,
            self._client.cluster.storage.uri,
            options,
        )


class InStreamWrite(Write):
    """One attempt at one version of a job whose topics are persistent. The coordinator of the marker-based model commits it, for
    any number of topics.
    """

    def __init__(self, client: Client, job: Job, version: int, staging_id: str, rng: Random) -> None:
        super().__init__(client, replace(job, app_topic=""), version, staging_id, 0)
        self._job, self._rng = job, rng

    def stage(self) -> None:
        job, version = self._job, self.claim.version
        self._staged_ms = self._client.cluster.store.view().now_ms()
        topics = () if version in job.empty else job.topics
        parts = staged(self._client, topics, f"{job.app}/{version}/{self.claim.attempt}", 1 + version % 2)
        self._messages = [self._message([(topic, part) for topic, own in parts.items() for part in own], self._staged_ms)]
        self._rows = [Written(part.path, None, topic) for topic, own in parts.items() for part in own]
        self.staged = True

    def is_refused(self, error: TxnSegmentError, *, calm: bool) -> bool:
        """Return whether the job gives up after this error, because another attempt would raise it again. This is so for a
        VersionConflict and for the errors of a sealed log (TopicSealed, TransactionUnfinished). An OptionError says that only some
        topics of the write have migrated. It counts only after the faults of the schedule have ended (`calm`).
        """
        return isinstance(error, (VersionConflict, TopicSealed, TransactionUnfinished)) or (calm and isinstance(error, OptionError))

    def commit(self) -> Committed:
        return self._client.instream.coordinator.commit(self._work(self._rng.choice((200, 1_000))))

    def abort(self, client: Client) -> None:
        client.instream.coordinator.abort_attempt(self._job.app, self._job.app_topic, self.claim)


def staged(client: Client, topics: Iterable[str], stem: str, count: int = 1) -> dict[str, list[Part]]:
    """Write `count` parts of one row each for each persistent topic, and return them by topic. All files are written in one step,
    since no record names them yet.
    """
    storage = client.cluster.storage
    assert isinstance(storage, GatedStorage)
    parts = {topic: [Part(f"parts/{stem}/{topic[-1]}-{i}.parquet", 1, 4, 0, (1,), 0) for i in range(count)] for topic in topics}
    storage.publish_all({part.path: b"part" for found in parts.values() for part in found})
    return parts
