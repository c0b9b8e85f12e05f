"""Schedules with acknowledgements. Consumers of one subscription acknowledge rows with and without transactions, while writers
write to the same segments. The faults are the same as in other schedules. The history checker judges invariant 11.
"""

from __future__ import annotations

import random

from conformance.simulator.actors.consuming import start_consumer
from conformance.simulator.actors.subscribing import start_subscriber
from conformance.simulator.actors.sweepers import start_sweeper
from conformance.simulator.actors.writers import Job, start_driver
from conformance.simulator.casts.casts import PAST_NAMES, Cast, go_on, may_nap
from conformance.simulator.casts.pasts import past
from conformance.simulator.store.clock import SimulatedClock
from conformance.simulator.store.faults import GatedStore
from conformance.simulator.store.keyed import COLUMN
from conformance.simulator.world.plan import Plan
from conformance.simulator.world.scheduler import SETTINGS, World
from conformance.simulator.world.stage import T, U, staged
from metadata.cursors.cursors import make_missing
from metadata.records import paths
from metadata.records.names import topic_name
from metadata.store.memory import MemoryState
from metadata.topics.topics import of_record

SUBSCRIPTIONS = ("s", "s1")
"""The names of the subscriptions. The first is a prefix of the second, so that an index scan by prefix would touch the wrong
subscription (failure A14 of protocol.md). No consumer uses the second.
"""


def drawn(rng: random.Random, trace: bool) -> Cast:
    """Return a long cast: two writers, a sweeper, and three consumers, of which one uses no transactions. Some worlds also have an
    actor that moves, deletes and recreates the subscription. In most worlds parts have several rows.
    """
    keyed = rng.random() < 0.7
    state = subscribed(staged((T, 2), (U, 1), key=COLUMN if keyed else None))
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 5, 500)), "fold_after_registrations": 3})
    world = World(rng, Plan.draw(rng, small=True), settings, state=state, trace=[] if trace else None)
    jobs = [
        Job("q", "q", T, (T,), (0, 1), replays=True, by="query-q", keyed=keyed),
        Job("m", "m", "", (T, U), (1, 2), keyed=keyed),
    ]
    for job in jobs:
        start_driver(world, job)
    plain = {"c2"}
    world.history.acking = lambda: world.current is not None and world.current.name in plain
    for name in ("c0", "c1", "c2"):
        start_consumer(world, name, T, SUBSCRIPTIONS[0], rounds=3, plain=name in plain)
    if rng.random() < 0.35:
        start_subscriber(world, T, SUBSCRIPTIONS[0], rng.choice((1, 2, 4)))
    start_sweeper(world, "w0", 2)
    return Cast(world, jobs, [], frozenset({T, U}), forgets=True, orphans=False, topics=2)


def short(rng: random.Random, trace: bool) -> Cast:
    """Return a short cast: two or three consumers on rows that were committed before the first step. Some worlds also have a
    sweeper, an actor that moves the subscription, or a writer.
    """
    before = past(rng.choice(PAST_NAMES), (T, 1), (U, 1), keyed=rng.random() < 0.7, then=subscribed)
    settings = SETTINGS.model_copy(update={"header_retention_ms": rng.choice((0, 0, 5, 500)), "fold_after_registrations": 3})
    plan, rested = Plan.draw(rng, small=True), rng.random() < 0.8
    world = before.world(rng, plan, settings, trace=trace, files_go=False, rested=rested)
    plain = {"c1"} if rng.random() < 0.6 else set()
    world.history.acking = lambda: world.current is not None and world.current.name in plain
    for name in ("c0", "c1", "c2")[: rng.choice((2, 2, 2, 3))]:
        consumer = start_consumer(world, name, T, SUBSCRIPTIONS[0], rounds=rng.choice((1, 1, 2)), plain=name in plain, within=24)
        may_nap(consumer, 0.25, 12)
    if rng.random() < 0.25:
        start_subscriber(world, T, SUBSCRIPTIONS[0], rng.choice((1, 2)), within=40)
    if rng.random() < 0.5:
        may_nap(start_sweeper(world, "w0", 1, share=False, within=60), 0.25, 26)
    jobs = go_on(world, before, 0.3)
    return Cast(world, jobs, [], frozenset({T, U}), forgets=rng.random() < 0.5, orphans=False, topics=2)


def subscribed(state: MemoryState) -> MemoryState:
    """Create both subscriptions of T in the state, each at the first row of T. Return the state."""
    store = GatedStore(state, SimulatedClock())
    topic = of_record(topic_name(T), store.view().get(paths.topic(topic_name(T))))
    assert topic is not None
    make_missing(store, [(segment, name) for segment in topic.segments() for name in SUBSCRIPTIONS])
    return state
