"""Start processes, and make sure that they and all processes started by them end with this process.

Spark's workers start executors, and executors start Python workers in process groups of their own. All of these processes stay in
the operating system's session (`setsid`) in which the first of them was started. A `Session` sends its signals to every process of
that session.

Each started process also gets an environment variable with a random value. If this process ends without cleaning up (by SIGKILL,
for instance), a small watcher process kills every process with this value, and deletes the folders given to `left_behind`. Needs
Linux's /proc.
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
"""The environment variable by which the watcher finds the processes that this process started. Its value is random."""
STOP_SECONDS = 10.0
TICKS = os.sysconf("SC_CLK_TCK")
"""How many ticks a second has. Times of processors in /proc are numbers of ticks."""

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
    """The watcher of the process with the id `owner`."""

    owner: int
    mark: str
    process: subprocess.Popen[bytes]


_guard = threading.Lock()
_watcher: _Watcher | None = None


def marked(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment (default: that of this process) with the variable MARK, by which the watcher finds processes."""
    found = dict(os.environ if environment is None else environment)
    return {**found, MARK: _watched().mark} if PROC.is_dir() else found


def left_behind(folder: Path) -> None:
    """Let the watcher delete this folder after the end of this process, if the folder still exists then. A mount point is unmounted
    instead.

    The folders are handled in the reverse order of the calls. So call this for a mount point after the folder that contains it.
    """
    pipe = _watched().process.stdin
    assert pipe is not None
    pipe.write(os.fsencode(folder.absolute()) + b"\n")
    pipe.flush()


def _watched() -> _Watcher:
    """Return the watcher of this process. The first call starts it."""
    global _watcher
    with _guard:
        if _watcher is None or _watcher.owner != os.getpid():  # a forked child needs its own watcher
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
    """Let the watcher do its work, and wait for it. Called when this process ends in the normal way."""
    if os.getpid() == watcher.owner and watcher.process.stdin is not None:
        watcher.process.stdin.close()
        watcher.process.wait()


class Session:
    """A command in its own session of the operating system. Its output is appended to the file `output`. A context manager, whose
    end stops the session.
    """

    def __init__(
        self,
        command: Sequence[str],
        output: Path,
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        nice: int = 0,
    ) -> None:
        """`environment`: all variables (default: those of this process). `folder`: the working folder (default: the current one).
        `nice`: added to the niceness of this process.
        """
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
        """The id of the session's first process, which is also the id of the session."""
        return self._process.pid

    def members(self) -> list[int]:
        """Return the ids of the session's processes. Processes that have ended, and still have an entry in /proc (state Z), are
        left out.
        """
        return [one.pid for one in processes() if one.session == self.pid and one.state != "Z"]

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the session."""
        for pid in self.members():
            send(pid, number)

    def kill(self) -> None:
        """Send SIGKILL to all processes of the session until none is left."""
        while self.members():
            self.send(signal.SIGKILL)
            self._process.poll()
            time.sleep(0.005)
        self._process.wait()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Resume all processes of the session, and send SIGTERM to the first process. When that process has ended, or after this
        number of seconds, kill all processes of the session that are left.
        """
        self.send(signal.SIGCONT)
        if self.running():
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def running(self) -> bool:
        """Return whether the first process runs."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> int | None:
        """Return the exit code of the first process, or None if that process has not ended within this number of seconds. If it has
        ended, kill all other processes of the session.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self.kill()
        return code

    def wait_for(self, file: Path, seconds: float) -> bool:
        """Wait until `file` exists. Return False if the first process ends, or this number of seconds passes, without the file."""
        deadline = time.monotonic() + seconds
        while not file.exists():
            if not self.running() or time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def tail(self, characters: int = 3000) -> str:
        """Return the end of the output."""
        return self.output.read_text(errors="replace")[-characters:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


@dataclass(frozen=True)
class Found:
    """A process of this machine at one moment. `state`: the letter of its state in /proc (Z: it has ended, and its parent has not
    waited for it yet). `processor`: the seconds of processor time of the process and of its ended children.
    """

    pid: int
    state: str
    parent: int
    session: int
    processor: float

    def command(self) -> list[str]:
        """Return the words of the command line; none if the process has ended."""
        try:
            return [os.fsdecode(word) for word in (PROC / str(self.pid) / "cmdline").read_bytes().split(b"\0")[:-1]]
        except (FileNotFoundError, ProcessLookupError):
            return []


def processes() -> Iterator[Found]:
    """Yield all processes of this machine."""
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                state, parent, _, session, *rest = (entry / "stat").read_text().rpartition(")")[2].split()
                ticks = sum(map(int, rest[7:11]))  # proc(5): utime, stime, cutime, cstime
                yield Found(int(entry.name), state, int(parent), int(session), ticks / TICKS)


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal. Return whether the process still existed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
