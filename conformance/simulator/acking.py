"""Schedules with acknowledgements: consumers of one subscription that acknowledge in transactions and without, on segments that
are being written, through the same faults as everything else; the history checker judges invariant 11.
"""

from __future__ import annotations

import random

from conformance.history.format import Commit, Poll, Row
from conformance.simulator.faults import GatedStore
from conformance.simulator.plan import Plan
from conformance.simulator.quiet import quiet
from conformance.simulator.readers import rows_of
from conformance.simulator.scheduler import SETTINGS, Process, SimulatedClock, World
from conformance.simulator.schedules import Cast, Outcome, play
from conformance.simulator.stage import T, U, staged
from conformance.simulator.sweepers import start_sweeper
from conformance.simulator.writers import Job, hands_on, start_driver
from metadata import paths
from metadata.acks import Ack
from metadata.backlog import acked, pending, taken
from metadata.client import Client
from metadata.cursors import make_missing
from metadata.errors import TxnSegmentError
from metadata.names import topic_name
from metadata.store.contract import time_ms
from metadata.store.memory import MemoryState
from metadata.topics import of_record
from metadata.transaction_buffer import Selection
from metadata.transitions import Claim
from metadata.write_set import WriteSet

SUBSCRIPTIONS = ("s", "s1")
"""One name begins as the other (A14); nobody consumes the second."""


def acking(seed: int, *, trace: bool = False) -> Outcome:
    """Run the schedule of a seed."""
    rng = random.Random(f"acks {seed}")
    state = subscribed(staged((T, 2), (U, 1)))
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500)), "fold_after_registrations": 3})
    world = World(rng, Plan.draw(rng, small=True), settings, state=state, trace=[] if trace else None)
    jobs = [Job("q", "q", T, (T,), (0, 1), replays=True, by="query-q"), Job("m", "m", "", (T, U), (1, 2))]
    for job in jobs:
        start_driver(world, job)
    plain = {"c2"}
    world.history.acking = lambda: world.current is not None and world.current.name in plain
    for name in ("c0", "c1", "c2"):
        start_consumer(world, name, rounds=3, plain=name in plain)
    start_sweeper(world, "w0", 2)
    with quiet():
        return play(
            seed, Cast(world, jobs, [], frozenset({T, U}), forgets=True, orphans=False, topics=2), digest=False, trace=trace
        )


def subscribed(state: MemoryState) -> MemoryState:
    store = GatedStore(state, SimulatedClock())
    topic = of_record(topic_name(T), store.view().get(paths.topic(topic_name(T))))
    assert topic is not None
    make_missing(store, [(segment, name) for segment in topic.segments() for name in SUBSCRIPTIONS])
    return state


def start_consumer(world: World, name: str, *, rounds: int, plain: bool) -> None:
    """It takes what is not acknowledged, some of it or all, and acknowledges it."""
    process = Process(world, name)

    def run() -> None:
        client = hands_on(world, process)
        for batch in range(rounds):
            try:
                acks = _consume(world, client, name, batch)
                if plain:
                    client.coordinator.acks.acknowledge(acks)
                elif acks:
                    _commit(world, client, name, acks)
            except TxnSegmentError:
                continue  # an AckConflict: somebody else was faster; any other: it comes again

    world.spawn(process, name, run, delay=world.rng.randrange(120))


def _consume(world: World, client: Client, name: str, batch: int) -> list[Ack]:
    history, began = world.history, world.history.now()
    reading = client.buffer.read(Selection((T,)))
    cursors = client.coordinator.acks.read((segment.name, SUBSCRIPTIONS[0]) for segment in reading.segments)
    done = acked({segment: cursor for (segment, _), cursor in cursors.items()})
    rows, acks = list[Row](), []
    for segment in reading.segments:
        ledgers = [ledger for ledger, _ in pending(reading, segment, done[segment.name], 0, reading.cut)]
        ledgers = ledgers[: world.rng.choice((1, 2, 10))]
        rows += [row for found in ledgers for row in rows_of(world, segment.name, found)]
        ack = taken(segment.name, SUBSCRIPTIONS[0], done[segment.name], ledgers)
        acks += [] if ack is None else [ack]
    history.saw(Poll(history.now(), began, f"{name}.{batch}", 0, (T,), tuple(rows), subscription=SUBSCRIPTIONS[0], ordered=False))
    return acks


def _commit(world: World, client: Client, name: str, acks: list[Ack]) -> None:
    history, attempt = world.history, world.unique()
    app = f"{name}-{attempt}"
    history.asked(Commit(history.now(), attempt, name, app, "", 1, (), None, attempt, False, True))
    timeout_ms = world.rng.choice((200, 1_000))
    claim = Claim(1, None, attempt, False)
    try:
        work = WriteSet(app, "", claim, {}, time_ms(client.cluster.store), timeout_ms, random=True, acks=acks)
        made = client.coordinator.commit(work)
    except TxnSegmentError as error:
        history.told(attempt, type(error).__name__)
        raise
    history.told(attempt, "committed", made.txn_id)
