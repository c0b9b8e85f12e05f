"""What may catch a mutant. Each answers with a Catch, or None: the mutant went through it unseen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import FrameType

from conformance.mutants.catalogue import by_name
from conformance.mutants.planting import CHOSEN, Mutant, planted
from conformance.results import Outcome
from conformance.scripts.running import FOLDER, check, scripts
from conformance.simulator.exhaustive import Search
from conformance.simulator.footprints import OutsideFootprint
from conformance.simulator.quiet import quiet
from conformance.simulator.scenarios import SCENARIOS, Scenario
from conformance.simulator.schedules import schedule
from conformance.store.area import Sizes
from conformance.store.run import run
from conformance.store.suite import CASES
from metadata.common.errors import TxnSegmentError

PATIENCE = 60.0
"""Seconds of this process's work in which one script, case or schedule must end, many times what it takes: a mutant that turns in
circles is caught. Not of the clock on the wall: a busy machine is no catch."""


@dataclass(frozen=True, slots=True)
class Catch:
    """`suite` caught it: `by` what (a script, a case, a seed, a test) and after how many of them (`tried`, this one included)."""

    suite: str
    by: str
    tried: int
    said: str


class Hung(BaseException):
    """Nothing came of it in time. No Exception, so that nobody swallows it."""


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
    """What was found to be wrong, also by the code itself."""
    try:
        with patience():
            return look()
    except Hung:
        return f"no end within {PATIENCE:.0f} s of work"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def by_scripts(fault: Mutant, only: str = "*") -> Catch | None:
    """The golden scripts of this project, in the order of their names."""

    def look(path: Path) -> str | None:
        failure = check(path)
        return None if failure is None else failure.difference

    with planted(fault):
        for tried, path in enumerate([path for path in scripts() if fnmatch(path.stem, only)], 1):
            said = _said(partial(look, path))
            if said is not None:
                return Catch("scripts", path.stem, tried, said)
    return None


def by_store(fault: Mutant, only: str = "*", seed: int = 1) -> Catch | None:
    """The store suite on the store that the mutant sits in."""
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
    """Schedules of the seeds from `seed` on. Raises AlreadyBroken for one that is bad without the fault, too."""
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
    """What one schedule finds to be wrong with the code as it is at this moment."""
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
    """The tests that the mutant names, in a process of their own. Raises AlreadyBroken for tests that fail without it, too."""
    for tried, test in enumerate(fault.tests, 1):
        failed = _pytest(test, fault.name)
        if failed is not None:
            if _pytest(test) is not None:
                raise _broken("test", test, failed)
            return Catch("tests", test, tried, failed)
    return None


def _pytest(test: str, name: str | None = None) -> str | None:
    """How it failed, with a mutant or without; None: it did not. Raises AlreadyBroken for one that cannot be run at all."""
    plugin = [] if name is None else ["-p", "conformance.mutants.plugin"]
    given = os.environ | ({} if name is None else {CHOSEN: name})
    done = _run(given, *plugin, "-x", "--no-header", test)
    if done.returncode not in (0, 1):
        raise _broken("test", test, f"{done.stdout[-1000:]}{done.stderr[-1000:]}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    return None if done.returncode == 0 else lines[0] if lines else done.stdout[-300:]


def _run(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, env=environment, cwd=FOLDER.parents[1], capture_output=True, text=True, check=False)


# --- without a mutant ---------------------------------------------------------------------------------------------

SOUND = Mutant("sound", (), "The code as it is.", store="memory")


class AlreadyBroken(TxnSegmentError):
    """A suite fails without any mutant: what it would catch shows nothing."""


FIRST = 100
"""Schedules without a mutant. Of a kind by itself, each of which may cost seven times as much as a quick one, a quarter of them."""


def check_sound(kinds: Collection[str] = ("",)) -> None:
    """Raises AlreadyBroken if one of the first schedules of these kinds, a script or the store suite fails on the code as it is.
    Later schedules, the exhaustive search and tests are run without a mutant once they have caught one.
    """
    for kind in sorted(kinds):
        _check_sound(_by_schedules(replace(SOUND, kind=kind), FIRST // 4 if kind else FIRST, 0))
    _check_sound(by_scripts(SOUND))
    _check_sound(by_store(SOUND))


def _check_sound(caught: Catch | None) -> None:
    """`caught`: by a suite without a mutant."""
    if caught is not None:
        raise _broken(caught.suite, caught.by, caught.said)


def check_tests(faults: Sequence[Mutant]) -> None:
    """Raises AlreadyBroken if one of them names a test that is not there: a hunt would end with it, hours later."""
    named = sorted({test for fault in faults for test in fault.tests})
    if not named:
        return
    found = _run(os.environ, "--collect-only", *named)
    there = {line.partition("::")[0] for line in found.stdout.splitlines()}
    said = ", ".join(test for test in named if test.partition("::")[0] not in there)
    if found.returncode not in (0, 5):  # 5: none of them is one. A file without any beside others is no error to pytest
        said = f"{found.stdout[-1000:]}{found.stderr[-1000:]}".strip()
    if said:
        raise AlreadyBroken(
            f"Mutants name what is no test: {said}.",
            advice="Write pytest ids in conformance/mutants/of_*.py. Golden scripts need no name: all of them are run.",
        )


def _broken(suite: str, by: str, said: str) -> AlreadyBroken:
    return AlreadyBroken(f"{suite}, {by}: it fails without any mutant: {said}", advice="Mend that first; then plant faults.")


# --- by name, for other processes ---------------------------------------------------------------------------------


def scripts_and_store(name: str) -> tuple[Catch | None, float]:
    """What costs little, and the seconds it took."""
    fault, began = by_name(name), time.perf_counter()
    found = by_scripts(fault)
    if found is None and fault.store:
        found = by_store(fault)
    return found, time.perf_counter() - began


def some_schedules(name: str, count: int, seed: int) -> tuple[Catch | None, float]:
    """The same for schedules."""
    began = time.perf_counter()
    found = by_simulator(by_name(name), count, seed)
    return found, time.perf_counter() - began


def searched(name: str) -> tuple[Catch | None, float]:
    """The same for the exhaustive search."""
    began = time.perf_counter()
    found = by_search(by_name(name))
    return found, time.perf_counter() - began
