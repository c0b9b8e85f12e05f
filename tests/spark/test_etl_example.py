"""Tests of examples/etl.py as a user runs it: started by spark-submit, killed during staging, and started again
(`examples/etl_killed.py` kills it at more stages). Further tests are about how the examples kill their jobs.
"""

from __future__ import annotations

import importlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from conformance.harness.spark_start import spark_environment

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Yield a function that imports a program of examples/ by its name."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name, value in spark_environment(warm=True).items():
        monkeypatch.setenv(name, value)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == EXAMPLES:
            del sys.modules[name]


@pytest.mark.slow
def test_a_run_that_is_killed_neither_skips_nor_repeats(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    etl_killed = example("etl_killed")
    schedule = etl_killed.Schedule(tmp_path)
    schedule.arrive(2)
    assert etl_killed.kill_at(schedule, "its first write is staged")
    assert schedule.committed() == 0
    assert schedule.staged() >= 1
    schedule.arrive(1)
    with schedule.run() as process:
        process.wait()
    assert process.returncode == 0
    for what, found, wanted in schedule.checks(done=True):
        assert found == wanted, what
    assert schedule.committed() == 1
    schedule.cluster.close()


def test_the_split_stream_expects_every_flight_once(example: Callable[[str], ModuleType]) -> None:
    split, flights = example("split_flights"), example("nycflights").source_file()
    expected = split.expected(flights)
    assert sum(count for count, _ in expected.values()) == flights.num_rows == 336_776
    assert len(expected) == 3


BUSY = f"""{shlex.quote(sys.executable)} -c 'import os; os.setsid()
while True: pass' & wait"""
"""A shell command whose child has a process group of its own and is busy all the time."""


def test_a_job_is_killed_only_if_its_state_still_holds_once_stopped(example: Callable[[str], ModuleType], tmp_path: Path) -> None:
    jobs = example("jobs")
    answers = iter(["decided meanwhile", None, None, "open", "open"])
    runs: list[bool] = []
    with jobs.job(["sh", "-c", BUSY], tmp_path / "log") as process:
        processes = jobs.Processes(process.pid)

        def due() -> str | None:
            running = processes.look()
            if not runs and len(running) < 2:
                return None
            runs.append(bool(running))
            return next(answers)

        assert jobs.kill_when(process, due) == "open"
        assert runs == [True, False, True, True, False]
        assert (process.returncode, processes.look()) == (-signal.SIGKILL, set())


def test_a_stopped_job_resumes_after_an_error_and_ends_with_the_example(
    example: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    jobs = example("jobs")
    with jobs.job(["sh", "-c", BUSY], tmp_path / "log") as process:
        processes = jobs.Processes(process.pid)
        while len(processes.look()) < 2:
            assert process.poll() is None
        with suppress(KeyboardInterrupt), processes.stopped():
            assert processes.look() == set()
            raise KeyboardInterrupt
        assert len(processes.look()) == 2
        processes.send(signal.SIGSTOP)
    assert (process.returncode, processes.look()) == (-signal.SIGKILL, set())


SPAWNS = """
import os, sys
os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)])
os.wait()
"""
"""A Python program that spawns another program whose input is a FIFO. The other program begins only when a process opens the FIFO
for writing. Until then the spawning process waits in the kernel.
"""


def test_a_waiter_for_a_program_stopped_before_its_start_is_stopped_too(
    example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, fifo = example("jobs"), tmp_path / "fifo"
    monkeypatch.setattr(jobs, "STOP_SECONDS", 0.3)
    os.mkfifo(fifo)
    with jobs.job([sys.executable, "-c", SPAWNS, str(fifo)], tmp_path / "log") as process:

        def states() -> list[str]:
            listed = subprocess.run(["ps", "-A", "-o", "pgid=,state="], capture_output=True, text=True, check=True).stdout
            return sorted(state[0] for group, state in map(str.split, listed.splitlines()) if int(group) == process.pid)

        while len(states()) < 2:
            assert process.poll() is None
        processes = jobs.Processes(process.pid)
        processes.send(signal.SIGSTOP)
        while "T" not in states():
            assert process.poll() is None
        fd = os.open(fifo, os.O_RDWR)  # this opens the FIFO for writing, so the program can begin
        with processes.stopped():
            assert states() == ["T", "T"]
        os.close(fd)
    assert (process.returncode, processes.look()) == (-signal.SIGKILL, set())
