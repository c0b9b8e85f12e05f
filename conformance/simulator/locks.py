"""Locks between the threads of a simulated process: greenlets of one thread, which a lock of the system's does not keep apart."""

from __future__ import annotations

from collections.abc import Callable

import greenlet

from conformance.simulator.faults import Crashed, Fate


class SimulatedLock:
    """A reentrant lock. Who waits for it takes turns with the others (`gate`): each look at it is a step."""

    def __init__(self, gate: Callable[[str, str], Fate]) -> None:
        self._gate = gate
        self._owner: greenlet.greenlet | None = None
        self._depth = 0

    def __enter__(self) -> None:
        own = greenlet.getcurrent()
        while self._owner is not None and self._owner is not own:
            if self._gate("lock", "") in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
                raise Crashed
        self._owner = own
        self._depth += 1

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
