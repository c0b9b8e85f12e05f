"""The clock of a simulated world. It gives the store's time, and each process's own time."""

from __future__ import annotations

from collections.abc import Callable

from conformance.simulator.store.faults import Fate

START_MS = 1_700_000_000_000


class SimulatedClock:
    """A clock that the scheduler moves. Sleeping is a step. The store's time may be set back (`back`), but a process's own time
    (`monotonic`) never goes back.
    """

    def __init__(self) -> None:
        self.now = START_MS
        self.falls: list[int] = []
        """The times to which the store's time was set back."""
        self.lost = 0
        """The sum of all steps back of the store's time, in ms."""
        self.highest = START_MS
        """The latest time that the store's time had when it was set back."""
        self.pause: Callable[[str, str], Fate] = lambda kind, what: Fate.GO

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return (self.now + self.lost) / 1000

    def back(self, ms: int) -> None:
        self.highest = max(self.highest, self.now)
        self.now -= ms
        self.lost += ms
        self.falls.append(self.now)

    def catch_up(self) -> None:
        """Move the store's time forward to the latest time that it has shown."""
        self.now = max(self.now, self.highest)

    def sleep(self, seconds: float) -> None:
        self.pause("sleep", "")
        self.now += int(seconds * 1000)
