"""Child processes that are forked from a server process. Such a child starts in a tenth of a second instead of three seconds.

The server process has imported all modules, so its children need not import them. It has no threads and no connections, so it is
safe to fork it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from enum import Enum, auto
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from conformance.scenarios.scenario import Failed

PRELOAD = [
    "conformance.scenarios.streaming",
    "conformance.scenarios.contention",
    "conformance.scenarios.topics",
    "conformance.scenarios.splits",
    "conformance.scenarios.migrations",
    "conformance.scenarios.migration_storm",
    "conformance.scenarios.spark_migration",
    "pandas",
    "pyarrow.parquet",
    "pyarrow.compute",
    "fastavro",
    "conformance.harness.prebuilt",  # last, because it freezes what is imported
]


class Forks:
    """Starts child processes."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOAD)

    def start(self, target: Callable[..., Any], *arguments: Any) -> Child:
        """Run `target(*arguments)` in a new process."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_report, args=(theirs, target, arguments), daemon=True)
        process.start()
        theirs.close()
        return Child(process, ours)

    def call(self, target: Callable[..., Any], *arguments: Any) -> Any:
        """Run `target(*arguments)` in a new process and return its result. Raises Died (`Child.result`)."""
        return self.start(target, *arguments).result()


class Died(Failed):
    """A child ended without a result."""


class Killed(Died):
    """A child was ended by SIGKILL."""


class Child:
    """One process and the pipe with its result."""

    def __init__(self, process: BaseProcess, pipe: Connection) -> None:
        self._process, self._pipe = process, pipe

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def result(self, seconds: float = 120.0) -> Any:
        """Wait for the process and return its result. Raises Died if the process was killed, or if it raised an error, whose
        traceback is then in the message. Raises Died, and kills the process, if it takes longer than `seconds`.
        """
        try:
            if not self._pipe.poll(seconds):
                self._process.kill()
                raise Died(f"process {self.pid} did not end within {seconds:g} s")
            good, value = self._pipe.recv()
        except EOFError:
            self._process.join()
            kind = Killed if self._process.exitcode == -signal.SIGKILL else Died
            raise kind(f"process {self.pid} ended with {self._process.exitcode}") from None
        finally:
            self._pipe.close()
        self._process.join()
        if not good:
            raise Died(value)
        return value

    def killed(self) -> bool:
        """Wait for the process. Return whether it was killed; False if it ended by itself. Raises Died if it raised an error."""
        try:
            self.result()
        except Killed:
            return True
        return False

    def ended(self, seconds: float) -> bool:
        """Wait at most `seconds`. Return whether the process has ended."""
        return self._pipe.poll(seconds)

    def stopped(self, seconds: float = 60.0) -> bool:
        """Wait until the process has stopped itself (True) or ended (False). Raises Died if neither happens within `seconds`."""
        deadline = time.monotonic() + seconds
        stat = Path(f"/proc/{self.pid}/stat")
        while self._process.is_alive() and not self._pipe.poll(0.005):
            try:
                state = stat.read_text().rpartition(")")[2].split()[0]
            except FileNotFoundError:
                return False
            if state == "T":
                return True
            if time.monotonic() > deadline:
                raise Died(f"process {self.pid} neither stopped nor ended within {seconds:g} s")
        return False

    def stop(self) -> None:
        """Kill the process if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def send(self, number: int) -> bool:
        """Send a signal to the process and return True. If the process has ended, send nothing and return False."""
        if not self._process.is_alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:  # the process ended just now
            return False
        return True


class Struck(Enum):
    """The effect of a fault on a child. MISSED: the child had already ended."""

    KILLED = auto()
    STOPPED = auto()
    MISSED = auto()


def strike(
    name: str,
    starts: Mapping[str, Callable[[], Child]],
    running: MutableMapping[str, Child],
    rng: random.Random,
    *,
    kill: float = 0.75,
    longest: float = 1.0,
) -> Struck:
    """Strike the child `name`. With probability `kill`, kill it and start it again. Otherwise stop it with SIGSTOP, and resume it
    after at most `longest` seconds. If the child has ended by itself, start it again. Raises Died if the child had ended with an
    error.
    """
    child = running[name]
    if rng.random() < kill:
        child.stop()
        killed = child.killed()
        running[name] = starts[name]()
        return Struck.KILLED if killed else Struck.MISSED
    if child.ended(0) or not child.send(signal.SIGSTOP):
        child.result()
        running[name] = starts[name]()
        return Struck.MISSED
    time.sleep(rng.uniform(0.1, longest))
    child.send(signal.SIGCONT)
    return Struck.STOPPED


class Storm:
    """Children, by name, that a scenario strikes at random. `kills`, `stops`: how often a child was killed or stopped."""

    def __init__(self) -> None:
        self.running: dict[str, Child] = {}
        self._starts: dict[str, Callable[[], Child]] = {}
        self.kills = self.stops = 0

    def __str__(self) -> str:
        return f"{self.kills} kills, {self.stops} stops"

    def start(self, name: str, start: Callable[[], Child]) -> None:
        self._starts[name] = start
        self.running[name] = start()

    def strike(self, name: str, rng: random.Random, *, kill: float = 0.75, longest: float = 1.0) -> Struck:
        hit = strike(name, self._starts, self.running, rng, kill=kill, longest=longest)
        self.kills += hit is Struck.KILLED
        self.stops += hit is Struck.STOPPED
        return hit

    def end(self, names: Iterable[str], seconds: float) -> None:
        """Wait until these children have ended by themselves. Raises Died if one of them fails or takes longer than `seconds`."""
        for name in names:
            self.running.pop(name).result(seconds)

    def close(self) -> None:
        for child in self.running.values():
            child.stop()


def _report(pipe: Connection, target: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Run the target in the child. Send back its result, or its traceback."""
    try:
        value = target(*arguments)
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        raise SystemExit(1) from None
    pipe.send((True, value))
