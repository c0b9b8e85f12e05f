"""Tests run in two processes (pytest-xdist). One that measures time, marked `alone`, has the machine for itself: the others wait.

A door keeps out who comes later while somebody waits to be alone; without it the other process would go from test to test.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Hold a place in the room, or all of it. `folder`: one for all processes of the run."""
    with (folder / "door").open("w") as door, (folder / "room").open("w") as room:
        if alone:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX)
        else:
            _pass(door)
            fcntl.flock(room, fcntl.LOCK_SH)
        yield


def _pass(door: IO[str]) -> None:
    fcntl.flock(door, fcntl.LOCK_SH)
    fcntl.flock(door, fcntl.LOCK_UN)
