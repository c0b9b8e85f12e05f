"""The world: a store, a disk, a clock, and actors. At each call of the store or the disk, the scheduler chooses the actor of the
next step and the fate of that step. All random numbers come from one seed.
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
"""The durations of a step in milliseconds, each as likely as the others."""
DEADLY = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.SPLIT_CRASH)
LEAPS = (400, 1_200, 5_000, 5_000, 110_000, -400, -5_000)
"""The leaps of the clock in milliseconds, each as likely as the others. The clock of a real store leaps back, for example, if
another server becomes the leader of a ZooKeeper ensemble and its clock is behind.
"""
READS = frozenset({"get", "keys", "index", "time"})
OF_READS = (Fate.CRASH_BEFORE, Fate.UNAVAILABLE, Fate.SESSION_LOST)
OF_OTHERS = (Fate.CRASH_BEFORE, Fate.CRASH_AFTER)
_wakes = attrgetter("wakes")


class Process:
    """A simulated process: a session, a cache of the log, and threads. The session and the threads end together."""

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
        self.client = client(self.cluster, self.background)
        self.client.coordinator.rewrite = Dividing(storage, world.unique)
        self.buffer, self.sweeper = self.client.buffer, self.client.sweeper
        if world.rested:
            self.sweeper.last_fold = world.clock.monotonic()

    def background(self, job: Callable[[], object]) -> None:
        """Run the background work of a commit and then a share of the sweeping, both in another thread of the process."""
        self.aside(job, self.sweeper.share)

    def aside(self, *jobs: Callable[[], object]) -> None:
        """Run the jobs in another thread. The next sweep does the work of a failed job. SweepIncomplete is a violation."""

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
        """The kind of the step that the actor waits for. None if the actor has not begun, runs, or has ended."""
        self.what = ""
        self.wakes = 0
        self.nap: tuple[int, int] | None = None
        """The nap that the actor will take: how many of its own steps come before the nap, and how many steps the nap lasts."""
        self.aborts: str | None = None
        self.opened = False
        """Whether the actor has sent its transaction's header to the store. The header's deadline then protects its files."""


@dataclass
class World:
    rng: random.Random
    plan: Plan
    settings: Settings = SETTINGS
    state: MemoryState = field(default_factory=MemoryState)
    trace: list[str] | None = None
    files_go: bool = True
    """Whether any actor of this world deletes files. If none does, reading a file is not a step, since files never change."""
    rested: bool = False
    """Whether each new process counts as one that has just folded the log, so that its first share of the sweeping comes later."""
    before: Sequence[Event] = ()
    """The events with which the history begins. They happened before the first step."""
    brief: bool = False
    """Whether only a share of the sweeps is complete. The others omit parts that rarely have work (docs/conformance.md)."""
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    actors: list[Actor] = field(default_factory=list)
    steps: int = 0
    crashes: int = 0
    calm: bool = False
    """Whether faults have ended. In this last phase of a schedule all work must succeed."""

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
        """The actor of the last step."""
        self._chance = 0
        """The random number that decides the fate of the step that was drawn last."""
        self._leaper: Actor | None = None
        """The actor whose step was drawn in `gate`. The clock leaps before this step."""

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
        """Let a request take effect some steps later. Even then the current actor counts as its sender."""
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
        """Return the delays, in steps, of one wake-up: one delay, two (the wake-up comes twice), or none (it is lost)."""
        chance = self._random()
        if chance < self.plan.deaf:
            return ()
        first = self.rng.randrange(60) if chance > 0.7 else 1
        return (first, first + self.rng.randrange(60)) if chance > 0.9 else (first,)

    def gate(self, kind: str, what: str) -> Fate:
        """Wait until the current actor's step is due, and return the step's fate.

        The hub is the greenlet that calls `run`. Each actor is a greenlet, too. This function draws the actor of the next step and
        switches to it directly, since a step through the hub would cost two switches. It switches to the hub only in rare cases: a
        late request is waiting, the clock is to leap, the limit of steps is reached, or a trace is written.
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
        else:  # most steps come here; this is the same as `_enter`, without a call
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

    # --- the next actor ------------------------------------------------------------------------------------------

    def run(self, limit: int) -> bool:
        """Run the actors until all are done. Return False if they are not done after `limit` steps.

        The random bits of a step decide whether the last actor continues (10 bits), which other actor is next (20), the step's
        duration (3) and its fate (20).
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
        """Begin a step, and return its actor."""
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
        """Make this actor the current one, and return the fate of its step."""
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
        """Run this actor's step and all following steps, until an actor switches back to this greenlet (the hub, see `gate`)."""
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
        """Let a thread or its whole process pause at random. The pause may be so long that its transactions time out (a zombie)."""
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
        """Kill a process, as SIGKILL does. The functions `on_crash` of its actors may restart it."""
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
        """Drop all references, so that the memory is freed at once and not by a later garbage collection."""
        vars(self).clear()

    def jump(self, ms: int) -> None:
        """Let the clock leap. A leap of the orphan age or more also kills each process that has an actor without an open
        transaction. Such an actor may be about to name files in a record, and protocol.md does not allow it to take so long. Actors
        that have opened a transaction may continue, since the deadline in the header protects their files.
        """
        if ms >= self.settings.orphan_age_ms:
            for process in {id(a.process): a.process for a in self.actors if not a.opened}.values():
                self.kill(process)
        if ms < 0:
            self.clock.back(-ms)
        else:
            self.clock.now += ms
