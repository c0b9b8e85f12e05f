"""The stage of a world: its topics, made by the real code once and copied since."""

from __future__ import annotations

from functools import lru_cache

from conformance.simulator.faults import GatedStore
from conformance.simulator.scheduler import SETTINGS, SimulatedClock
from conformance.simulator.storage import Disk, GatedStorage
from metadata.cluster import Cluster
from metadata.names import topic_name
from metadata.store.memory import MemoryState
from metadata.topics import Topics

T, U, D = "topic://public/default/t", "topic://public/default/u", "topic://public/default/d"


def staged(*topics: tuple[str, int], key: str | None = None) -> MemoryState:
    """A store that has these topics, each with so many segments, routed by `key`."""
    return made(topics, key).copy()


@lru_cache
def made(topics: tuple[tuple[str, int], ...], key: str | None) -> MemoryState:
    state, clock = MemoryState(), SimulatedClock()
    cluster = Cluster("memory://stage", GatedStore(state, clock), GatedStorage(Disk(clock)), SETTINGS, clock)
    for name, segments in topics:
        Topics(cluster).create(topic_name(name), segments=segments, key=key)
    return state
