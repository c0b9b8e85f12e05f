"""Hunting mutants: each goes through what may catch it in the order of cost, all of them over several cores."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass

from conformance.mutants.planting import Mutant, check_applies
from conformance.mutants.suites import Catch, by_tests, check_sound, check_tests, scripts_and_store, searched, some_schedules
from conformance.results import Outcome, Result

LIMIT = 20_000
"""Schedules of the simulator after which a mutant has slipped through."""

CHUNK = 100
"""Schedules that a core runs before it asks whether another one has caught the mutant."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """What became of one mutant. `schedules`: how many the simulator needed, or ran in vain; None: it was not asked.
    `seconds` of work, over all cores."""

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
    """Each mutant through scripts and store suite; what they let through, through the tests that it names or else through up to
    `limit` schedules of the simulator from `seed` on, and if it sees nothing through the exhaustive search. `beside`: as many
    schedules for those that were caught before, to see whether the simulator (or the search) would have caught them, too.
    `told` hears of each as soon as it is known.
    Before any is planted: raises StaleMutant if one cannot be, AlreadyBroken if a suite fails without
    or a test that is named is not there.
    """
    for fault in faults:
        check_applies(fault)
    check_tests(faults)
    found = []
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(check_sound, {fault.kind for fault in faults}).result()
        cheap: deque[Future[tuple[Catch | None, float]]] = deque()
        ahead = iter(faults)
        for fault in faults:
            while len(cheap) < cores and (later := next(ahead, None)) is not None:
                cheap.append(pool.submit(scripts_and_store, later.name))
            early, seconds = cheap.popleft().result()
            each = _go_on(pool, fault, early, seconds, cores=cores, limit=limit, beside=beside, seed=seed)
            told(each)
            found.append(each)
    return found


def _go_on(
    pool: ProcessPoolExecutor,
    fault: Mutant,
    early: Catch | None,
    seconds: float,
    *,
    cores: int,
    limit: int,
    beside: int,
    seed: int,
) -> Hunt:
    """What costs more than scripts and store suite."""
    catches = [] if early is None else [early]
    if early is None and fault.tests:
        began = time.perf_counter()
        tested = by_tests(fault)
        seconds += time.perf_counter() - began
        catches += [] if tested is None else [tested]
    count = beside if catches else limit
    if not count:
        return Hunt(fault, tuple(catches), None, seconds)
    late, spent = _simulated(pool, fault.name, cores, count, seed)
    catches += [] if late is None else [late]
    seconds += spent
    if late is None:
        last, spent = pool.submit(searched, fault.name).result()
        catches += [] if last is None else [last]
        seconds += spent
    return Hunt(fault, tuple(catches), count if late is None else late.tried, seconds)


def _simulated(pool: ProcessPoolExecutor, name: str, cores: int, limit: int, seed: int) -> tuple[Catch | None, float]:
    """The lowest seed that shows the mutant, and the seconds of work up to it, of all cores."""
    starts = iter(range(seed, seed + limit, CHUNK))
    running: deque[tuple[int, Future[tuple[Catch | None, float]]]] = deque()
    seconds = 0.0
    while True:
        while len(running) < cores and (start := next(starts, None)) is not None:
            running.append((start, pool.submit(some_schedules, name, min(CHUNK, seed + limit - start), start)))
        if not running:
            return None, seconds
        start, future = running.popleft()
        found, spent = future.result()
        seconds += spent
        if found is not None:
            for _, later in running:
                later.cancel()
            return Catch(found.suite, found.by, start - seed + found.tried, found.said), seconds


def caught(found: Hunt) -> str:
    """By what, and after how many scripts, cases or schedules; or that nobody noticed it."""
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
