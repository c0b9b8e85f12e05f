"""The suites that can catch a mutant. Each suite is a function that returns a Catch, or None if it did not catch the mutant.

The check that caught a mutant runs again without the mutant. If it fails then, too, the catch shows nothing, and the suite raises
`AlreadyBroken`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

from conformance.mutants.planting import CHOSEN, Mutant, planted
from conformance.results import Outcome
from conformance.scripts.running import FOLDER, check, scripts
from conformance.simulator.quiet import quiet
from conformance.simulator.schedules import schedule
from conformance.simulator.search.exhaustive import Search
from conformance.simulator.search.footprints import OutsideFootprint
from conformance.simulator.search.scenarios import SCENARIOS, Scenario
from conformance.store.area import Sizes
from conformance.store.run import run
from conformance.store.suite import CASES
from metadata.common.errors import TxnSegmentError

T = TypeVar("T")

PATIENCE = 60.0
"""The time limit for one script, case, schedule or scenario of the search, so that a mutant that loops for ever is caught. The
limit is many times the usual duration. It is processor time of this process, in seconds, so that no check times out because the
machine is busy.
"""


@dataclass(frozen=True, slots=True)
class Catch:
    """A suite has caught a mutant. `by`: the script, case, seed, scenario or test that caught it. `tried`: how many of these ran
    until then, including this one. `said`: the violation.
    """

    suite: str
    by: str
    tried: int
    said: str


class Hung(BaseException):
    """A check took too long. The class is not an Exception, so that no `except Exception` catches it."""


@contextmanager
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Raise Hung in the main thread if the block uses more than `seconds` of processor time."""

    def wake(number: int, frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGPROF, wake)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _said(look: Callable[[], str | None]) -> str | None:
    """Run a check. If it fails, return the violation, the error or the timeout as text. Return None if it succeeds."""
    try:
        with patience():
            return look()
    except Hung:
        return f"no end within {PATIENCE:.0f} s of work"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def by_hint(fault: Mutant, hint: str) -> Catch | None:
    """Run one of the checks that caught the mutant before (`Mutant.by`). Raises AlreadyBroken if the check also fails without the
    mutant.
    """
    suite, _, name = hint.partition(" ")
    match suite:
        case "script":
            return by_scripts(fault, name)
        case "store":
            return by_store(fault, name)
        case "seed":
            return by_simulator(fault, 1, int(name))
        case "search":
            return by_search(fault, name)
        case _:
            return by_test(fault, hint)


def by_scripts(fault: Mutant, only: str = "*") -> Catch | None:
    """Run the golden scripts whose names match `only`, until one catches the mutant. Raises AlreadyBroken if this script also fails
    without the mutant.
    """
    caught = _by_scripts(fault, only)
    if caught is not None:
        _check_sound(_by_scripts(SOUND, caught.by))
    return caught


def _by_scripts(fault: Mutant, only: str) -> Catch | None:
    def look(path: Path) -> str | None:
        failure = check(path)
        return None if failure is None else failure.difference

    with planted(fault):
        for tried, path in enumerate([path for path in scripts() if fnmatch(path.stem, only)], 1):
            said = _said(partial(look, path))
            if said is not None:
                return Catch("scripts", path.stem, tried, said)
    return None


def by_store(fault: Mutant, only: str = "*") -> Catch | None:
    """Run the cases of the store suite whose names match `only`, on the store `fault.store`, until one catches the mutant. Raises
    AlreadyBroken if this case also fails without the mutant.
    """
    caught = _by_store(fault, only)
    if caught is not None:
        _check_sound(_by_store(replace(SOUND, store=fault.store), caught.by))
    return caught


def _by_store(fault: Mutant, only: str, seed: int = 1) -> Catch | None:
    sizes = Sizes(records=1_000, operations=100, patience=3.0)

    def look(url: str, case: str) -> str | None:
        (found,) = run(url, seed, only=case, sizes=sizes)
        return found.detail if found.outcome is Outcome.FAILED else None

    with planted(fault), tempfile.TemporaryDirectory() as folder:
        url = f"memory://{uuid.uuid4().hex}" if fault.store == "memory" else f"file://{folder}/store"
        for tried, case in enumerate([case.name for case in CASES if fnmatch(case.name, only)], 1):
            said = _said(partial(look, url, case))
            if said is not None:
                return Catch("store", case, tried, said)
    return None


def by_simulator(fault: Mutant, count: int, seed: int = 0) -> Catch | None:
    """Run the schedules of `count` seeds from `seed` on, until one catches the mutant. Raises AlreadyBroken if this schedule also
    fails without the mutant.
    """
    caught = _by_schedules(fault, count, seed)
    if caught is not None:
        _check_sound(_by_schedules(replace(SOUND, kind=fault.kind), 1, seed + caught.tried - 1))
    return caught


def _by_schedules(fault: Mutant, count: int, seed: int) -> Catch | None:
    # `quiet` begins after the mutant is planted, so that its caches have results of the changed code.
    with planted(fault), quiet():
        for each in range(seed, seed + count):
            said = by_schedule(each, fault.kind)
            if said is not None:
                return Catch("simulator", f"--seed {each}{fault.kind and f' --kind {fault.kind}'}", each - seed + 1, said)
    return None


def by_schedule(seed: int, kind: str = "") -> str | None:
    """Run one schedule of the current code. Return its first violation; None if there is none."""
    return _said(lambda: next(iter(schedule(seed, only=kind).violations), None))


def by_search(fault: Mutant, only: str = "*") -> Catch | None:
    """Run the exhaustive search over the scenarios whose names match `only`, up to 3 preemptions and without crashes, until one
    catches the mutant. A scenario takes a few seconds. Raises AlreadyBroken if this scenario also fails without the mutant.
    """
    caught = _by_scenarios(fault, {name: scenario for name, scenario in SCENARIOS.items() if fnmatch(name, only)})
    if caught is not None:
        _check_sound(_by_scenarios(SOUND, {caught.by: SCENARIOS[caught.by]}))
    return caught


def _by_scenarios(fault: Mutant, scenarios: Mapping[str, Scenario]) -> Catch | None:
    def look(scenario: Scenario) -> str | None:
        try:
            return next(iter(Search(scenario, preemptions=3, crashes=0).run(stop_after=1).violations), None)
        except OutsideFootprint:
            # The mutant touched records that are not declared for its actor (`search.footprints`). The search then shows nothing.
            return None

    with planted(fault), quiet():
        for tried, (name, scenario) in enumerate(scenarios.items(), 1):
            said = _said(partial(look, scenario))
            if said is not None:
                return Catch("search", name, tried, said)
    return None


def by_test(fault: Mutant, test: str) -> Catch | None:
    """Run a test with the mutant planted. Raises AlreadyBroken if the test fails with the mutant and also without it."""
    code, output = apart(_pytest, ("-p", "conformance.mutants.plugin", "-x", "--no-header", test), fault.name)
    if code == 0:
        return None
    lines = [line for line in output.splitlines() if line.startswith("FAILED ")]
    _check_test(test)
    return Catch("tests", test, 1, lines[0] if lines else output[-300:])


@lru_cache(None)
def _check_test(test: str) -> None:
    code, output = apart(_pytest, ("-x", "--no-header", test))
    if code != 0:
        raise _broken("test", test, output[-1000:])


def _pytest(arguments: Sequence[str], name: str = "") -> tuple[int, str]:
    """Run pytest in this process. Return its exit code and its output. `name`: the mutant that the plugin plants; empty for none.
    The process must do nothing else, because this function changes its working folder and its output.
    """
    if name:
        os.environ[CHOSEN] = name
    os.chdir(FOLDER.parents[1])
    gc.freeze()  # pytest runs the garbage collector; it then skips all objects that exist now
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory() as folder:
        sys.stdout.flush()
        for number in (1, 2):
            os.dup2(output.fileno(), number)
        # Each run has a folder of its own, because in a common folder two runs at once would remove each other's dead links.
        code = pytest.main(["-q", "--basetemp", f"{folder}/tests", *arguments])
        sys.stdout.flush()
        output.seek(0)
        return int(code), output.read().decode(errors="replace")


WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(
    [
        "conformance.mutants.suites",
        "hypothesis",
        "pandas",
        "prometheus_client",
        "pyspark.sql",
        "txnsegment",
        "xdist.plugin",
    ]
)


def apart(function: Callable[..., T], *arguments: Any) -> T:
    """Call the function in a new process and return its result. The process is forked from one that has already imported the
    modules of WARM.
    """
    with ProcessPoolExecutor(1, mp_context=WARM) as pool:
        return pool.submit(function, *arguments).result()


# --- without a mutant ---------------------------------------------------------------------------------------------

SOUND = Mutant("sound", (), "The code as it is.", store="memory")


class AlreadyBroken(TxnSegmentError):
    """The check that caught a mutant also fails without it, so the catch shows nothing."""


def _check_sound(caught: Catch | None) -> None:
    """Raise AlreadyBroken if `caught`, the catch of a suite that ran without a mutant, is not None."""
    if caught is not None:
        raise _broken(caught.suite, caught.by, caught.said)


def check_tests(faults: Sequence[Mutant]) -> None:
    """Raise AlreadyBroken if a mutant names a test that does not exist. Without this check, a hunt could fail only after hours."""
    named = sorted({test for fault in faults for test in fault.tests})
    if not named:
        return
    code, output = apart(_pytest, ("--collect-only", *named))
    there = {line.partition("::")[0] for line in output.splitlines()}
    said = ", ".join(test for test in named if test.partition("::")[0] not in there)
    if code not in (0, 5):  # 5: pytest found no tests at all. If it finds tests in some files only, it reports no error.
        said = output[-1000:].strip()
    if said:
        raise AlreadyBroken(
            f"Mutants name what is no test: {said}.",
            advice="Write pytest ids in conformance/mutants/of_*.py. Golden scripts need no name: all of them are run.",
        )


def _broken(suite: str, by: str, said: str) -> AlreadyBroken:
    return AlreadyBroken(f"{suite}, {by}: it fails without any mutant: {said}", advice="Mend that first; then plant faults.")
