"""Schedules in which a persistent topic is migrated while actors write it, read it, acknowledge its rows and sweep it. After the
migration its successor is split (docs/in_stream.md, Migration). The logs of both models are judged from outside.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial

from conformance.history.format import Event, Layout
from conformance.simulator.actors.consuming import drain, start_consumer
from conformance.simulator.actors.in_stream_clients import start_client, start_producer
from conformance.simulator.actors.in_stream_readers import read_all, start_in_stream_reader
from conformance.simulator.actors.readers import start_batch_reader, start_stream
from conformance.simulator.actors.spark_readers import Running, SparkStream, read_current, start_spark_batch
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.casts import Cast, may_nap
from conformance.simulator.casts.in_stream import PACE, SUBSCRIPTION, start_keeper, start_trimmer, world_of
from conformance.simulator.casts.splitting import Splitter, start_splitter
from conformance.simulator.world.scheduler import Actor, Process, World
from conformance.simulator.world.stage import P, Q, T, W, Y, Z
from metadata.common.errors import OptionError, TopicExists, TopicSealed, TxnSegmentError
from metadata.instream.txn_rules import FINAL
from metadata.read.reading import LogSelection
from metadata.records.names import persistent_name, topic_name
from metadata.records.records import SegmentState


@dataclass
class Move:
    """The durable state of a migration, which a new process continues after a crash. `patience`: the maximum number of attempts
    before the faults end.
    """

    name: str
    old: str
    to: str
    segments: int
    wait_ms: int = 0
    force: bool = False
    tries: int = 0
    patience: int = 4
    over: str = ""
    """How the migration ended: "done", or the name of the error that refused it for ever. Empty before that."""


@dataclass
class Stage:
    """The actors of a world with migrations. `writers`: jobs that write to the old topics. After the faults have ended, they
    continue until they are done. `further`: jobs that write to a successor under its own name. `shown`: the successors that have
    appeared.
    """

    world: World
    moves: list[Move]
    writers: list[Job]
    queries: list[SparkStream]
    consumed: bool
    further: list[Job] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)

    def showing(self, event: Event) -> None:
        """Handle a new layout. When a successor first has segments of its own, start some of these actors at random: a splitter of
        the successor, a job that writes to the successor under its topic:// name, and a batch reader. The job may have the
        application id of a job that writes to the persistent topic. Start none after the faults have ended.
        """
        assert isinstance(event, Layout)
        if event.topic in self.shown or len(event.segments) < 2:
            return
        self.shown.add(event.topic)
        rng, world = self.world.rng, self.world
        if world.calm or not world.actors or event.topic not in (Y, Z):
            return  # without actors: a request that arrived late wrote the layout, after all actors had ended
        if rng.random() < 0.6:
            start_splitter(world, Splitter(f"x{event.topic[-1]}", (event.topic,), rng.choice((1, 2))), within=80)
        if rng.random() < 0.35:
            twin = next((job for job in self.writers if job.app_topic == P and job.replays), None)
            app, by = ("q", "query-q") if twin is not None and event.topic == Y else ("n", "query-n")
            self.further.append(Job(f"n{event.topic[-1]}", app, event.topic, (event.topic,), (0, 1, 2), replays=True, by=by))
            start_driver(world, self.further[-1], tries=4, within=60)
        if rng.random() < 0.3:
            start_batch_reader(world, f"b{event.topic[-1]}", LogSelection((event.topic,)), 2, within=80)


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a long cast: one or two topics, migrators, writers, clients, producers, readers, consumers, sweepers."""
    return _cast(rng, trace, long=True)


def short(rng: random.Random, trace: bool) -> Cast:
    """Return a short cast: fewer actors than `drawn`, with fewer rounds each."""
    return _cast(rng, trace, long=False)


def _cast(rng: random.Random, trace: bool, *, long: bool) -> Cast:
    mixed, consumed, both = rng.random() < 0.15, rng.random() < 0.4, rng.random() < 0.35
    world = world_of(rng, trace, mixed=mixed, consumed=consumed)
    within = 120 if long else 60
    stage = Stage(world, _moves(rng, both=both), _jobs(rng, both=both, long=long), [], consumed)
    world.history.showing = stage.showing
    for move in stage.moves:
        start_migrator(world, move, within=2 * within)
    for job in stage.writers:
        start_driver(world, job, tries=6, within=within)
        may_nap(world.actors[-1], 0.3, 16)
    for i in range(rng.choice((1, 2, 3) if long else (0, 1, 1, 2))):
        start_client(world, f"c{i}", (P, Q), rng.choice((1, 2)), within=2 * within)
        may_nap(world.actors[-1], 0.3, 12)
    if rng.random() < (0.5 if long else 0.25):
        start_producer(world, "plain", P, rng.choice((1, 3)), within=2 * within)
        may_nap(world.actors[-1], 0.3, 4)
    _start_readers(stage, long=long, within=within)
    _start_keepers(world, long=long, within=within)
    if consumed:
        # The consumer u2 and the checks at the end acknowledge rows without a transaction. No actor is current during these checks.
        world.history.acking = lambda: world.current is None or world.current.name == "u2"
        for i in range(3):
            plain = i == 2
            consumer = start_consumer(world, f"u{i}", P, SUBSCRIPTION, rounds=3, plain=plain, within=3 * within, migrating=True)
            may_nap(consumer, 0.4, 12)
    kept = frozenset({T} if mixed else ())
    if mixed:
        start_driver(world, Job("t", "q", T, (T,), (0, 1), replays=True, by="query-t"), tries=4, within=30)
    cast = Cast(world, [], [], kept, forgets=False, orphans=False, topics=1)
    cast.settle, cast.finish = partial(_settle, stage), partial(_finish, stage)
    return cast


def _moves(rng: random.Random, *, both: bool) -> list[Move]:
    def move(name: str, old: str, to: str) -> Move:
        waits = rng.choice((0, 0, 300, 2_000))
        return Move(name, old, to, rng.choice((1, 1, 2, 3)), waits, rng.random() < 0.35, patience=rng.choice((1, 2, 4)))

    moves = [move("m0", P, Y)]
    if rng.random() < 0.4:  # a second migration at the same time, perhaps to another name
        moves.append(move("m1", P, Y if rng.random() < 0.7 else W))
    if both:
        moves.append(move("m2", Q, Z))
    return moves


def _jobs(rng: random.Random, *, both: bool, long: bool) -> list[Job]:
    versions = rng.choice(((0, 1), (0, 1, 2)) if long else ((0, 1), (0, 1), (0, 1, 2)))
    named = P if rng.random() < 0.7 else ""
    # An empty write has no rows that name a topic. So only jobs whose application belongs to a topic have empty writes.
    empty = frozenset(v for v in (0, 1, 2) if named and rng.random() < 0.12)
    topics = (P, Q) if both and rng.random() < 0.3 else (P,)
    jobs = [Job("q", "q", named, topics, versions, replays=True, by="query-q", empty=empty)]
    if rng.random() < 0.5:
        jobs.append(Job("q2", "q", named, topics, versions, replays=True, by="query-q", empty=empty))
    if rng.random() < 0.15:  # a new checkpoint of the same application
        jobs.append(Job("o", "q", named, topics, (0,), replays=True, by="query-o"))
    if rng.random() < 0.4:
        jobs.append(Job("m", "m", "", (P, Q), (1, 2)[: rng.choice((1, 2))]))
    if rng.random() < 0.25:
        jobs.append(Job("r", "r-random", rng.choice((P, "")), (P,), (1,), random=True))
    return jobs


def _start_readers(stage: Stage, *, long: bool, within: int) -> None:
    world, rng = stage.world, stage.world.rng
    if rng.random() < 0.3:
        start_in_stream_reader(world, "b0", (P, Q), rng.choice((2, 4) if long else (1, 2)), within=2 * within)
    if rng.random() < 0.2:
        start_stream(world, SparkStream("s9", rng.choice((None, 1)), topic=P), within=2 * within)
    if rng.random() < 0.5:
        start_spark_batch(world, "b1", rng.choice((P, P, Y)), rng.choice((1, 2)), within=4 * within)
    for i in range(rng.choice((1, 2) if long else (0, 1, 1))):
        topic = rng.choice((P, P, P, Y))
        stage.queries.append(SparkStream(f"s{i}", rng.choice((None, 1, 2)), rng.choice((4, 8)), topic=topic))
        start_stream(world, stage.queries[-1], within=2 * within)


def _start_keepers(world: World, *, long: bool, within: int) -> None:
    rng = world.rng
    for i in range(rng.choice((1, 2, 3) if long else (0, 1, 1))):
        start_keeper(world, f"k{i}", rng.choice((1, 3) if long else (1, 2)), within=2 * within)
    if rng.random() < 0.4:
        may_nap(_start_sweeper(world, "w0", rng.choice((1, 2)), within=4 * within), 0.25, 40)
    if rng.random() < 0.1:
        start_trimmer(world, "r0", P, within=2 * within)


def _start_sweeper(world: World, name: str, rounds: int, *, within: int) -> Actor:
    """Start an actor that sweeps topics of both models, as `txnsegment sweep` does."""

    def sweep(process: Process) -> None:
        began, now_ms, falls = world.history.now(), world.clock.now, len(world.clock.falls)
        process.client.sweep()
        world.history.swept(name, began, min(now_ms, *world.clock.falls[falls:], now_ms))

    return start_rounds(world, name, rounds, sweep, within=within)


# --- the migrators ----------------------------------------------------------------------------------------------------------


def start_migrator(world: World, move: Move, *, within: int) -> Actor:
    """Start a process that migrates a topic. After a crash, a new process continues the migration. After the faults have ended, the
    number of attempts has no limit.
    """
    process = Process(world, f"{move.name}.{move.tries}")

    def again() -> None:
        move.tries += 1
        if not move.over and (move.tries < move.patience or world.calm):
            start_migrator(world, move, within=within)

    def run() -> None:
        migrator = process.client.instream.migrator
        while not move.over and (move.tries < move.patience or world.calm):
            try:
                made = migrator.migrate(
                    persistent_name(move.old),
                    topic_name(move.to),
                    segments=move.segments,
                    wait_ms=move.wait_ms,
                    force=move.force,
                )
            except (TopicSealed, TopicExists, OptionError) as error:
                move.over = type(error).__name__
            except TxnSegmentError:
                move.tries += 1
                process.cluster.clock.sleep(0.3)  # transactions are open, or the store failed
            else:
                move.over = "done"
                _look(world, move, made.active(), made.layout.unsealed_legacy() is not None)

    actor = world.spawn(process, process.name, run, on_crash=again, delay=world.rng.randrange(within))
    may_nap(actor, 0.25, 40)
    return actor


def _look(world: World, move: Move, active: object, unsealed: bool) -> None:
    """Check that the successor accepts writes after its migration has reported success."""
    if not active or unsealed:
        world.history.bad(f"{move.name} was told that {move.old} went on as {move.to}, and nothing is active there", 12)


# --- the end ----------------------------------------------------------------------------------------------------------------


def _settle(stage: Stage) -> None:
    """Let every actor finish its remaining work after the faults have ended. In some worlds no migrator resumes a migration that
    has sealed its topic. The next process that finds the seal then completes the migration.
    """
    world = stage.world
    resumed = world.rng.random() < 0.7
    for move in stage.moves:
        if not move.over and (resumed or not _is_sealed(world, move.old)):
            start_migrator(world, move, within=20)
    for job in stage.writers:
        if not job.done:
            start_driver(world, job, **PACE)
    for job in stage.further:
        if not job.done:
            start_driver(world, job)
    _start_calm_sweeper(stage)
    for query in stage.queries:
        query.left = 3
        start_stream(world, query, within=60)


def _start_calm_sweeper(stage: Stage) -> None:
    """Start a sweeper after the faults have ended. An open transaction in the old log could block all later writers, because only a
    sweep aborts the transaction after its deadline.
    """
    process, jobs = Process(stage.world, "calm"), [*stage.writers, *stage.further]

    def run() -> None:
        client = process.client
        while not all(job.done for job in jobs):
            process.cluster.clock.sleep(1.0)
            client.sweep()

    stage.world.spawn(process, process.name, run, delay=50)


def _is_sealed(world: World, topic: str) -> bool:
    return Process(world, "look").client.instream.migrator.successor(persistent_name(topic)) is not None


def _finish(stage: Stage) -> None:
    """Check the world at its end, after all deadlines. Sweep the topics of both models once. Then read by the old and by the new
    names. The history checker judges that each read returns each committed row exactly once.
    """
    world, history = stage.world, stage.world.history
    client = Process(world, "end").client
    _ended(stage)
    for old in dict.fromkeys(move.old for move in stage.moves):
        client.instream.migrator.finish(persistent_name(old))
    client.sweep()
    for move in stage.moves:
        _went_on(stage, move)
    if left := [str(txn.least) for txn in client.instream.coordinator.log.live() if txn.state not in FINAL]:
        history.bad(f"transactions that nobody has ended are left: {', '.join(left)}", 10)
    for topic in (P, Q):
        read_all(world, Process(world, "end").client.instream.buffer, "reader at the end", topic, final=True)
    fresh = Process(world, "end").client
    for topic in (P, *sorted({move.to for move in stage.moves if move.over == "done"})):
        read_current(world, fresh, "batch at the end", topic, final=True)
    for query in stage.queries:
        if query.topic in (P, *stage.shown):
            _to_its_end(world, query)
    if stage.consumed:
        drain(world, fresh, P, SUBSCRIPTION)


def _ended(stage: Stage) -> None:
    for job in stage.writers:
        if not job.done:
            stage.world.history.bad(f"the job {job.name} did not finish: at {job.at} of {job.versions}")
        elif job.stopped in ("TopicSealed", "TransactionUnfinished", "TopicExists"):
            stage.world.history.bad(f"the job {job.name} was stopped for good by {job.stopped}", 12)
    for job in stage.further:
        if not job.done:
            stage.world.history.bad(f"the job {job.name} did not finish: at {job.at} of {job.versions}")


def _went_on(stage: Stage, move: Move) -> None:
    """Check that the topic has migrated and that its successor has an active segment. If this migrator reported success, the
    successor must have the name that it asked for.
    """
    world = stage.world
    client = Process(world, "end").client
    to = client.instream.migrator.successor(persistent_name(move.old))
    if to is None:
        world.history.bad(f"{move.old} was not migrated: {move}", 12)
        return
    if move.over == "done" and str(to) != move.to:
        world.history.bad(f"{move.name} was told that {move.old} went on as {move.to}; it is {to}", 12)
    segments = client.topics.get(to).layout.segments.values()
    if not any(info.state is SegmentState.ACTIVE and info.legacy_topic_name is None for info in segments):
        world.history.bad(f"{to} has no active segment", 12)


def _to_its_end(world: World, query: SparkStream) -> None:
    """Continue the query in a new process until its offset no longer moves. The history checker judges that the query has returned
    each row once.
    """
    running = Running(world, Process(world, "end").client, query)
    for _ in range(60):
        if not running.run_batch():
            return
    world.history.bad(f"{query.name} does not come to an end: {query.at}", 9)
