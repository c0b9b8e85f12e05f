"""Processes that begin together, when all of them are ready: the files that start and stop them, in a folder of their own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.chaos.forks import Child, Died

READY_SECONDS = 120.0


def ready(file: Path) -> None:
    """Say that this process may be given `file` from now on."""
    file.with_name(f"ready-{os.getpid()}").touch()


def looks(stop: Path) -> Iterator[None]:
    """One before the others begin, and so on until one that began after the file `stop` was there: they are done by then."""
    yield
    ready(stop)
    last = False
    while not last:
        last = stop.exists()
        yield


def wait_until_ready(children: Sequence[Child], folder: Path) -> None:
    """Raises Died if one of them ends instead, or is not ready after two minutes."""
    until = time.monotonic() + READY_SECONDS
    while late := [child for child in children if not (folder / f"ready-{child.pid}").exists()]:
        for child in late:
            if child.ended(0):
                child.result()
        if time.monotonic() > until:
            raise Died(f"process {late[0].pid} was not ready within {READY_SECONDS:g} s")
        time.sleep(0.01)
