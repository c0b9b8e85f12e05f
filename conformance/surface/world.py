"""A cluster under test: its folder or chroot, its open processes, and the model of its expected content."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.harness.faulty_store import FaultyStore
from conformance.surface.gate import Gate, Held, persistent_data
from conformance.surface.model import Model, Row, Written
from metadata.client import client as clients
from metadata.client.client import client
from metadata.cluster.cluster import open_cluster, resolve
from metadata.common.clock import SystemClock
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.paths import decode
from metadata.store.contract import Append
from txnsegment.cluster import Cluster

SETTINGS = Settings(
    header_retention_ms=10_000,
    orphan_age_ms=6 * 3_600_000,
    grace_period_ms=6 * 3_600_000,
    fold_after_registrations=4,
    fold_after_ms=1_000,
    orphan_sweep_ms=3_600_000,
)


class ByHand(SystemClock):
    """The clock of all processes of a run. Operations and sleeping processes move it. `passed_ms`: the time since the start of the
    run. `leap_ms`: how far the wall clock is ahead now.
    """

    def __init__(self) -> None:
        self._began_ms = super().now_ms()
        self._began = super().monotonic()
        self.passed_ms = 0
        self.leap_ms = 0
        self.furthest_ms = 0
        """The latest time that the clock has shown."""

    def now_ms(self) -> int:
        now = self._began_ms + self.passed_ms + self.leap_ms
        self.furthest_ms = max(self.furthest_ms, now)
        return now

    def true_ms(self) -> int:
        return self._began_ms + self.passed_ms

    def monotonic(self) -> float:
        return self._began + self.passed_ms / 1000

    def sleep(self, seconds: float) -> None:
        # Ten times the requested time passes, as on a busy machine, so that a long wait needs few polls.
        self.passed_ms += max(1, round(seconds * 10_000))
        threading.Event().wait(0.0002)


@dataclass
class Process:
    """A simulated process that has the cluster open. `held`: its paused commit or migration, if there is one."""

    cluster: Cluster
    gate: Gate
    held: Held | None = None


@dataclass
class World:
    """One cluster and everything that works on it. `url`: its service URL. `root`: its ledger root. `usable`: False if a restored
    cluster has replaced it, or if it is a copy that the product refuses. `copied`: whether it is a copied or restored cluster.
    `holding`: the transactions and migrations whose process is paused or dead.
    """

    name: str
    url: str
    root: Path
    clock: ByHand
    model: Model = field(default_factory=Model)
    processes: list[Process] = field(default_factory=list)
    usable: bool = True
    copied: bool = False
    next_row: int = 0
    consumers: list[Any] = field(default_factory=list)
    transactions: list[Any] = field(default_factory=list)
    producers: list[Any] = field(default_factory=list)
    queries: list[Any] = field(default_factory=list)
    sinks: list[Any] = field(default_factory=list)
    chains: list[Any] = field(default_factory=list)
    ranges: list[Any] = field(default_factory=list)
    backups: list[Any] = field(default_factory=list)
    holding: list[Any] = field(default_factory=list)

    # --- processes -------------------------------------------------------------------------------------------------------

    def open(self) -> Process:
        zookeeper = self.url.startswith("zk://")
        given = {} if self.copied else {"ledgers": f"file://{self.root}", "settings": SETTINGS}
        made = open_cluster(self.url, clock=SystemClock() if zookeeper else self.clock, **given)  # type: ignore[arg-type]
        made.clock = self.clock
        gate = Gate(self._ahead_ms if zookeeper else lambda: 0, self._hear)
        made.store = FaultyStore(made.store, gate)
        process = Process(Cluster(client(made)), gate)
        self.processes.append(process)
        return process

    def _ahead_ms(self) -> int:
        return self.clock.passed_ms + self.clock.leap_ms

    def _hear(self, one: Append, number: int) -> None:
        """Record in the model the number that an append got: the number of new rows in the log of a persistent topic, or the number
        of a seal that a migration appends to the topic's log or to the cluster's log.
        """
        persistent = self.model.persistent
        if persistent_data(one):
            persistent.data[decode(one.prefix.partition)] = number
        elif b'"why":"migrate"' in one.value:
            said = json.loads(one.value)
            if one.prefix == paths.LOG:
                name = said["seal"][0]
                persistent.shifts.setdefault(name, number - 1 - persistent.seals[name])
            else:
                persistent.seals[decode(one.prefix.partition)] = number

    def process(self, pick: int) -> Process:
        """Return a process that is not paused. Open a new one if there is none."""
        free = [one for one in self.processes if one.held is None]
        return free[pick % len(free)] if free else self.open()

    def close(self, process: Process) -> None:
        self.processes.remove(process)
        process.cluster.close()

    @contextmanager
    def inside(self, process: Process) -> Iterator[None]:
        """Let the readers and writers of Spark use the client of this process during the block."""
        key = (os.getpid(), resolve(self.url).text)
        place = clients._Place(client=process.cluster.client)
        clients._shared[key] = place
        try:
            yield
        finally:
            clients._shared.pop(key, None)

    def forgotten(self, name: str) -> bool:
        """Return whether a topic of this name was deleted so long ago that the store may no longer know whether the topic had rows.

        The answer becomes True one minute too early. The reason is that the time of a ZooKeeper store also advances with real time,
        so that the store may forget the topic before the grace period is over on the run's clock.
        """
        deleted = self.model.deleted_ms.get(name)
        return deleted is not None and deleted + SETTINGS.grace_period_ms <= self.clock.furthest_ms + 60_000

    # --- rows ------------------------------------------------------------------------------------------------------------

    def rows(self, topic: str, count: int, seed: int) -> list[Row]:
        """Return new rows for a topic. Some of them have no key."""
        incarnation = self.model.topics[topic].incarnation
        found = []
        for i in range(count):
            key = (seed * 7 + i * 3) % 11
            found.append(Row(self.next_row, incarnation, None if key == 0 else f"k{key}"))
            self.next_row += 1
        return found

    def committing(self, process: Process, written: Written, call: Callable[[], object]) -> object:
        """Run `call`, which commits `written`. If it succeeds, record the commit in the model."""
        process.gate.number = None
        done = call()
        self.model.commit(written, process.gate.number if written.rows else None, self.clock.true_ms())
        return done

    # --- after each operation ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until the background work of all commits is done."""
        for process in self.processes:
            if process.held is None:
                process.cluster.client.finish()
        self.model.trimmed(self.clock.true_ms())  # the share of the sweeping after any commit may have trimmed rows

    def end(self) -> None:
        """Close all consumers, queries and processes. The calls of paused processes fail."""
        for consumer in self.consumers:
            consumer.close()
        for query in self.queries:
            query.stop()
        for process in self.processes:
            if process.held is not None:
                process.gate.dead = True
                process.held.finish()
                process.cluster.client.cluster.store.close()
            else:
                process.cluster.close()
        self.processes.clear()
