"""The world: a store, a disk, a clock, and actors that take turns. At each step of the store or the disk the scheduler decides
who goes next and what becomes of the step. Everything random comes from one seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import greenlet

from conformance.simulator.faults import Crashed, Fate, GatedStore
from conformance.simulator.observer import History
from conformance.simulator.storage import Disk, GatedStorage
from metadata.cluster import Cluster
from metadata.records import Settings
from metadata.store.memory import MemoryState
from metadata.sweeper import Sweeper
from metadata.transaction_buffer import TransactionBuffer

SETTINGS = Settings(
    txn_timeout_ms=1_000,
    max_txn_timeout_ms=3_000,
    deadline_allowance_ms=100,
    header_retention_ms=4_000,
    orphan_age_ms=100_000,
    grace_period_ms=150_000,
    fold_after_registrations=3,
    fold_after_ms=300,
    txn_id_block=3,
)
START_MS = 1_700_000_000_000


class SimulatedClock:
    """Moves when the scheduler says so. Sleeping is a step."""

    def __init__(self) -> None:
        self.now = START_MS
        self.pause: Callable[[str, str], Fate] = lambda kind, what: Fate.GO

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000

    def sleep(self, seconds: float) -> None:
        self.pause("sleep", "")
        self.now += int(seconds * 1000)


@dataclass
class Plan:
    """How one schedule behaves: drawn from its seed, so that some are calm and some are rough (each fault absent in many)."""

    stay: float
    torn: float
    slow: float
    doze: float
    jump: float
    fates: list[tuple[float, Fate]]

    @classmethod
    def draw(cls, rng: random.Random) -> Plan:
        def some(top: float) -> float:
            return rng.choice((0.0, 0.0, top / 4, top))

        rates = {
            Fate.CRASH_BEFORE: some(0.02),
            Fate.CRASH_AFTER: some(0.02),
            Fate.LOSE_REPLY: some(0.08),
            Fate.LOSE_REQUEST: some(0.04),
            Fate.LATE: some(0.04),
            Fate.SPLIT: some(0.10),
            Fate.SPLIT_CRASH: some(0.03),
            Fate.UNAVAILABLE: some(0.02),
            Fate.SESSION_LOST: some(0.02),
        }
        fates, total = [], 0.0
        for fate, rate in rates.items():
            total += rate
            fates.append((total, fate))
        return cls(
            stay=rng.choice((0.0, 0.3, 0.7, 0.9, 0.95)),
            torn=rng.choice((0.0, 0.3, 1.0)),
            slow=rng.choice((0.0, 0.0, 0.3)),
            doze=some(0.02),
            jump=some(0.01),
            fates=fates if rng.random() < 0.8 else [],
        )


class Process:
    """What dies together: a session, a memory of the log, threads."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.alive = world, name, True
        self.store = GatedStore(
            world.state, world.clock, world.gate, observer=world.history, torn=world.torn, late=world.later, slow=world.slow
        )
        self.cluster = Cluster(
            "memory://simulated",
            self.store,
            GatedStorage(world.disk, world.gate),
            world.settings,
            world.clock,
            world.unique,
            owner=name,
        )
        self.buffer = TransactionBuffer(self.cluster)
        self.sweeper = Sweeper(self.cluster, self.buffer)


class Actor:
    """A thread of a process."""

    def __init__(self, process: Process, name: str, run: Callable[[], None], on_crash: Callable[[], None] | None) -> None:
        self.process, self.name, self.on_crash = process, name, on_crash
        self.greenlet = greenlet.greenlet(run, process.world.hub)
        self.asked: tuple[str, str] | None = None
        self.wakes = 0
        self.aborts: str | None = None
        self.opened = False
        """Whether its transaction's header exists (so that its deadline protects the world from it)."""


@dataclass
class World:
    rng: random.Random
    plan: Plan
    settings: Settings = SETTINGS
    state: MemoryState = field(default_factory=MemoryState)
    trace: list[str] | None = None
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    actors: list[Actor] = field(default_factory=list)
    steps: int = 0
    crashes: int = 0
    calm: bool = False
    """No faults any more: the end, where everything must come right."""

    def __post_init__(self) -> None:
        self.disk = Disk(self.clock)
        self.history = History(self.state, self.disk)
        self.clock.pause = self.gate
        self.current: Actor | None = None
        self.hub = greenlet.getcurrent()
        self.history.aborting = lambda: None if self.current is None else self.current.aborts
        self._names = 0
        self._late: list[tuple[int, Callable[[], None]]] = []

    def unique(self) -> str:
        self._names += 1
        return f"u{self._names:06d}"

    def torn(self) -> bool:
        return self.current is not None and self.plan.torn > 0 and self.rng.random() < self.plan.torn

    def slow(self) -> bool:
        return self.current is not None and self.plan.slow > 0 and self.rng.random() < self.plan.slow

    def later(self, effect: Callable[[], None]) -> None:
        """A request that is still under way."""
        self._late.append((self.steps + self.rng.randrange(1, 30), effect))

    def gate(self, kind: str, what: str) -> Fate:
        actor = self.current
        if actor is None:
            return Fate.GO
        if not actor.process.alive:
            raise Crashed
        if kind == "write" and what.startswith("Put /txn/id/"):
            actor.opened = True
        fate: Fate = self.hub.switch(kind, what)
        return fate

    def spawn(
        self, process: Process, name: str, run: Callable[[], None], *, on_crash: Callable[[], None] | None = None, delay: int = 0
    ) -> Actor:
        actor = Actor(process, name, run, on_crash)
        actor.wakes = self.steps + delay
        self.actors.append(actor)
        return actor

    # --- who goes next -------------------------------------------------------------------------------------------

    def run(self, limit: int) -> bool:
        """Let them take turns until all are done; False if they are not after `limit` steps."""
        last: Actor | None = None
        while self.actors and self.steps < limit:
            self.steps += 1
            if self._late:
                self._arrive()
            actor = last if last in self.actors and self.rng.random() < self.plan.stay else self._pick()
            assert actor is not None
            last = actor
            self._move_time()
            self._step(actor)
        self._arrive(everything=True)
        return not self.actors

    def _pick(self) -> Actor:
        ready = [a for a in self.actors if a.wakes <= self.steps]
        return self.rng.choice(ready) if ready else min(self.actors, key=lambda a: a.wakes)

    def _step(self, actor: Actor) -> None:
        if actor not in self.actors:
            return
        fate = Fate.GO if self.calm or not self._pending(actor) else self._fate(actor)
        if fate in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.SPLIT_CRASH):
            if self.crashes >= 6:
                fate = Fate.GO
            else:
                self.crashes += 1
                actor.process.alive = False
        self.current = actor
        try:
            answer = actor.greenlet.switch(fate) if self._pending(actor) else actor.greenlet.switch()
            asked: tuple[str, str] | None = answer if isinstance(answer, tuple) else None
        except Crashed:
            asked = None
        finally:
            self.current = None
        if self.trace is not None:
            note = "" if fate is Fate.GO else f" [{fate.name}]"
            self.trace.append(f"{self.steps:5} {self.clock.now - START_MS:7} {actor.name:14}{note} -> {asked or 'done'}")
        actor.asked = asked
        if not actor.process.alive:
            self.kill(actor.process)
        elif asked is None:
            self.actors.remove(actor)
        elif not self.calm and self.plan.doze and self.rng.random() < self.plan.doze:
            actor.wakes = self.steps + self.rng.choice((5, 30, 150))

    @staticmethod
    def _pending(actor: Actor) -> bool:
        return bool(actor.greenlet)

    def kill(self, process: Process) -> None:
        """SIGKILL: nothing of it runs on; somebody may restart it."""
        process.alive = False
        doomed = [a for a in self.actors if a.process is process]
        self.actors = [a for a in self.actors if a.process is not process]
        for actor in doomed:
            if actor.greenlet:
                self.current = actor
                try:
                    actor.greenlet.throw(Crashed)
                except Crashed:
                    self.current = None
                finally:
                    self.current = None
        self.state.end_session(process.store.session)
        for actor in doomed:
            if actor.on_crash is not None:
                actor.on_crash()

    def _fate(self, actor: Actor) -> Fate:
        if not self.plan.fates:
            return Fate.GO
        assert actor.asked is not None
        kind = actor.asked[0]
        draw = self.rng.random()
        fate = next((f for top, f in self.plan.fates if draw < top), Fate.GO)
        if kind == "write":
            return fate
        if kind in ("get", "keys", "index"):
            return fate if fate in (Fate.CRASH_BEFORE, Fate.UNAVAILABLE, Fate.SESSION_LOST) else Fate.GO
        return fate if fate in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER) else Fate.GO

    def _arrive(self, *, everything: bool = False) -> None:
        due = [effect for at, effect in self._late if everything or at <= self.steps]
        self._late = [] if everything else [(at, effect) for at, effect in self._late if at > self.steps]
        for effect in due:
            effect()

    # --- time ----------------------------------------------------------------------------------------------------

    def _move_time(self) -> None:
        self.clock.now += self.rng.choice((0, 0, 1, 1, 5))
        if not self.calm and self.plan.jump and self.rng.random() < self.plan.jump:
            self.jump(self.rng.choice((400, 1_200, 5_000, 5_000, 110_000)))

    def jump(self, ms: int) -> None:
        """A leap of the clock. Nobody sleeps through one as long as the orphan age in the middle of naming files: the page allows
        the sweep that much (a driver that has opened may, its header's deadline protects us).
        """
        if ms >= self.settings.orphan_age_ms:
            for process in {id(a.process): a.process for a in self.actors if not a.opened}.values():
                self.kill(process)
        self.clock.now += ms
