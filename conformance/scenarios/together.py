"""Processes that work together: the files in a folder of their own by which they begin, go on and end together.

start   all are ready: who writes begins
loaded  all who write have begun: answers count from now on
enough  who reads has had answers enough: who writes ends
stop    who reads looks once more and ends
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.scenarios.forks import Child, Died

START, LOADED, ENOUGH, STOP = "start", "loaded", "enough", "stop"
ANSWERS = 3
"""Of each who reads, each of them asked for and had while the others write."""
READY_SECONDS = ANSWER_SECONDS = 120.0


def say(what: str, folder: Path) -> None:
    """Say of this process that it is so far."""
    (folder / f"{what}-{os.getpid()}").touch()


def looks(stop: Path) -> Iterator[None]:
    """One before the others begin, and so on until one that began after the file `stop` was there: they are done by then. Who has
    had `ANSWERS` under load says so.
    """
    yield
    say("ready", stop.parent)
    last, answers = False, 0
    while not last:
        last, loaded = stop.exists(), stop.with_name(LOADED).exists()
        yield
        answers += loaded
        if loaded and answers == ANSWERS:
            say("answered", stop.parent)


def wait_until(what: str, children: Sequence[Child], folder: Path) -> None:
    """Until all of them are so far. Raises Died if one of them ends instead, or is not within two minutes."""
    for child in late(what, children, folder, READY_SECONDS):
        raise Died(f"process {child.pid} was not {what} within {READY_SECONDS:g} s")


def late(what: str, children: Sequence[Child], folder: Path, seconds: float) -> list[Child]:
    """Wait until all of them are so far; who is not after so many seconds. Raises Died if one of them ends instead."""
    until = time.monotonic() + seconds
    while found := [child for child in children if not (folder / f"{what}-{child.pid}").exists()]:
        for child in found:
            if child.ended(0):
                child.result()
        if time.monotonic() > until:
            return found
        time.sleep(0.01)
    return []
