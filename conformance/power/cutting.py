"""Plays a scenario, cuts the power at each of its crash points in several ways, and judges the resulting states."""

from __future__ import annotations

import logging
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from conformance.power.disk import Pick, SimulatedDisk, all_picks
from conformance.power.scenarios import Scenario
from conformance.power.world import Moment, World, one_of

EXHAUSTIVE = 16
"""All possible outcomes of a power cut are judged if there are at most this many, and also at most `cuts` + 2 (`cuts`: an argument
of `cut`).
"""


@dataclass(frozen=True)
class Wrong:
    """A power cut that left a wrong state. `point`: the index of the crash point. `after`: the call right before it. `said`: the
    violation.
    """

    scenario: str
    point: int
    after: str
    said: str

    def __str__(self) -> str:
        return f"{self.scenario}, power cut at point {self.point} (after {self.after}): {self.said}"


@dataclass
class Cuts:
    """Counters. `points`: at how many crash points the power was cut. `cuts`: how many different states were judged."""

    points: int = 0
    cuts: int = 0


def cut(
    scenario: Scenario,
    seed: int,
    cuts: int,
    done: Cuts,
    *,
    points: int | None = None,
    only: Callable[[str], bool] = lambda after: True,
) -> Iterator[Wrong]:
    """Play the scenario, cut the power at its crash points, and yield the violations. If the scenario has `again`, also kill the
    process at each crash point, let another process finish the work, and then cut the power.

    `cuts`: the number of random states that are judged for each crash point, besides the one with the least content and the one
    with the most. If few states are possible (EXHAUSTIVE), all are judged. `done`: counts the crash points and the judged states.
    `points`: the number of crash points, drawn at random; None: all. `only`: selects crash points by the text of the call right
    before them.
    """
    rng = random.Random(f"{seed}-{scenario.name}")
    with _without_log(), scenario.limits(), tempfile.TemporaryDirectory(prefix="txnsegment-power-") as folder:
        run = _Run(scenario, Path(folder) if scenario.embedded else None, rng, cuts, done)
        moments = run.played()
        chosen = [point for point, moment in enumerate(moments) if only(moment.after)]
        if points is not None:
            chosen = sorted(rng.sample(chosen, min(points, len(chosen))))
        for point in chosen:
            done.points += 1
            yield from run.cut(point, moments[point])
            if scenario.again is not None:
                yield from run.killed(point, moments[point], scenario.again)


@dataclass
class _Run:
    scenario: Scenario
    folder: Path | None
    rng: random.Random
    cuts: int
    done: Cuts
    judged: set[object] = field(default_factory=set)
    kept: list[Moment] = field(default_factory=list)

    def played(self) -> list[Moment]:
        world = World.new(self.folder)
        world.moments = []
        with world.running():
            self.scenario.play(world)
        return world.moments

    def cut(self, point: int, moment: Moment) -> Iterator[Wrong]:
        """Cut the power at this moment in several ways, and yield the violations."""
        for pick in _picks(moment, self.rng, self.cuts):
            yield from self._judged(point, moment, pick, moment.after)

    def killed(self, point: int, moment: Moment, again: Callable[[World], None]) -> Iterator[Wrong]:
        """Kill the process at this moment, let another process finish its work by `again`, and then cut the power at a random
        moment of this work and at its end. Yield the violations.
        """
        world = World.after_a_kill(moment, folder=self.folder, name=f"k{point}x")
        world.moments = []
        after = f"{moment.after}, a kill"
        try:
            with world.running():
                again(world)
        except Exception as error:
            yield Wrong(self.scenario.name, point, after, f"{type(error).__name__}: {error}")
            return
        for later in (self.rng.choice(world.moments or [moment]), (world.moments or [moment])[-1]):
            yield from self._judged(point, later, lambda of: 0, f"{after}, and {later.after}")

    def _judged(self, point: int, moment: Moment, pick: Pick, after: str) -> Iterator[Wrong]:
        world = World.after_a_cut(moment, pick, folder=self.folder, name=f"c{point}x")
        same = (world.disk.fingerprint(), world.left, id(moment.txns), moment.facts)
        if same in self.judged:
            return
        self.judged.add(same)
        self.kept.append(moment)  # `same` has the ids of objects of this moment, so these objects must stay alive
        self.done.cuts += 1
        with world.running():
            for said in _said(self.scenario, world):
                yield Wrong(self.scenario.name, point, after, said)
                return


def _said(scenario: Scenario, world: World) -> Iterator[str]:
    """Yield the violations that the scenario's judge finds. An exception is a violation, too."""
    try:
        yield from scenario.judge(world)
    except Exception as error:
        yield f"{type(error).__name__}: {error}"


def _picks(moment: Moment, rng: random.Random, cuts: int) -> Iterator[Pick]:
    """Yield a Pick for each power cut at this moment that is to be judged: all possible ones if there are few (EXHAUSTIVE),
    otherwise the two extreme ones and `cuts` random ones.
    """
    outcomes = sum(1 for _ in (_outcome(moment, picker()) for picker in all_picks(EXHAUSTIVE + 1)))
    if outcomes <= min(EXHAUSTIVE, cuts + 2):
        yield from (picker() for picker in all_picks(EXHAUSTIVE))
        return
    yield lambda of: 0
    yield lambda of: of - 1
    for _ in range(cuts):
        yield partial(_biased, rng, rng.choice((0.2, 0.5, 0.8)))


def _outcome(moment: Moment, pick: Pick) -> SimulatedDisk:
    for states in moment.stores.values():
        one_of(states, pick)
    return SimulatedDisk.after_a_cut(moment.disk, pick, lambda: 0)


def _biased(rng: random.Random, bias: float, of: int) -> int:
    return of - 1 if rng.random() < bias else rng.randrange(of)


@contextmanager
def _without_log() -> Iterator[None]:
    """Silence the product's log during the block. Sweeps log each transaction that they time out."""
    logger = logging.getLogger("txnsegment")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
