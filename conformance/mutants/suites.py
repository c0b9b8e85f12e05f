"""The suites that can catch a mutant. Each returns a Catch, or None if the mutant passed unnoticed.

The check that caught a mutant also runs without it. The catch counts only if the check succeeds then; otherwise the suite raises
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
"""Seconds of this process's work in which one script, case or schedule must end, many times what it takes: a mutant that turns in
circles is caught. Not of the clock on the wall: a busy machine is no catch."""


@dataclass(frozen=True, slots=True)
class Catch:
    """The suite `suite` caught a mutant. `by`: the script, case, seed or test; `tried`: how many of them ran, including
    this one.
    """

    suite: str
    by: str
    tried: int
    said: str


class Hung(BaseException):
    """A check took too long. It is not an Exception, so that no code swallows it."""


@contextmanager
def patience(seconds: float = PATIENCE) -> Iterator[None]:
    """Raises Hung in the main thread after `seconds` of work."""

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
    """Run a check. Return its violations as text, also an error or a timeout of the check; None if there are none."""
    try:
        with patience():
            return look()
    except Hung:
        return f"no end within {PATIENCE:.0f} s of work"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def by_hint(fault: Mutant, hint: str) -> Catch | None:
    """Run the checks that caught the mutant before (`Mutant.by`). Raises AlreadyBroken as the other suites do, also if a named
    check does not exist.
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
    """Run this project's golden scripts, by name. Raises AlreadyBroken for a script that fails without the mutant."""
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
    """Run the store suite on the store that has the mutant. Raises AlreadyBroken for a case that fails without the mutant."""
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
    """Run schedules of the seeds from `seed` on. Raises AlreadyBroken for a schedule that is bad without the mutant, too."""
    caught = _by_schedules(fault, count, seed)
    if caught is not None:
        _check_sound(_by_schedules(replace(SOUND, kind=fault.kind), 1, seed + caught.tried - 1))
    return caught


def _by_schedules(fault: Mutant, count: int, seed: int) -> Catch | None:
    with planted(fault), quiet():  # in this order: what it remembers is remembered of the changed code
        for each in range(seed, seed + count):
            said = by_schedule(each, fault.kind)
            if said is not None:
                return Catch("simulator", f"--seed {each}{fault.kind and f' --kind {fault.kind}'}", each - seed + 1, said)
    return None


def by_schedule(seed: int, kind: str = "") -> str | None:
    """Return the violations that one schedule finds in the code as it is now."""
    return _said(lambda: next(iter(schedule(seed, only=kind).violations), None))


def by_search(fault: Mutant, only: str = "*") -> Catch | None:
    """Every schedule of the exhaustive search's scenarios up to 3 preemptions, without crashes: a few seconds each. Raises
    AlreadyBroken if the one that catches it finds something without it, too.
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
            return None  # the search does not know what such code may meet, and so says nothing about it

    with planted(fault), quiet():
        for tried, (name, scenario) in enumerate(scenarios.items(), 1):
            said = _said(partial(look, scenario))
            if said is not None:
                return Catch("search", name, tried, said)
    return None


def by_tests(fault: Mutant) -> Catch | None:
    """Run the tests that the mutant names. Raises AlreadyBroken for a test that fails without the mutant."""
    return next(filter(None, (by_test(fault, test) for test in fault.tests)), None)


def by_test(fault: Mutant, test: str) -> Catch | None:
    """Run one of the named tests."""
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
    """Run pytest in this process, with a mutant or without. Return its exit code and output. The process does nothing else."""
    if name:
        os.environ[CHOSEN] = name
    os.chdir(FOLDER.parents[1])
    gc.freeze()  # pytest collects garbage; none of it is in what the process was forked with
    with tempfile.TemporaryFile() as output:
        sys.stdout.flush()
        for number in (1, 2):
            os.dup2(output.fileno(), number)
        code = pytest.main(["-q", *arguments])
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
    """Return the function's result from a process of its own, forked from one that has imported everything already."""
    with ProcessPoolExecutor(1, mp_context=WARM) as pool:
        return pool.submit(function, *arguments).result()


# --- without a mutant ---------------------------------------------------------------------------------------------

SOUND = Mutant("sound", (), "The code as it is.", store="memory")


class AlreadyBroken(TxnSegmentError):
    """The check that caught a mutant also fails without it, so the catch shows nothing."""


def _check_sound(caught: Catch | None) -> None:
    """`caught`: by a suite without a mutant."""
    if caught is not None:
        raise _broken(caught.suite, caught.by, caught.said)


def check_tests(faults: Sequence[Mutant]) -> None:
    """Raises AlreadyBroken if a mutant names a test that does not exist. Otherwise a hunt would find out only hours later."""
    named = sorted({test for fault in faults for test in fault.tests})
    if not named:
        return
    code, output = apart(_pytest, ("--collect-only", *named))
    there = {line.partition("::")[0] for line in output.splitlines()}
    said = ", ".join(test for test in named if test.partition("::")[0] not in there)
    if code not in (0, 5):  # 5: none of them is one. A file without any beside others is no error to pytest
        said = output[-1000:].strip()
    if said:
        raise AlreadyBroken(
            f"Mutants name what is no test: {said}.",
            advice="Write pytest ids in conformance/mutants/of_*.py. Golden scripts need no name: all of them are run.",
        )


def _broken(suite: str, by: str, said: str) -> AlreadyBroken:
    return AlreadyBroken(f"{suite}, {by}: it fails without any mutant: {said}", advice="Mend that first; then plant faults.")
