"""Hunting mutants: each goes through what may catch it in the order of cost, all of them over several cores."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass

from conformance.mutants.planting import Mutant
from conformance.mutants.suites import Catch, by_tests, scripts_and_store, some_schedules
from conformance.results import Outcome, Result

LIMIT = 20_000
"""Schedules of the simulator after which a mutant has slipped through."""

CHUNK = 25
"""Schedules that a core runs before it asks whether another one has caught the mutant."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """What became of one mutant. `schedules`: how many the simulator needed, or ran in vain; None: it was not asked."""

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
    """Each mutant through scripts and store suite; what they let through, through up to `limit` schedules of the simulator from
    `seed` on, then through the tests that it names. `beside`: as many schedules for those that were caught before, to see
    whether the simulator would have caught them, too. `told` hears of each as soon as it is known.
    """
    with _pool(cores) as pool:
        cheap = [pool.submit(scripts_and_store, fault.name) for fault in faults]
        waiting = list(zip(faults, cheap, strict=True))
        found = []
        for fault, early in waiting:
            each = _one(pool, fault, early, cores=cores, limit=limit, beside=beside, seed=seed)
            told(each)
            found.append(each)
    return found


def _pool(cores: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn"))


def _one(
    pool: ProcessPoolExecutor,
    fault: Mutant,
    early: Future[tuple[Catch | None, float]],
    *,
    cores: int,
    limit: int,
    beside: int,
    seed: int,
) -> Hunt:
    catch, seconds = early.result()
    catches = [] if catch is None else [catch]
    began = time.perf_counter()
    schedules: int | None = None
    count = limit if catch is None and not fault.tests else beside
    if catch is None and fault.tests:
        catches = [found for found in [by_tests(fault)] if found is not None]
        count = beside if catches else limit
    if count:
        late = _simulated(pool, fault.name, cores, count, seed)
        schedules = count if late is None else late.tried
        catches += [] if late is None else [late]
    return Hunt(fault, tuple(catches), schedules, seconds + time.perf_counter() - began)


def _simulated(pool: ProcessPoolExecutor, name: str, cores: int, limit: int, seed: int) -> Catch | None:
    """The first seed that shows the mutant, whichever core found it."""
    starts: Iterator[int] = iter(range(seed, seed + limit, CHUNK))
    running: list[tuple[int, Future[Catch | None]]] = []
    while True:
        while len(running) < 2 * cores and (start := next(starts, None)) is not None:
            running.append((start, pool.submit(some_schedules, name, min(CHUNK, seed + limit - start), start)))
        if not running:
            return None
        start, future = running.pop(0)
        found = future.result()
        if found is not None:
            for _, later in running:
                later.cancel()
            return Catch(found.suite, found.by, start - seed + found.tried, found.said)


def hunt_tests(faults: Sequence[Mutant], cores: int) -> list[Catch | None]:
    """Only the named tests, each mutant in a process of its own."""
    with ThreadPoolExecutor(cores) as threads:
        return list(threads.map(by_tests, faults))
