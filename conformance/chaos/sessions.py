"""Processes with all that they start: a Spark driver has a JVM, and that has Python workers in process groups of their own.

Each is started as the leader of a session of its own, and a signal goes to every process of that session.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

NICE = 5
SPARK_ENVIRONMENT = {"SPARK_LOCAL_IP": "127.0.0.1", "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For small drivers that live for seconds: they start in less processor time."""


class Launched:
    """`python -m MODULE ARGUMENTS` in a session of its own; its output goes to `output`."""

    def __init__(
        self, module: str, arguments: Sequence[str], output: Path, environment: Mapping[str, str] | None = None, *, nice: int = NICE
    ) -> None:
        self.output = output
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                    **(environment or {}),
                },
                preexec_fn=lambda: os.nice(nice) and None,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def members(self) -> list[int]:
        """The processes of the session that live (zombies left out)."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with suppress(FileNotFoundError, ProcessLookupError):
                state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(session) == self.pid and state != "Z":
                    found.append(int(entry.name))
        return found

    def send(self, number: signal.Signals) -> None:
        """To all of the session."""
        for pid in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """SIGKILL to all of the session, until none is left."""
        while self.members():
            self.send(signal.SIGKILL)
            self._process.poll()
        self._process.wait()

    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it has not ended in so many seconds."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self.kill()  # what it left behind
        return code

    def wait_for(self, file: Path, seconds: float) -> bool:
        """Until it has written `file` (True), or has ended or taken too long (False)."""
        deadline = time.monotonic() + seconds
        while not file.exists():
            if not self.running() or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def tail(self, characters: int = 3000) -> str:
        return self.output.read_text(errors="replace")[-characters:]
