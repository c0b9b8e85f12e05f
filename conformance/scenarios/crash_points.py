"""A fault at one store call of a process, and what its successor makes of it: the engine of every scenario with crash points.

A case is a process that meets its fault before or after call k; then a new one goes on, and everything is checked. Each scenario
says what its processes do and how their successors go on.
"""

from __future__ import annotations

import signal
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from conformance.scenarios.crashing import Crash
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Child
from conformance.scenarios.scenario import Scenario

CONFLICTS = frozenset({"Fenced", "TxnConflict", "VersionConflict", "OutcomeUnknown"})
"""What a zombie or a twin may be told. Each says that nothing of this attempt counts, or that running it again is safe."""


@dataclass(frozen=True)
class Case:
    """What happened at one crash point. `hit`: the process really got there. `wrong`: in words; empty if all is well."""

    what: str
    hit: bool
    wrong: list[str]


@dataclass
class Outcome:
    """What one process reports. `error`: class of what it raised. `calls`: of the store, in order. `done`: how often it did its
    work.
    """

    error: str | None = None
    message: str = ""
    calls: list[str] = field(default_factory=list)
    done: int = 0


def refused(who: str, told: Outcome, allowed: Collection[str] = ()) -> list[str]:
    """Who lost may say so in these words only."""
    return [] if told.error is None or told.error in allowed else [f"{who} was told {told.error}: {told.message}"]


def meet(
    victim: Child,
    crash: Crash | None,
    go_on: Callable[[], list[str]],
    *,
    twin: Child | None = None,
    allowed: Collection[str] = CONFLICTS,
    failures: Collection[str] | None = None,
) -> tuple[bool, list[str]]:
    """Wait for the victim's fault, then let its successor `go_on`: whether it was met, and what is wrong, in words.

    `crash` None: it kills itself by other means. `allowed`: errors that a zombie and a twin may be told; `failures`: those that the
    victim may be told whose call failed (None: any). A stopped one is woken once its successor has gone on.
    """
    wrong: list[str] = []
    fault = Fault.KILL if crash is None else crash.fault
    if fault is Fault.KILL:
        hit = victim.killed()
    elif fault is Fault.STOP:
        hit = victim.stopped()
    else:
        told: Outcome = victim.result(LONGEST_SECONDS)
        hit = crash is not None and len(told.calls) >= crash.call
        wrong += [] if failures is None else refused("the one that failed", told, failures)
    try:
        if twin is not None:
            wrong += refused("the twin", twin.result(LONGEST_SECONDS), allowed)
        wrong += go_on()
    finally:
        if fault is Fault.STOP and hit:
            victim.send(signal.SIGCONT)
    if fault is Fault.STOP:
        wrong += refused("the one that slept", victim.result(LONGEST_SECONDS), allowed)
    return hit, wrong


LONGEST_SECONDS = 240.0
"""Of one process."""


class CrashPoints(Scenario):
    """A scenario that is a series of cases. `reach`: the share of them that must be met (one process may make more calls than
    another).
    """

    reach = 0.0

    def __init__(self) -> None:
        self.all: list[Case] = []

    @abstractmethod
    def cases(self) -> Iterator[Case]:
        """One after the other."""

    def faults(self) -> None:
        self.all += self.cases()

    def check(self) -> list[str]:
        wrong = [f"{case.what}: {what}" for case in self.all for what in case.wrong]
        met = sum(case.hit for case in self.all)
        if met < self.reach * len(self.all):
            wrong.append(f"of {len(self.all)} crash points only {met} were reached")
        return wrong

    def figures(self) -> str:
        return f"{len(self.all)} crash points, {sum(case.hit for case in self.all)} reached"
