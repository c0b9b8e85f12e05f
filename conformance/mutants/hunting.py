"""Hunt mutants, on several cores. Each goes first through the checks that it names, then through the suites in the order of their
cost.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from conformance.mutants.planting import Mutant, check_applies
from conformance.mutants.suites import (
    Catch,
    apart,
    by_hint,
    by_scripts,
    by_search,
    by_simulator,
    by_store,
    by_test,
    check_tests,
)
from conformance.results import Outcome, Result

LIMIT = 20_000
"""Schedules of the simulator after which a mutant has slipped through."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result for one mutant. `schedules`: the number of simulator schedules that were to run; None: the simulator was not used.
    `seconds`: of one core.
    """

    fault: Mutant
    catches: tuple[Catch, ...]
    schedules: int | None
    seconds: float

    @property
    def caught(self) -> bool:
        return bool(self.catches)

    def result(self, seed: int) -> Result:
        figures = {catch.suite: float(catch.tried) for catch in self.catches}
        return Result(
            suite="mutants",
            name=self.fault.name,
            section=", ".join(self.fault.rules),
            says=self.fault.why,
            outcome=Outcome.OK if self.caught else Outcome.FAILED,
            seconds=self.seconds,
            seed=seed,
            detail="" if self.caught else "No suite noticed this fault: a check is missing.",
            figures=figures,
        )


def hunt(
    faults: Sequence[Mutant], *, cores: int, limit: int = LIMIT, beside: int = 0, seed: int = 0, told: Callable[[Hunt], None]
) -> list[Hunt]:
    """Each mutant through what it names; what that lets through, through all scripts, the store suite, up to `limit` schedules of
    the simulator from `seed` on, and the exhaustive search, until one catches it. `beside`: as many schedules for those that were
    caught before, to see whether the simulator (or the search) would have caught them, too.
    `told` hears of each as soon as it and those before it are known.
    Raises StaleMutant if one cannot be planted or AlreadyBroken if a test that is named is not there, both before any is planted;
    and AlreadyBroken once a suite catches a mutant by what fails without it, too.
    """
    for fault in faults:
        check_applies(fault)
    check_tests(faults)
    found = []
    with ThreadPoolExecutor(cores) as threads:  # each waits for the process of one mutant
        try:
            for each in threads.map(partial(_hunted, limit=limit, beside=beside, seed=seed), faults):
                told(each)
                found.append(each)
        except BaseException:  # nobody waits for the others any more
            threads.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return found


def _hunted(fault: Mutant, *, limit: int, beside: int, seed: int) -> Hunt:
    began = time.perf_counter()
    early = _first(
        *(partial(by_test if hint in fault.tests else _by_hint, fault, hint) for hint in fault.by),
        partial(apart, by_scripts, fault),
        *([partial(apart, by_store, fault)] if fault.store else []),
    )
    count = limit if early is None else beside
    late = None
    if count:
        late = _first(partial(apart, by_simulator, fault, count, seed), partial(apart, by_search, fault))
    catches = tuple(catch for catch in (early, late) if catch is not None)
    return Hunt(fault, catches, count or None, time.perf_counter() - began)


def _by_hint(fault: Mutant, hint: str) -> Catch | None:
    return apart(by_hint, fault, hint)


def _first(*looks: Callable[[], Catch | None]) -> Catch | None:
    return next((catch for look in looks if (catch := look()) is not None), None)


def caught(found: Hunt) -> str:
    """Describe which check caught the mutant, and after how many scripts, cases or schedules; or that none did."""
    ways = []
    for catch in found.catches:
        match catch.suite:
            case "scripts":
                ways.append(f"script {catch.by} (no. {catch.tried})")
            case "store":
                ways.append(f"store suite: {catch.by} (no. {catch.tried})")
            case "simulator":
                ways.append(f"simulator, {catch.by} (no. {catch.tried})")
            case "search":
                ways.append(f"exhaustive search, {catch.by}")
            case _:
                ways.append(catch.by)
    if found.schedules is not None and not any(catch.suite == "simulator" for catch in found.catches):
        ways.append(f"unseen in {found.schedules} schedules")
    return "; ".join(ways)
