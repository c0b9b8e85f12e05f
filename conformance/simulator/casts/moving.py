"""Schedules with consume-transform-produce. A mover takes unacknowledged rows of a subscription, writes to two topics through
staging manifests, and commits writes and acknowledgements together. The faults are the same as in other schedules. Each round is a
version of the mover's application. Two movers of one application are twins.
"""

from __future__ import annotations

import random
from itertools import count

from pyspark.sql.types import StringType, StructField, StructType

from conformance.history.format import Commit, Poll, Written
from conformance.simulator.actors.consuming import choose
from conformance.simulator.actors.sweepers import start_sweeper
from conformance.simulator.actors.working import start_rounds
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.acking import SUBSCRIPTIONS, subscribed
from conformance.simulator.casts.casts import PAST_NAMES, Cast, go_on, may_nap
from conformance.simulator.casts.pasts import past
from conformance.simulator.store.storage import GatedStorage
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import SETTINGS, Actor, Process, World
from conformance.simulator.world.stage import D, T, U, staged
from ledgers.model import Part
from metadata.client.client import Client
from metadata.common.errors import TxnSegmentError
from metadata.read.reading import LogSelection
from metadata.records.names import topic_name
from metadata.store.contract import time_ms
from metadata.write.staging_manifests import StagingArea, StagingManifest
from txnsegment.spark_transaction import SparkTransaction

MOVERS = {"m0": "move", "m1": "move", "m2": "other"}
"""The application of each mover."""
OUTPUTS = (U, D)
_TYPES = StructType([StructField("value", StringType())]).json()


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a long cast: a writer, a sweeper, and three movers, of which two are twins. In half of the worlds, files are swept,
    too.
    """
    sweeps_files = rng.random() < 0.5
    state = subscribed(staged((T, 2), (U, 1), (D, 2)))
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500)), "fold_after_registrations": 3})
    world = World(rng, Plan.draw(rng, small=True), settings, state=state, trace=[] if trace else None, files_go=sweeps_files)
    jobs = [Job("q", "q", T, (T,), (0, 1, 2), replays=True, by="query-q")]
    for job in jobs:
        start_driver(world, job)
    for name, app in MOVERS.items():
        start_mover(world, name, app, rounds=2)
    start_sweeper(world, "w0", 2, orphans=sweeps_files)
    # These jobs write nothing. They are listed because the records of their applications may be left at the end.
    movers = [Job(name, app, "", OUTPUTS, ()) for name, app in MOVERS.items()]
    # `topics` limits the event records that may remain. It is one more than the number of topics, since a failed commit may leave
    # its events twice.
    return Cast(world, [*jobs, *movers], [], frozenset({T, U, D}), forgets=True, orphans=sweeps_files, topics=4)


def short(rng: random.Random, trace: bool) -> Cast:
    """Return a short cast: two movers, perhaps twins, in a world whose past has rows. Some worlds have a sweeper or a writer."""
    sweeps_files = rng.random() < 0.4
    before = past(rng.choice(PAST_NAMES), (T, 1), (U, 1), (D, 1), then=subscribed)
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500)), "fold_after_registrations": 3})
    plan, rested = Plan.draw(rng, small=True), rng.random() < 0.8
    world = before.world(rng, plan, settings, trace=trace, files_go=sweeps_files, rested=rested)
    names = ("m0", rng.choice(("m1", "m1", "m2")))
    for name in names:
        may_nap(start_mover(world, name, MOVERS[name], rounds=1, within=12), 0.25, 20)
    if sweeps_files or rng.random() < 0.3:
        may_nap(start_sweeper(world, "w0", 1, orphans=sweeps_files, share=False, within=60), 0.25, 26)
    jobs = go_on(world, before, 0.3)
    movers = [Job(name, MOVERS[name], "", OUTPUTS, ()) for name in names]
    forgets = sweeps_files or rng.random() < 0.4
    return Cast(world, [*jobs, *movers], [], frozenset({T, U, D}), forgets=forgets, orphans=sweeps_files, topics=4)


def start_mover(world: World, name: str, app: str, *, rounds: int, within: int = 120) -> Actor:
    versions = count(1)

    def move(process: Process) -> None:
        _move(world, process.client, name, app, next(versions))

    return start_rounds(world, name, rounds, move, within=within)


def _move(world: World, client: Client, name: str, app: str, version: int) -> None:
    history = world.history
    txn = SparkTransaction(client, app=app, version=version, timeout_ms=world.rng.choice((200, 1_000)))
    token = ""
    try:
        with txn:
            token = txn.options["txnStaging"]
            _take(world, client, txn, f"{name}.{version}")
            written = [row for topic in OUTPUTS for row in _write(world, client, token, topic, app, version)]
            claim = txn.claim
            history.asked(
                Commit(history.now(), token, name, app, "", version, tuple(written), None, claim.attempt, claim.replays, False)
            )
            token = f"asked {token}"
            txn.commit()
    except TxnSegmentError as error:
        if token.startswith("asked "):
            history.told(token.removeprefix("asked "), type(error).__name__)
        raise
    made = txn.commit()
    history.told(token.removeprefix("asked "), "skipped" if made.skipped else "committed", made.txn_id)


def _take(world: World, client: Client, txn: SparkTransaction, read: str) -> None:
    history, began = world.history, world.history.now()
    reading = client.buffer.read(LogSelection((T,)))
    rows, acks = choose(world, reading, client.coordinator.acks, SUBSCRIPTIONS[0], single=0.0)
    txn.acknowledge(acks)
    history.saw(Poll(history.now(), began, read, 0, (T,), tuple(rows), subscription=SUBSCRIPTIONS[0], ordered=False))


def _write(world: World, client: Client, token: str, topic: str, app: str, version: int) -> list[Written]:
    """Do one write of Spark: begin it, stage its parts and leave its staging manifest. Return its rows. Sometimes the write runs a
    second time; only its first run counts. Sometimes it is withdrawn, and another write takes its place.
    """
    storage = client.cluster.storage
    assert isinstance(storage, GatedStorage)
    area, name = StagingArea(storage, token), topic_name(topic)
    while True:
        write = world.unique()
        order, staged_ms = area.begin(write, topic), time_ms(client.cluster.store)
        for run in range(1 + (world.rng.random() < 0.2)):
            parts = []
            for segment in client.topics.get(name).active():
                path = f"parts/{app}/{version}/{token}/{write}-{run}-{segment.segment_id}.parquet"
                parts.append((name.segment(segment.range, segment.segment_id), Part(path, 1, 4, 0, (1,), 0)))
            storage.publish_all({part.path: b"part" for _, part in parts})
            area.leave(StagingManifest(write, order, topic, _TYPES, None, staged_ms, tuple(parts)))
            if run == 0:
                written = [Written(part.path, None, segment) for segment, part in parts]
        if world.rng.random() >= 0.2:
            return written
        area.withdraw(write)
