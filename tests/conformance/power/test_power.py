"""After a power cut, the rows of every commit that returned are there. These tests use some of the crash points; the command
`python -m conformance.power` uses all.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conformance.power.cutting import Cuts, cut
from conformance.power.scenarios import SCENARIOS, Scenario

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
DRAWN = 3


def wrong(scenario: Scenario, *, points: int | None = None, only: Callable[[str], bool] = lambda after: True) -> list[str]:
    done = Cuts()
    found = [str(one) for one in cut(scenario, 1, 0, done, points=points, only=only)]
    assert done.points
    assert done.cuts
    return found


@pytest.mark.parametrize("name", BY_NAME)
def test_a_power_cut_loses_no_acknowledged_write(name: str) -> None:
    assert not wrong(BY_NAME[name], points=DRAWN)


def test_a_power_cut_after_a_decision_loses_no_file() -> None:
    """A file is durable before a record names it. So a power cut after a store call or after the whole commit loses no file."""
    assert not wrong(BY_NAME["sink"], only=lambda after: after.startswith("store ") or after == "commit has returned")


def test_an_embedded_cluster_outlives_a_power_cut_once_a_commit_has_returned() -> None:
    assert not wrong(BY_NAME["embedded"], only=lambda after: after in ("begin", "commit has returned"))


def test_a_cluster_that_was_killed_and_opened_again_outlives_a_power_cut() -> None:
    assert not wrong(BY_NAME["founding"], only=lambda after: "cluster.json" in after)


@pytest.mark.parametrize("name", ["restore", "restore_filed"])
def test_a_restore_that_was_killed_and_run_again_outlives_a_power_cut(name: str) -> None:
    assert not wrong(BY_NAME[name], only=lambda after: after.startswith("rename"))


def test_a_backup_outlives_a_power_cut_and_can_be_written_again_after_one() -> None:
    assert not wrong(BY_NAME["backup"], only=lambda after: "one.backup" in after or after == "a backup was written")
