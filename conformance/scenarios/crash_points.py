"""The base of every scenario with crash points.

In each case, a fault strikes a process before or after its k-th store call. Then a new process continues its work, and all rows are
checked. Each scenario defines the work of its processes and of the new processes.
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
"""The errors that a zombie or a twin may get. After such an error, either the attempt can never commit, or its version
can safely be written again.
"""


@dataclass(frozen=True)
class Case:
    """The result of one crash point. `what`: the crash point, in words. `hit`: whether the process reached it. `wrong`: what is
    wrong, in words; empty if all is well.
    """

    what: str
    hit: bool
    wrong: list[str]


@dataclass
class Outcome:
    """The report of one process. `error`: the name of the class of the error that it raised; None if it succeeded. `calls`: its
    store calls, in order. `done`: how many pieces of work it completed.
    """

    error: str | None = None
    message: str = ""
    calls: list[str] = field(default_factory=list)
    done: int = 0


def refused(who: str, told: Outcome, allowed: Collection[str] = ()) -> list[str]:
    """Return an error text, unless the process `who` succeeded or raised one of the `allowed` errors."""
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
    """Wait for the fault of the process `victim`. Then call `go_on`, in which a new process continues the work. Return whether the
    fault happened, and what is wrong, in words.

    `crash` None: the victim kills itself by other means. `allowed`: the errors that a stopped victim and a twin may raise.
    `failures`: the errors that a victim may raise after one of its store calls failed (None: any). A stopped victim is resumed
    after `go_on` has returned.
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
"""The longest time that one process may take."""


class CrashPoints(Scenario):
    """A scenario that is a series of cases. `reach`: the least share of cases whose fault must happen. It is below 1 if the number
    of store calls varies between processes.
    """

    reach = 0.0

    def __init__(self) -> None:
        self.all: list[Case] = []

    @abstractmethod
    def cases(self) -> Iterator[Case]:
        """Run the cases one after the other."""

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
