"""A model of several logs: `python -m benchmarks logs`. Pure: the time is simulated, and the chance comes from a seed.

Each log is in a metadata store of its own. A store has two stations, through which requests go one after the other: the
processor of the busiest server, and the flush of its log, which takes all changes that wait as one group. A writer commits one
transaction after the other, step by step, as the code does. A transaction that crosses registers in two logs: it does the steps
between the header and the decision in both stores at once, and waits for the later one. Readers poll the store of their log.

The model leaves out: the followers of an ensemble, watches, sweeps, batches of the network, and everything that fails. Its
service times are measured (`Costs`), so it tells how the throughput grows, and not how many commits a second a given machine
makes.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.table import Table

from benchmarks.measure import Report

Step = tuple[int, int]
"""The changes of the store's state that a step of a commit makes, and the requests that it sends. A change is flushed."""
BEFORE: Sequence[Step] = ((1, 3),) * 3
"""The steps before the commit: the topic, its schema and the time are read, while the rows are staged. Each read of an ensemble
begins with a change, by which it is sure to be up to date.
"""
OPEN: Sequence[Step] = ((1, 3), (1, 1))
"""Read the application and the layout; write the header and the application."""
REGISTER: Sequence[Step] = ((1, 1), (1, 3), (0, 2), (1, 1))
"""Append the registration, read the log, read its new bodies and the layout, write the op records."""
DECIDE: Sequence[Step] = ((1, 1),)
AFTER: Step = (1, 1)
"""The events and the settling, for which no caller waits."""
POLL: Step = (1, 3)
"""A poll of a reader."""


@dataclass(frozen=True)
class Costs:
    """Service times in milliseconds. `change`, `request`: of the processor of the busiest server. `flush`: of one group of changes.
    `network`: there and back. `client`: what a writer does for each transaction by itself.
    """

    change: float
    request: float
    flush: float
    network: float
    client: float


COSTS = Costs(change=0.24, request=0.09, flush=2.0, network=0.2, client=12.0)
"""As `python -m benchmarks many` has measured them (docs/scaling.md names machine and date)."""


@dataclass(frozen=True)
class Case:
    """`crossing`: the share of transactions that write to two logs. `polls`: polls of each reader in a second."""

    logs: int
    crossing: float
    writers: int = 64
    readers: int = 64
    polls: float = 10.0


class Simulation:
    """One run of a case. `now`: the simulated milliseconds."""

    def __init__(self, case: Case, costs: Costs, seed: int) -> None:
        self.case, self.costs, self.random = case, costs, random.Random(seed)
        self.now, self._count = 0.0, 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.stores = [Store(self) for _ in range(case.logs)]
        self.taken: list[float] = []
        """The milliseconds of each commit."""

    def at(self, delay: float, act: Callable[[], None]) -> None:
        self._count += 1  # events of one time happen in the order in which they were planned
        heapq.heappush(self._events, (self.now + delay, self._count, act))

    def run(self, milliseconds: float) -> None:
        for number in range(self.case.writers):
            self.at(self.random.uniform(0, self.costs.client), partial(self._begin, number))
        for number in range(self.case.readers):
            self.at(self.random.uniform(0, 1000 / self.case.polls), partial(self._poll, number % self.case.logs))
        while self._events and self._events[0][0] <= milliseconds:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _begin(self, writer: int) -> None:
        home = self.stores[writer % self.case.logs]
        places = [home]
        if self.case.logs > 1 and self.random.random() < self.case.crossing:
            places.append(self.random.choice([store for store in self.stores if store is not home]))
        steps: list[tuple[Sequence[Store], Step]] = [
            *(([home], step) for step in (*BEFORE, *OPEN)),
            *((places, step) for step in REGISTER),
            *(([home], step) for step in DECIDE),
        ]
        self._next(writer, deque(steps), places, None)

    def _next(self, writer: int, steps: deque[tuple[Sequence[Store], Step]], places: Sequence[Store], began: float | None) -> None:
        if len(steps) == len(OPEN) + len(REGISTER) + len(DECIDE):
            began = self.now
        if not steps:
            assert began is not None
            self.taken.append(self.now - began)
            for store in places:
                store.ask(AFTER, lambda: None)
            # a writer's own work varies, so that writers do not march in step
            self.at(self.random.uniform(0.5, 1.5) * self.costs.client, partial(self._begin, writer))
            return
        stores, step = steps.popleft()
        waiting = len(stores)

        def answered() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                self._next(writer, steps, places, began)

        for store in stores:
            self.at(self.costs.network / 2, partial(store.ask, step, partial(self.at, self.costs.network / 2, answered)))

    def _poll(self, log: int) -> None:
        """A reader polls its log. The header of an undecided crossing transaction is in the store of another log."""
        self.stores[log].ask(POLL, lambda: None)
        if self.case.logs > 1 and self.random.random() < self.case.crossing:
            self.random.choice([one for n, one in enumerate(self.stores) if n != log]).ask((1, 2), lambda: None)
        self.at(1000 / self.case.polls, partial(self._poll, log))


@dataclass
class Store:
    """The store of one log: the requests that wait for the processor, and the changes that wait for the flush."""

    world: Simulation
    requests: deque[tuple[Step, Callable[[], None]]] = field(default_factory=deque)
    changes: list[Callable[[], None]] = field(default_factory=list)
    works: bool = False
    flushes: bool = False

    def ask(self, step: Step, answer: Callable[[], None]) -> None:
        self.requests.append((step, answer))
        if not self.works:
            self.works = True
            self._work()

    def _work(self) -> None:
        if not self.requests:
            self.works = False
            return
        (changes, requests), answer = self.requests.popleft()
        costs = self.world.costs

        def done() -> None:
            if changes:
                self.changes.append(answer)
                if not self.flushes:
                    self._flush()
            else:
                answer()
            self._work()

        self.world.at(changes * costs.change + requests * costs.request, done)

    def _flush(self) -> None:
        self.flushes = bool(self.changes)
        group, self.changes = self.changes, []
        if not group:
            return

        def done() -> None:
            for answer in group:
                answer()
            self._flush()

        self.world.at(self.world.costs.flush, done)


def simulated(case: Case, costs: Costs = COSTS, *, seconds: float = 5.0, seed: int = 1) -> tuple[float, float]:
    """Return commits a second, and the 99th percentile of the commits' milliseconds."""
    simulation = Simulation(case, costs, seed)
    simulation.run(seconds * 1000)
    taken = sorted(simulation.taken)
    return len(taken) / seconds, taken[len(taken) * 99 // 100]


LOGS = (1, 2, 4, 8)
SHARES = (0.0, 0.1, 0.5, 1.0)
WRITERS = (16, 64, 256)


def run(*, seconds: float = 5.0) -> Report:
    report = Report("Several logs, simulated")
    per_second: dict[tuple[int, float, int], float] = {}
    for writers in WRITERS:
        table = Table(title=f"{writers} writers, 64 readers: commits a second (p99 of a commit, ms)", title_justify="left")
        table.add_column("crossing")
        for logs in LOGS:
            table.add_column(f"{logs} logs", justify="right")
        for share in SHARES:
            found = [simulated(Case(logs, share, writers), seconds=seconds) for logs in LOGS]
            per_second |= {(logs, share, writers): rate for logs, (rate, _) in zip(LOGS, found, strict=True)}
            table.add_row(f"{share:.0%}", *(f"{rate:.0f} ({p99:.0f})" for rate, p99 in found))
        report.tables.append(table)
    most = WRITERS[-1]
    text = f"{LOGS[-1]} logs against 1, {most} writers, no transaction crosses"
    report.claim(text, per_second[LOGS[-1], 0.0, most] / per_second[1, 0.0, most], 4, at_least=True)
    text = f"{LOGS[-1]} logs against 1, {most} writers, a tenth crosses"
    report.claim(text, per_second[LOGS[-1], 0.1, most] / per_second[1, 0.1, most], 3, at_least=True)
    return report
