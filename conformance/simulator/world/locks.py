"""Locks between the threads of a simulated process. These threads are greenlets of one thread, so system locks do not work."""

from __future__ import annotations

from typing import Protocol

import greenlet

from conformance.simulator.store.faults import Crashed, Fate

NEVER = 1 << 60
"""A step number that is never reached. An actor that waits for a lock is due at this step, so it takes no step before the lock is
free.
"""


class Waiter(Protocol):
    """The actor that waits for a lock. `wakes`: the number of the step at which it may run again."""

    wakes: int


class Steps(Protocol):
    """The members of a `World` that a lock uses. `steps`: the number of steps so far. `current`: the actor of the current step.
    `gate`: lets other actors take steps until the next step of `current` is due.
    """

    steps: int

    @property
    def current(self) -> Waiter | None: ...

    def gate(self, kind: str, name: str, /) -> Fate: ...


class SimulatedLock:
    """A reentrant lock. An actor that waits for it takes a step. When the owner leaves the lock, all waiting actors wake up, and
    the scheduler decides which of them gets the lock.
    """

    def __init__(self, world: Steps) -> None:
        self._world = world
        self._owner: greenlet.greenlet | None = None
        self._depth = 0
        self._waiting: list[Waiter] = []

    def __enter__(self) -> None:
        own = greenlet.getcurrent()
        while self._owner is not None and self._owner is not own:
            self._wait()
        self._owner = own
        self._depth += 1

    def _wait(self) -> None:
        actor = self._world.current
        assert actor is not None, "no turns are taken, and somebody holds a lock"
        actor.wakes = NEVER
        self._waiting.append(actor)
        if self._world.gate("lock", "") in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
            raise Crashed

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            for actor in self._waiting:
                actor.wakes = self._world.steps
            self._waiting.clear()
