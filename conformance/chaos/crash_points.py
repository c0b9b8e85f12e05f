"""Every crash point of a commit: killed, turned into a zombie, or killed beside a twin, before and after each store call.

A case is a topic of its own: version 0 is committed, version 1 meets its fate at call k, then a new process does what Spark
does after a restart, and everything is checked. Cases run until k lies beyond the last call of a commit.
"""

from __future__ import annotations

import dataclasses
import itertools
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.chaos.crashing import Crash, Fate, When
from conformance.chaos.driver import CONFLICTS, Outcome, Place, end, make, restart, write_version
from conformance.chaos.forks import Child, Forks

AROUND = (When.BEFORE, When.AFTER)


@dataclass(frozen=True)
class Case:
    """What happened at one crash point. `hit`: the process really got there. `wrong`: in words; empty if all is well."""

    what: str
    hit: bool
    wrong: list[str]


def killed(forks: Forks, place: Place, crash: Crash, then: Place) -> Case:
    """The driver dies; a new one runs the batch again and goes on."""
    hit = forks.start(write_version, place, 1, crash).killed()
    return Case(f"killed {_at(crash)}", hit, forks.call(restart, place, (1, 2), then))


def zombie(forks: Forks, place: Place, crash: Crash, then: Place) -> Case:
    """The driver sleeps; its successor runs the batch again and the next one; then it wakes."""
    driver = forks.start(write_version, place, 1, dataclasses.replace(crash, fate=Fate.SLEEP))
    hit = driver.stopped()
    try:
        wrong: list[str] = forks.call(restart, place, (1, 2), then) if hit else []
    finally:
        driver.send(signal.SIGCONT)
    wrong += _conflict("the zombie", driver)
    wrong += forks.call(end, place, 3) if hit else forks.call(restart, place, (2,), then)
    return Case(f"zombie {_at(crash)}", hit, wrong)


def twins(forks: Forks, place: Place, crash: Crash, then: Place) -> Case:
    """Two drivers of one checkpoint run the same batch at the same time, and one of them dies."""
    victim = forks.start(write_version, place, 1, crash)
    twin = forks.start(write_version, place, 1)
    hit = victim.killed()
    wrong = _conflict("the twin", twin)
    return Case(f"killed beside a twin {_at(crash)}", hit, wrong + forks.call(restart, place, (1, 2), then))


def failing(forks: Forks, place: Place, crash: Crash, then: Place) -> Case:
    """The call fails; Spark calls `abort` after the commit that raised, and runs the batch again in a new process."""
    outcome: Outcome = forks.call(write_version, place, 1, dataclasses.replace(crash, fate=Fate.FAIL))
    hit = len(outcome.calls) >= crash.call
    return Case(f"failing {_at(crash)}: {outcome.error}", hit, forks.call(restart, place, (1, 2), then))


FATES = {"killed": killed, "zombie": zombie, "twins": twins, "failing": failing}


def series(forks: Forks, cluster: Place, fate: str, whens: tuple[When, ...] = AROUND, *, last: int | None = None) -> Iterator[Case]:
    """All crash points of one fate, in one cluster, which is made here. `last`: stop after this call.

    The topics of the cases are of the namespace and domain of `cluster.topic`.
    """
    forks.call(make, cluster)
    calls: list[str] = []
    folder = cluster.topic.rpartition("/")[0]
    names = (dataclasses.replace(cluster, topic=f"{folder}/{fate}-{n}" if folder else f"{fate}-{n}") for n in itertools.count())
    place = next(names)
    forks.call(write_version, place, 0)
    calls = forks.call(write_version, place, 1).calls
    place = next(names)
    forks.call(write_version, place, 0)
    for call in range(1, 1 + min(len(calls), last or len(calls))):
        for when in whens:
            then = next(names)
            yield FATES[fate](forks, place, Crash(call, when), then)
            place = then


def _conflict(who: str, driver: Child) -> list[str]:
    """A driver that lost may say so in these words only."""
    outcome: Outcome = driver.result()
    if outcome.error is None or outcome.error in CONFLICTS:
        return []
    return [f"{who} was told {outcome.error}: {outcome.message}"]


def _at(crash: Crash) -> str:
    return f"{crash.when.value} store call {crash.call}"
