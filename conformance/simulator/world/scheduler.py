"""The world: a store, a disk, a clock, and actors that take turns. At each step of the store or the disk the scheduler decides
who goes next and what becomes of the step. Everything random comes from one seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import greenlet

from conformance.history.format import Event
from conformance.simulator.seen.observer import History
from conformance.simulator.store.clock import START_MS, SimulatedClock
from conformance.simulator.store.faults import Crashed, Fate, GatedStore
from conformance.simulator.store.keyed import Dividing
from conformance.simulator.store.storage import Disk, GatedStorage
from conformance.simulator.store.wakes import Watches
from conformance.simulator.world.locks import SimulatedLock
from conformance.simulator.world.plan import Plan
from metadata.client.client import client
from metadata.cluster.cluster import Cluster
from metadata.common.errors import SweepIncomplete, TxnSegmentError
from metadata.records.cluster_records import Settings
from metadata.store.memory import MemoryState

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
PASSING = (0, 0, 0, 1, 1, 1, 1, 5)
"""Milliseconds that a step takes, each as likely as the others."""
DEADLY = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.SPLIT_CRASH)
LEAPS = (400, 1_200, 5_000, 5_000, 110_000, -400, -5_000)
"""Milliseconds by which the clock leaps, each as likely as the others; back as when a new leader's clock is behind."""
READS = frozenset({"get", "keys", "index", "time"})
OF_READS = (Fate.CRASH_BEFORE, Fate.UNAVAILABLE, Fate.SESSION_LOST)
OF_OTHERS = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)
_wakes = attrgetter("wakes")


class Process:
    """What dies together: a session, a memory of the log, threads."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.alive = world, name, True
        plan = world.plan
        self.store = GatedStore(
            world.state,
            world.clock,
            world.gate,
            observer=world.history,
            torn=world.torn if plan.torn else None,
            late=world.later,
            slow=world.slow if plan.slow else None,
            lags=world.lags if plan.lag else None,
            wakes=world.watches,
            dumb=world.dumb if plan.dumb else None,
        )
        storage = GatedStorage(world.disk, world.gate, gate_reads=world.files_go)
        self.cluster = Cluster(
            "memory://simulated",
            self.store,
            storage,
            world.settings,
            world.clock,
            world.unique,
            owner=name,
            lock=world.lock,
        )
        self.client = client(self.cluster, self.aftermath)
        self.client.coordinator.rewrite = Dividing(storage, world.unique)
        self.buffer, self.sweeper = self.client.buffer, self.client.sweeper
        if world.rested:
            self.sweeper.last_fold = world.clock.monotonic()

    def aftermath(self, job: Callable[[], object]) -> None:
        """What a commit does not wait for becomes another thread of the process."""
        self.aside(job, self.sweeper.share)

    def aside(self, *jobs: Callable[[], object]) -> None:
        """Another thread does this, and what fails is put off to the next sweep, as in `metadata.write.aftermath`."""

        def run() -> None:
            for job in jobs:
                try:
                    job()
                except SweepIncomplete as error:
                    self.world.history.bad(f"{self.name}/after: {error}", 5)
                except TxnSegmentError:
                    continue

        self.world.spawn(self, f"{self.name}/after", run)


class Actor:
    """A thread of a process."""

    __slots__ = ("aborts", "asked", "greenlet", "name", "nap", "on_crash", "opened", "process", "wakes", "what")

    def __init__(self, process: Process, name: str, run: Callable[[], None], on_crash: Callable[[], None] | None) -> None:
        self.process, self.name, self.on_crash = process, name, on_crash
        self.greenlet = greenlet.greenlet(run, process.world.hub)
        self.asked: str | None = None
        """The kind of the step that it wants to do next; None: it has not begun."""
        self.what = ""
        self.wakes = 0
        self.nap: tuple[int, int] | None = None
        """After so many steps of its own it sleeps for so many of the others: long enough for a whole sweep in between."""
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
    files_go: bool = True
    """Whether anybody deletes files. If not, reading one (they never change) is no step of its own."""
    rested: bool = False
    """Whether a new process counts as one that has just swept: it does its share later."""
    before: Sequence[Event] = ()
    """What has happened before."""
    brief: bool = False
    """Whether it does in a share of its sweeps only what rarely finds anything (docs/conformance.md)."""
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    actors: list[Actor] = field(default_factory=list)
    steps: int = 0
    crashes: int = 0
    calm: bool = False
    """No faults any more: the end, where everything must come right."""

    def __post_init__(self) -> None:
        self.disk = Disk(self.clock)
        self.history = History(self.state, self.disk, self.settings.deadline_allowance_ms, list(self.before))
        self.clock.pause = self.gate
        self.current: Actor | None = None
        self.hub = greenlet.getcurrent()
        self.history.aborting = lambda: None if self.current is None else self.current.aborts
        self.watches = Watches(self._wake_delays, self.after)
        self.names = 0
        self._late: list[tuple[int, Callable[[], None]]] = []
        self._random, self._bits = self.rng.random, self.rng.getrandbits
        self._limit, self._stay, self._jump, self._harm, self._sleepy = 0, 0, 0.0, 0, 0.0
        self._last: Actor | None = None
        """Who took the last step, and may stay."""
        self._chance = 0
        """What may become of the step that was drawn last."""
        self._leaper: Actor | None = None
        """Whose step was drawn from the gate, and before it the clock leaps."""

    def lock(self) -> SimulatedLock:
        return SimulatedLock(self)

    def unique(self) -> str:
        self.names += 1
        return f"u{self.names:06d}"

    def torn(self) -> bool:
        return self.current is not None and self._random() < self.plan.torn

    def slow(self) -> bool:
        return self.current is not None and self._random() < self.plan.slow

    def lags(self) -> bool:
        return self.current is not None and self._random() < self.plan.lag

    def dumb(self) -> bool:
        return self.current is not None and not self.calm and self._random() < self.plan.dumb

    def later(self, effect: Callable[[], None]) -> None:
        """A request that is still under way: it is its sender's also when it arrives."""
        sender = self.current

        def arrives() -> None:
            self.current = sender
            try:
                effect()
            finally:
                self.current = None

        self.after(arrives, self.rng.randrange(1, 30))

    def after(self, effect: Callable[[], None], steps: int) -> None:
        self._late.append((self.steps + steps, effect))

    def _wake_delays(self) -> tuple[int, ...]:
        """What becomes of one wake-up: it comes after so many steps; or never; or twice."""
        chance = self._random()
        if chance < self.plan.deaf:
            return ()
        first = self.rng.randrange(60) if chance > 0.7 else 1
        return (first, first + self.rng.randrange(60)) if chance > 0.9 else (first,)

    def gate(self, kind: str, what: str) -> Fate:
        """The step that the actor of now wants to do; what becomes of it, once it is his turn.

        Who is next is drawn here and woken from here: to go by way of the hub costs two switches, and if it is the same actor he
        needs none. To the hub is left what is rare: what arrives late, a leap of the clock, the end; and the trace.
        """
        actor = self.current
        if actor is None:
            return Fate.GO
        if not actor.process.alive:
            raise Crashed
        if kind == "write" and what.startswith("Put /txn/id/"):
            actor.opened = True
        actor.asked, actor.what = kind, what
        fate: Fate
        if self._late or self.steps >= self._limit or self.trace is not None:
            fate = self.hub.switch()
            return fate
        if self._sleepy or actor.nap is not None:
            self._pauses(actor)
        following = self._draw()
        if self._jump and self._random() < self._jump:
            self._leaper = following
            fate = self.hub.switch()
            return fate
        begun = following.asked is not None
        if self._chance < self._harm:
            fate = self._enter(following)
        else:  # by far most steps, so without another call: as `_enter`
            self.current, following.asked, fate = following, None, Fate.GO
        if following is not actor:
            fate = following.greenlet.switch(fate) if begun else following.greenlet.switch()
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
        """Let them take turns until all are done; False if they are not after `limit` steps.

        The 60 random bits of a step say whether the last one stays (10), who goes else (20), how long it takes (3), and what
        becomes of it (20).
        """
        plan = self.plan
        self._last, self._limit, self._stay = None, limit, int(plan.stay * 1024)
        self._jump, self._harm = (0.0, 0) if self.calm else (plan.jump, plan.fates[-1][0] if plan.fates else 0)
        self._sleepy = 0.0 if self.calm else plan.doze
        while self.actors and self.steps < limit:
            actor, self._leaper = self._leaper, None
            leaps = actor is not None
            if actor is None:
                actor = self._draw()
                leaps = self._jump > 0 and self._random() < self._jump
            if leaps:
                self.jump(self.rng.choice(LEAPS))
                if actor not in self.actors:
                    continue
            self._turns(actor)
        self.arrive(everything=True)
        return not self.actors

    def _draw(self) -> Actor:
        """A step begins: whose it is."""
        self.steps += 1
        if self._late:
            self.arrive()
        draw = self._bits(60)
        actor = self._last
        if actor is None or (draw & 1023) >= self._stay or actor.wakes > self.steps or actor not in self.actors:
            steps = self.steps
            ready = [a for a in self.actors if a.wakes <= steps]
            last = ready[(draw >> 10 & 0xFFFFF) * len(ready) >> 20] if ready else min(self.actors, key=_wakes)
            actor = self._last = last
        self.clock.now += PASSING[draw >> 30 & 7]
        self._chance = draw >> 40
        return actor

    def _enter(self, actor: Actor) -> Fate:
        """It is his turn: what becomes of what he asked for."""
        self.current = actor
        kind, actor.asked = actor.asked, None
        if self._chance >= self._harm or kind is None:
            return Fate.GO
        fate = next(fate for top, fate in self.plan.fates if self._chance < top)
        if kind != "write" and fate not in (OF_READS if kind in READS else OF_OTHERS):
            return Fate.GO
        if fate in DEADLY:
            if self.crashes >= self.plan.crashes:
                return Fate.GO
            self.crashes += 1
            actor.process.alive = False
        return fate

    def _turns(self, actor: Actor) -> None:
        """From this actor's step on, until somebody comes back to the hub: it is he who did the last step."""
        begun = actor.asked is not None
        fate = self._enter(actor)
        try:
            actor.greenlet.switch(fate) if begun else actor.greenlet.switch()
        except Crashed:
            assert self.current is not None
            self.current.asked = None
        finally:
            last, self.current = self.current, None
        assert last is not None
        process = last.process
        if self.trace is not None:
            note = "" if fate is Fate.GO else f" [{fate.name}]"
            asked = "done" if last.asked is None else f"{last.asked} {last.what}"
            self.trace.append(f"{self.steps:5} {self.clock.now - START_MS:7} {last.name:14}{note} -> {asked}")
        if not process.alive:
            self.kill(process)
        elif last.asked is None:
            self.actors.remove(last)
        elif self._leaper is None:
            self._pauses(last)

    def _pauses(self, actor: Actor) -> None:
        """Sometimes a thread pauses for a while; sometimes its whole process, long enough to be a zombie when it wakes."""
        if self.calm:
            return
        if actor.nap is not None:
            after, steps = actor.nap
            if after:
                actor.nap = (after - 1, steps)
            else:
                actor.nap, actor.wakes = None, self.steps + steps
        if not self._sleepy:
            return
        chance = self._random()
        if chance < self.plan.zombie:
            wakes = self.steps + self.rng.choice((60, 250, 1_000))
            for each in self.actors:
                if each.process is actor.process:
                    each.wakes = wakes
        elif chance < self._sleepy:
            actor.wakes = self.steps + self.rng.choice((5, 30, 150))

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
                    continue
                finally:
                    self.current = None
        self.state.end_session(process.store.session)
        for actor in doomed:
            if actor.on_crash is not None:
                actor.on_crash()

    def arrive(self, *, everything: bool = False) -> None:
        steps = self.steps
        due = [effect for at, effect in self._late if everything or at <= steps]
        if due:
            self._late = [] if everything else [(at, effect) for at, effect in self._late if at > steps]
            for effect in due:
                effect()

    def close(self) -> None:
        """Nobody uses it any more: let go of everything, so that all of it goes at once, and not when cycles are looked for."""
        vars(self).clear()

    def jump(self, ms: int) -> None:
        """A leap of the clock. Nobody sleeps through one as long as the orphan age in the middle of naming files: the page allows
        the sweep that much (a driver that has opened may, its header's deadline protects us).
        """
        if ms >= self.settings.orphan_age_ms:
            for process in {id(a.process): a.process for a in self.actors if not a.opened}.values():
                self.kill(process)
        if ms < 0:
            self.clock.back(-ms)
        else:
            self.clock.now += ms
