"""Files in a common folder by which several processes begin and end together. Four files are signals to all processes:

start   all processes are ready, so the writers begin
loaded  all writers have begun, so the readers count their answers from now on
enough  the readers have enough answers, so the writers end
stop    the writers have ended, so the readers read once more and end

A process also creates files of its own, `<state>-<pid>`, which say that it has reached a state (`say`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.scenarios.forks import Child, Died

START, LOADED, ENOUGH, STOP = "start", "loaded", "enough", "stop"
ANSWERS = 3
"""The number of answers that each reader needs while the writers write."""
READY_SECONDS = ANSWER_SECONDS = 120.0


def say(what: str, folder: Path) -> None:
    """Record that this process has reached the state `what`."""
    (folder / f"{what}-{os.getpid()}").touch()


def looks(stop: Path) -> Iterator[None]:
    """Yield once for each read that the caller shall make. The first read comes before the writers begin; then record the state
    `ready`. The last read comes after the file `stop` exists, when the writers have ended. Record the state `answered` after
    `ANSWERS` reads that began after the file `loaded` existed.
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
    """Wait until all children have reached the state `what`. Raises Died if a child ends before that, or after `READY_SECONDS`."""
    for child in late(what, children, folder, READY_SECONDS):
        raise Died(f"process {child.pid} was not {what} within {READY_SECONDS:g} s")


def late(what: str, children: Sequence[Child], folder: Path, seconds: float) -> list[Child]:
    """Wait until all children have reached the state `what`, but at most `seconds`. Return the children that have not reached it.
    Raises Died if a child ends before it reaches the state.
    """

    def reached(child: Child) -> bool:
        return (folder / f"{what}-{child.pid}").exists()

    until = time.monotonic() + seconds
    while found := [child for child in children if not reached(child)]:
        for child in found:
            if child.ended(0) and not reached(child):
                child.result()
                raise Died(f"process {child.pid} ended before it was {what}")
        if time.monotonic() > until:
            return found
        time.sleep(0.01)
    return []
