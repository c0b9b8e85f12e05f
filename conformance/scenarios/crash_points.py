"""The base of every scenario with crash points.

In each case, a fault strikes a process before or after one of its store calls. Then a new process continues the work, and all rows
are checked. Each scenario defines what the processes do.
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
"""The errors that a zombie or a twin may get. After such an error, either its attempt can never commit, or its version can safely
be written again.
"""


@dataclass(frozen=True)
class Case:
    """The result of one crash point. `what`: the crash point, in words. `hit`: whether the process reached the crash point.
    `wrong`: what is wrong, in words; empty if nothing is.
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
    """Return one error text if the process raised an error that is not `allowed`; otherwise return none. `who`: the process, in
    words. `told`: its report.
    """
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
    """Wait until the fault has struck the process `victim`. Then call `go_on`, in which a new process continues the work. Return
    whether the fault happened, and what is wrong, in words.

    `crash`: the fault; None: the victim kills itself elsewhere than at a store call. `twin`: another process that does the same
    work at the same time. `allowed`: the errors that a stopped victim and a twin may raise. `failures`: the errors that a victim
    may raise after one of its store calls failed (None: any). A stopped victim is resumed after `go_on` has returned.
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
    """A scenario that runs one case after the other. `reach`: in at least this share of the cases the fault must happen (0: no
    check). A subclass sets it below 1 if later processes may make fewer store calls than the process whose calls were counted.
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
