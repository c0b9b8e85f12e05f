"""Child processes that open the same store and can be killed. Each runs `child.py` and exchanges lines with this process."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from types import TracebackType
from typing import Any, Self

from conformance.store.expectations import ContractBroken
from conformance.store.site import Opener, Place

END = None


class Child:
    """A process that does one job (`child.JOBS`). A context manager: its exit kills the process.

    The process prints lines of JSON. Each line is printed with a single write, so that a kill leaves only whole lines.
    """

    def __init__(self, place: Place, opener: Opener, job: str, arguments: dict[str, Any], *, patience: float) -> None:
        self._patience = patience
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `__exit__`
        self._lines: queue.Queue[Any] = queue.Queue()
        self.started = False
        task = {
            "url": place.url,
            "prefix": place.prefix,
            "opener": f"{opener.__module__}:{opener.__qualname__}",
            "job": job,
            "arguments": arguments,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "conformance.store.child", json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._reader = threading.Thread(target=self._read, name="conformance-child", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                self._lines.put(json.loads(line))
        self._lines.put(END)

    def wait_ready(self) -> None:
        """Wait until the process has opened the store. Raises ContractBroken, with the errors that it printed, if it fails."""
        if self.line() != "ready":
            raise self._failed("did not open the store")

    def go(self) -> None:
        """Start the job."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        self.started = True

    def line(self) -> Any:
        """Return the next line of output, or END after the last. Raises ContractBroken if no line comes within the timeout."""
        try:
            return self._lines.get(timeout=self._patience)
        except queue.Empty:
            raise self._failed(f"said nothing for {self._patience:g} s") from None

    def lines(self) -> list[Any]:
        """Return all further lines of output, up to the end of the process."""
        found = []
        while (line := self.line()) is not END:
            found.append(line)
        return found

    def done(self) -> list[Any]:
        """Return all further lines of output. Raises ContractBroken if the process ends with an error."""
        found = self.lines()
        if self._process.wait(self._patience):
            raise self._failed(f"ended with {self._process.returncode}")
        return found

    def kill(self) -> list[Any]:
        """Kill the process by SIGKILL, so that it cannot close its session. Return the lines that were not read before."""
        self._process.kill()
        found = self.lines()
        self._process.wait(self._patience)
        return found

    def _failed(self, what: str) -> ContractBroken:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()
        return ContractBroken(f"A process on this store {what}: {said[-1500:] or 'it said nothing'}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()
