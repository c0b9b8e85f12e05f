"""The initial state of a world: its topics. The real code creates the topics of a world once. Later worlds get copies."""

from __future__ import annotations

from functools import lru_cache

from conformance.simulator.store.clock import SimulatedClock
from conformance.simulator.store.faults import GatedStore
from conformance.simulator.store.storage import Disk, GatedStorage
from conformance.simulator.world.scheduler import SETTINGS
from metadata.cluster.cluster import Cluster
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.topics import PersistentTopics
from metadata.records.names import persistent_name, topic_name
from metadata.store.memory import MemoryState
from metadata.topics.topics import Topics

T, U, D = "topic://public/default/t", "topic://public/default/u", "topic://public/default/d"
P, Q = "persistent://public/default/p", "persistent://public/default/q"
Y, Z, W = "topic://public/default/y", "topic://public/default/z", "topic://public/default/w"
"""Y is the successor of P, and Z the successor of Q. W is another successor that a migration of P may name. No process creates
these topics before the migration.
"""


def staged(
    *topics: tuple[str, int], key: str | None = None, persistent: tuple[str, ...] = (), subscription: str | None = None
) -> MemoryState:
    """Return a store with topics. `topics`: (name, count of segments) of each topic:// topic. `key`: the key column of these
    topics. `persistent`: the persistent topics. `subscription`: a subscription that each persistent topic gets; None: no
    subscription.
    """
    return made(topics, key, persistent, subscription).copy()


@lru_cache
def made(
    topics: tuple[tuple[str, int], ...], key: str | None, persistent: tuple[str, ...], subscription: str | None
) -> MemoryState:
    state, clock = MemoryState(), SimulatedClock()
    cluster = Cluster("memory://stage", GatedStore(state, clock), GatedStorage(Disk(clock)), SETTINGS, clock)
    for name, segments in topics:
        Topics(cluster).create(topic_name(name), segments=segments, key=key)
    for name in persistent:
        PersistentTopics(cluster).create(persistent_name(name))
        if subscription is not None:
            InStreamAcks(cluster).create(name, subscription)
    return state
