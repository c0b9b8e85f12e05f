"""Commits of a process that has committed before, on any store. Their round trips are counted."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ledgers.model import Part
from metadata.client.client import Client
from metadata.records.names import topic_name
from metadata.rules.transitions import Claim
from metadata.write.write_set import WriteSet

BLOCK = 5
"""How many transaction ids a coordinator reserves at once, as a block. The commits of `trips` use several such blocks."""


def work(one: Client, topic: str, version: int, parts: int = 1) -> WriteSet:
    segments = one.topics.get(topic_name(topic)).segments()
    one.cluster.storage.create()
    if one.cluster.storage.info("part.parquet") is None:
        one.cluster.storage.publish("part.parquet", b"part")
    found = {s: [Part("part.parquet", 1, 4, 0, (1,), 0) for _ in range(parts)] for s in segments}
    now = one.cluster.store.view().now_ms()
    return WriteSet("app", topic, Claim(version, "q", f"a{version}", True), found, now, 30_000)


def trips(one: Client, count: Callable[[], int]) -> list[int]:
    """Return the round trips of each commit, without the first two commits of each topic. The topics have 1, 4 and 64 segments. A
    commit has 1 or 50 parts for each segment. All commits together use more than two blocks of transaction ids.
    """
    found = []
    for segments in (1, 4, 64):
        topic = f"t{segments}"
        one.topics.create(topic_name(topic), segments=segments)
        for version in range(8):
            todo = work(one, topic, version, parts=50 if version == 7 else 1)
            before = count()
            assert one.coordinator.commit(todo).number
            if version > 1:  # the first commits create folders and read eras
                found.append(count() - before)
            _finished(one)
    return found


def _finished(one: Client) -> None:
    """Wait for the background work of the commit."""
    done = threading.Event()
    one.coordinator.background(done.set)
    assert done.wait(30)
