"""Tests of the runner of scenarios: its phases, and the end of a run after an error. The scenarios use every kind of fault."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from conformance.command.chaos import Stage, points, topics
from conformance.scenarios.cluster.plan import KINDS
from conformance.scenarios.commit_points import CommitPoints
from conformance.scenarios.crash_points import Case, CrashPoints
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Died, Forks
from conformance.scenarios.scenario import Ran, Scenario, reported, run
from conformance.scenarios.topics import TopicsPoints

PLANNED = {
    "kill": "driver executor python planner follower leader changing",
    "stop": "driver driver-zombie executor python follower leader",
    "expire": "session-expiry",
    "cut": "cut",
    "refuse": "refused",
    "lose reply": "lost-reply",
    "delay": "delay",
    "fill": "disk-full",
    "shift": "clock",
}
"""What a fault does -> the names of the cluster suite's faults that do it. A name may lack its end `-kill` or `-stop`; it then
names the process that the fault strikes.
"""


def test_make_chaos_strikes_with_every_fault(tmp_path: Path) -> None:
    """The scenarios of `make chaos`, together with the cluster suite, use every kind of fault. The test makes the scenarios, but
    runs none.
    """
    given = argparse.Namespace(domain=None, kills=1, seed=1)
    stage = Stage(Forks(), "sqlite", tmp_path, "", given)
    at_calls = {one.fault for one in (*points(stage), *topics(stage)) if isinstance(one, CommitPoints | TopicsPoints)}
    assert at_calls == {Fault.KILL, Fault.STOP, Fault.TWIN, Fault.FAIL}
    assert at_calls | {kind.does for kind in KINDS} == set(Fault)


def test_the_cluster_suite_strikes_every_party() -> None:
    planned = {kind.name: kind.does for kind in KINDS}
    named = {
        name if name in planned else f"{name}-{does}": Fault(does) for does, names in PLANNED.items() for name in names.split()
    }
    assert planned == named


class Told(Scenario):
    """A scenario that records its phases and may fail in one of them."""

    name = "told"

    def __init__(self, wrong: list[str], fails: str = "") -> None:
        self.phases: list[str] = []
        self._wrong, self._fails = wrong, fails

    def _phase(self, name: str) -> None:
        self.phases.append(name)
        if name == self._fails:
            raise Died("a process ended")

    def setup(self) -> None:
        self._phase("setup")

    def start(self) -> None:
        self._phase("start")

    def faults(self) -> None:
        self._phase("faults")

    def check(self) -> list[str]:
        self._phase("check")
        return self._wrong

    def figures(self) -> str:
        self._phase("figures")
        return "3 kills"

    def close(self) -> None:
        self._phase("close")


PHASES = ["setup", "start", "faults", "check", "figures", "close"]


def test_phases_run_in_order_and_violations_are_reported() -> None:
    scenario, said = Told(["a row is lost"]), list[str]()
    assert reported(scenario, "sqlite", said.append) == ["a row is lost"]
    assert scenario.phases == PHASES
    assert said == ["sqlite: told: 3 kills; 1 wrong (0 s)", "    WRONG a row is lost"]


@pytest.mark.parametrize("phase", PHASES[:4])
def test_a_scenario_that_fails_is_reported_and_closed(phase: str) -> None:
    scenario = Told([], fails=phase)
    assert run(scenario) == Ran(["a process ended"], "it did not come to its end")
    assert scenario.phases == [*PHASES[: PHASES.index(phase) + 1], "close"]


class Half(CrashPoints):
    """Crash points with two cases. The run reached only the first case."""

    name = "half"

    def cases(self) -> list[Case]:  # type: ignore[override]
        return [Case("kill before store call 1", True, ["a row is lost"]), Case("kill after store call 1", False, [])]


@pytest.mark.parametrize("reach", [0.5, 0.6])
def test_unreached_crash_points_are_reported(reach: float, tmp_path: Path) -> None:
    points = Half()
    points.reach = reach
    missed = ["of 2 crash points only 1 were reached"] * (reach > 0.5)
    assert run(points) == Ran(["kill before store call 1: a row is lost", *missed], "2 crash points, 1 reached")
