"""Runs the suites against mutants, on several cores. For each mutant, the checks that it names in `by` run first. Then the suites
run, the fastest first.
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
"""Maximum number of simulator schedules that are run for one mutant."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result for one mutant.

    `catches`: the suites that caught it. `schedules`: the maximum number of simulator schedules for this mutant; None if the
    simulator did not run. `seconds`: the duration of the hunt on one core. `by_hint`: whether one of the checks in `fault.by`
    caught it.
    """

    fault: Mutant
    catches: tuple[Catch, ...]
    schedules: int | None
    seconds: float
    by_hint: bool = False

    @property
    def caught(self) -> bool:
        return bool(self.catches)

    @property
    def wrong(self) -> str:
        """A text that says what must be mended. It is empty if one of the checks in `fault.by` caught the mutant, or if the mutant
        has no such checks and any suite caught it.
        """
        if not self.caught:
            return "No suite noticed this fault: a check is missing."
        if self.fault.by and not self.by_hint:
            return f"None of {', '.join(self.fault.by)} caught it (`by`); {caught(self)} did."
        return ""

    def result(self, seed: int) -> Result:
        figures = {catch.suite: float(catch.tried) for catch in self.catches}
        return Result(
            suite="mutants",
            name=self.fault.name,
            section=", ".join(self.fault.rules),
            says=self.fault.why,
            outcome=Outcome.FAILED if self.wrong else Outcome.OK,
            seconds=self.seconds,
            seed=seed,
            detail=self.wrong,
            figures=figures,
        )


def hunt(
    faults: Sequence[Mutant], *, cores: int, limit: int = LIMIT, beside: int = 0, seed: int = 0, told: Callable[[Hunt], None]
) -> list[Hunt]:
    """Run checks against each mutant until one catches it. The order is: the checks in its `by`, all golden scripts, the store
    suite (only for mutants of a store), up to `limit` schedules of the simulator from `seed` on, and the exhaustive search.

    `beside`: if above 0, then for a mutant that an earlier check caught, also run this number of schedules and, if they catch
    nothing, the search. The result shows whether one of them catches this mutant, too. `told`: called with the result of each
    mutant, in the order of `faults`.

    Before the first mutant is planted, raises StaleMutant if a mutant cannot be planted, and AlreadyBroken if a test in `by` does
    not exist. Later, raises AlreadyBroken if the check that caught a mutant also fails without the mutant.
    """
    for fault in faults:
        check_applies(fault)
    check_tests(faults)
    found = []
    with ThreadPoolExecutor(cores) as threads:  # each thread waits for the process of one mutant
        try:
            for each in threads.map(partial(_hunted, limit=limit, beside=beside, seed=seed), faults):
                told(each)
                found.append(each)
        except BaseException:  # the results of the remaining mutants are no longer needed
            threads.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise
    return found


def _hunted(fault: Mutant, *, limit: int, beside: int, seed: int) -> Hunt:
    began = time.perf_counter()
    hinted = _first(*(partial(by_test if hint in fault.tests else _by_hint, fault, hint) for hint in fault.by))
    early = hinted or _first(partial(apart, by_scripts, fault), *([partial(apart, by_store, fault)] if fault.store else []))
    count = limit if early is None else beside
    late = None
    if count:
        late = _first(partial(apart, by_simulator, fault, count, seed), partial(apart, by_search, fault))
    catches = tuple(catch for catch in (early, late) if catch is not None)
    return Hunt(fault, catches, count or None, time.perf_counter() - began, hinted is not None)


def _by_hint(fault: Mutant, hint: str) -> Catch | None:
    return apart(by_hint, fault, hint)


def _first(*looks: Callable[[], Catch | None]) -> Catch | None:
    return next((catch for look in looks if (catch := look()) is not None), None)


def caught(found: Hunt) -> str:
    """Return a text with the checks that caught the mutant, and how many scripts, cases or schedules were tried until then. If the
    simulator ran and did not catch the mutant, the text also has the number of schedules.
    """
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
