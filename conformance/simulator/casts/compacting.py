"""Schedules in which topics are compacted while other actors write, read, split and acknowledge them. More than half of these
schedules also have trims. The history checker uses the same rules as for other schedules, since compaction changes neither the rows
of a read nor their order or positions. Only trims change the rows of a read. A batch read begins after the trimmed rows, a stream
that needs trimmed rows fails, and trimmed rows never come back (protocol.md section 7).
"""

from __future__ import annotations

import random
from functools import cache

from conformance.simulator.actors.readers import Stream, start_batch_reader, start_stream
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.casts import acking, casts, moving, splitting
from conformance.simulator.casts.casts import Cast
from conformance.simulator.store.origins import joined
from conformance.simulator.world.scheduler import Actor, Process, World
from conformance.simulator.world.stage import T, U
from ledgers.compaction import Policy
from metadata.client.passes import delete_orphans
from metadata.common.errors import TxnSegmentError
from metadata.maintenance.compaction import Compacted, Compactor
from metadata.maintenance.trimming import Trimmer
from metadata.read.reading import LogSelection
from metadata.records.names import TopicName, topic_name
from metadata.topics.policies import set_for_topic
from metadata.topics.topics import Topics


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a long cast. Half of the worlds have a past, in which transactions were committed (`pasts`). In the others there is
    nothing to compact before the first sweep.
    """
    kind = rng.random()
    draw = _middle if kind < 0.5 else splitting.drawn if kind < 0.7 else acking.drawn if kind < 0.9 else moving.drawn
    cast, within = draw(rng, trace), 60 if kind < 0.5 else 200
    if kind >= 0.7:
        _start_leaver(cast.world)
    for i in range(rng.choice((1, 1, 2))):
        start_compactor(cast.world, f"z{i}", rng.choice((1, 2, 4)), within=within)
    if rng.random() < 0.6:
        _start_slow(cast, within)
        for i in range(rng.choice((1, 1, 2))):
            start_trimmer(cast.world, f"r{i}", rng.choice((2, 4)), within=within)
    _with_files(cast, within)
    return cast


def short(rng: random.Random, trace: bool) -> Cast:
    """Return a short cast of another kind of schedule, and add one or two compactors. More than half of the worlds have an actor
    that trims.
    """
    kind = rng.random()
    draw = _middle if kind < 0.5 else splitting.short if kind < 0.7 else acking.short if kind < 0.9 else moving.short
    cast = draw(rng, trace)
    if kind >= 0.7:
        _start_leaver(cast.world)
    start_compactor(cast.world, "z0", rng.choice((1, 1, 2)), within=40)
    if rng.random() < 0.2:
        start_compactor(cast.world, "z1", 1, within=40)
    if rng.random() < 0.6:
        _start_slow(cast, 40)
        start_trimmer(cast.world, "r0", rng.choice((1, 2)), within=40)
    _with_files(cast, 40)
    return cast


def _middle(rng: random.Random, trace: bool) -> Cast:
    """Return a `casts.middle` cast. Half of the worlds sweep files, too. In half of the worlds, chosen independently, all existing
    files are older than the orphan age.
    """
    cast = casts.middle(rng, trace, sweeping=0.5)
    if rng.random() < 0.5:
        # All files are older than the orphan age now, so the first orphan sweep deletes those that nothing protects.
        cast.world.clock.now += cast.world.settings.orphan_age_ms + 1
    return cast


def _start_slow(cast: Cast, within: int) -> None:
    """In half of the worlds, start a stream that reads slowly (`max_rows` is 1). Rows may be trimmed before it has read them."""
    if cast.world.rng.random() < 0.5:
        cast.streams.append(Stream("slow", 1, selection=LogSelection((T, U)), left=6))
        start_stream(cast.world, cast.streams[-1], within=within)


def _with_files(cast: Cast, within: int) -> None:
    """In worlds that delete files, start a reader that pauses for many steps, perhaps between its plan and its reads. In a tenth of
    all worlds, also sweep orphans at the end and report the files that are left although no record names them.
    """
    rng = cast.world.rng
    if cast.world.files_go:
        reader = start_batch_reader(cast.world, "late", LogSelection((T, U)), 1, within=within)
        reader.nap = rng.choice((6, 9, 14, 20, 30)), rng.choice((60, 200, 1_000))  # compaction may move the planned rows meanwhile
    if rng.random() < 0.1:
        cast.forgets = cast.orphans = True


def _start_leaver(world: World) -> None:
    """Start an actor that deletes the subscription that no consumer uses. No row can be trimmed before this deletion."""
    process = Process(world, "leaver")

    def run() -> None:
        client = process.client
        for _ in range(3):
            try:
                client.subscriptions.delete(topic_name(T), acking.SUBSCRIPTIONS[1])
            except TxnSegmentError:
                continue
            return

    world.spawn(process, process.name, run)


def start_trimmer(world: World, name: str, rounds: int, *, within: int) -> None:
    """Start an actor. In each round it sets the retention of one topic, sweeps, and trims this topic. A trim removes no row that a
    subscription needs. Sometimes the actor pauses for many steps, so that others change what it has read.
    """
    rng = world.rng

    @cache
    def limited() -> tuple[TopicName, dict[str, int]]:
        topic = topic_name(rng.choice((T, T, U)))
        by_size = rng.random() < 0.7
        return topic, {"retention_bytes": rng.choice((0, 0, 4, 24))} if by_size else {"retention_ms": rng.choice((50, 400))}

    def trim(process: Process) -> None:
        topic, limit = limited()
        set_for_topic(process.cluster, topic, limit)
        process.sweeper.sweep()  # only folded rows can be trimmed
        Trimmer(process.cluster, process.buffer).trim(topic)

    _may_sleep(start_rounds(world, name, rounds, trim, pause=0.1, within=within))


def start_compactor(world: World, name: str, rounds: int, *, within: int) -> None:
    """Start an actor that compacts the folded rows of all topics, `rounds` times. Sometimes it pauses for many steps, while others
    compact, fold and expire the records that it has read.
    """
    policy, sweeps = Policy(grows=world.rng.random() < 0.3), world.rng.random() < 0.4

    def compact(process: Process) -> None:
        if sweeps:
            process.sweeper.sweep()
        for topic in Topics(process.cluster).list():
            for segment in topic.segments():
                # If another compactor is faster, the files that this call wrote are orphans.
                Compactor(process.cluster, joined).compact(segment, policy, Compacted())
        if world.files_go:
            delete_orphans(process.cluster)

    _may_sleep(start_rounds(world, name, rounds, compact, pause=0.1, within=within))


def _may_sleep(actor: Actor) -> None:
    rng = actor.process.world.rng
    if rng.random() < 0.4:
        actor.nap = rng.randrange(26), rng.choice((10, 30, 60, 1_000))
