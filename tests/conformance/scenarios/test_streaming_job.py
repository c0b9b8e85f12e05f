"""A Spark streaming job is killed, duplicated and resumed. Every row is there exactly once, and no read returns a part of a batch.

These tests are the short form. `make chaos` kills the job 30 times on each store.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.scenarios.driver import Place
from conformance.scenarios.forks import Forks
from conformance.scenarios.scenario import run
from conformance.scenarios.streaming import RandomKills, TwoDrivers, ZombieDriver

pytestmark = pytest.mark.slow


def test_a_streaming_job_survives_two_kills(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    job = RandomKills(forks, cluster_at("sqlite"), tmp_path / "job", random.Random(7), 2, print)
    assert run(job).wrong == []
    assert job.kills == 2
    assert job.observed.reads > 2


def test_a_zombie_driver_that_wakes_after_its_successor_has_committed(
    cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path
) -> None:
    assert run(ZombieDriver(forks, cluster_at("zookeeper"), tmp_path / "job", random.Random(7))).wrong == []


def test_two_drivers_with_one_checkpoint(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    assert run(TwoDrivers(forks, cluster_at("sqlite"), tmp_path / "job", random.Random(7))).wrong == []
