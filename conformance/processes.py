"""Processes with all that they start, and the promise that none of them outlives us.

Spark's workers start executors, and those start Python workers in process groups of their own; all stay in the session of the
process that we started. A `Session` sends its signals to every process of it. What we start also carries a mark in its
environment: should this process end without cleaning up (SIGKILL included), a small watcher kills whatever carries the mark, and
takes away the folders named to `left_behind`. Needs Linux's /proc.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

PROC = Path("/proc")
MARK = "TXNSEGMENT_CONFORMANCE_RUN"
"""The environment variable that tells our processes from all others."""
STOP_SECONDS = 10.0

_WATCHER = """
import os, shutil, signal, subprocess, sys, time
folders = [os.fsdecode(line[:-1]) for line in sys.stdin.buffer]
mark = sys.argv[1].encode()
while True:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/environ", "rb") as environ:
                    if mark in environ.read().split(b"\\0"):
                        found.append(int(name))
            except OSError:
                continue
    if not found:
        break
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    time.sleep(0.05)
for folder in reversed(folders):
    if os.path.ismount(folder):
        subprocess.run(["umount", folder], check=True)
    elif os.path.isdir(folder):
        shutil.rmtree(folder)
"""


@dataclass(frozen=True)
class _Watcher:
    """Of the process `owner`."""

    owner: int
    mark: str
    process: subprocess.Popen[bytes]


_guard = threading.Lock()
_watcher: _Watcher | None = None


def marked(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment (default: ours) with the mark of this process."""
    found = dict(os.environ if environment is None else environment)
    return {**found, MARK: _watched().mark} if PROC.is_dir() else found


def left_behind(folder: Path) -> None:
    """Unmount (a mount point) or delete this folder, should it still be there when we have ended, in whatever way.

    Name a mount point after the folder that it lies in: the last ones named go first.
    """
    pipe = _watched().process.stdin
    assert pipe is not None
    pipe.write(os.fsencode(folder.absolute()) + b"\n")
    pipe.flush()


def _watched() -> _Watcher:
    """The watcher of this process, started when it is first needed."""
    global _watcher
    with _guard:
        if _watcher is None or _watcher.owner != os.getpid():  # a forked child has children of its own
            mark = uuid.uuid4().hex
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _WATCHER, f"{MARK}={mark}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            _watcher = _Watcher(os.getpid(), mark, process)
            atexit.register(_dismiss, _watcher)
        return _watcher


def _dismiss(watcher: _Watcher) -> None:
    """At our orderly end: let it look once more, and wait for it."""
    if os.getpid() == watcher.owner and watcher.process.stdin is not None:
        watcher.process.stdin.close()
        watcher.process.wait()


class Session:
    """A command in a session of its own. Its output goes to the file `output`, appended. A context manager that ends it."""

    def __init__(
        self,
        command: Sequence[str],
        output: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        nice: int = 0,
    ) -> None:
        """`environment`: all of it (default: ours). `folder`: where it runs (default: where we do). `nice`: added to ours."""
        self.output = output
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=marked(environment),
                cwd=folder,
                preexec_fn=(lambda: os.nice(nice) and None) if nice else None,
            )

    @property
    def pid(self) -> int:
        """Of its first process, and the session's id."""
        return self._process.pid

    def members(self) -> list[int]:
        """Its processes that live (zombies left out)."""
        return [one.pid for one in processes() if one.session == self.pid and one.state != "Z"]

    def send(self, number: signal.Signals) -> None:
        """To all of the session."""
        for pid in self.members():
            send(pid, number)

    def kill(self) -> None:
        """SIGKILL to all of the session, until none is left."""
        while self.members():
            self.send(signal.SIGKILL)
            self._process.poll()
            time.sleep(0.005)
        self._process.wait()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """SIGTERM to its first process; what still lives after so many seconds is killed."""
        self.send(signal.SIGCONT)
        if self.running():
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def running(self) -> bool:
        """Whether its first process runs."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """The exit code of its first process, or None if it has not ended in so many seconds. What it left behind is killed."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self.kill()
        return code

    def wait_for(self, file: Path, seconds: float) -> bool:
        """Until `file` exists (True), or its first process has ended or that took too long (False)."""
        deadline = time.monotonic() + seconds
        while not file.exists():
            if not self.running() or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def tail(self, characters: int = 3000) -> str:
        """The end of its output."""
        return self.output.read_text(errors="replace")[-characters:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


@dataclass(frozen=True)
class Found:
    """A process of this machine, as it was when it was looked at. `state`: the letter of /proc (Z: a zombie)."""

    pid: int
    state: str
    parent: int
    session: int

    def command(self) -> list[str]:
        """Its words; none if it has ended."""
        try:
            return [os.fsdecode(word) for word in (PROC / str(self.pid) / "cmdline").read_bytes().split(b"\0")[:-1]]
        except (FileNotFoundError, ProcessLookupError):
            return []


def processes() -> Iterator[Found]:
    """All processes of this machine."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                state, parent, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                yield Found(int(entry.name), state, int(parent), int(session))


def send(pid: int, number: signal.Signals) -> bool:
    """Whether the process was still there to get the signal."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
