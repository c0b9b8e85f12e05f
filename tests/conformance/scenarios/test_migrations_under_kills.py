"""Persistent topics migrate under load. The migrating process is killed at some of its store calls, or processes are killed at
random. `make chaos` covers every call, and also suspends processes, gives them twins and lets their calls fail. It makes thirty
random kills, and uses Spark jobs and ZooKeeper.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.scenarios import migration_storm, migrations
from conformance.scenarios.driver import Place, make
from conformance.scenarios.faults import Fault
from conformance.scenarios.forks import Forks
from conformance.scenarios.migration_workload import Scene
from conformance.scenarios.scenario import run


@pytest.mark.slow
def test_a_migration_killed_at_any_point_is_finished(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    points = migrations.MigrationPoints(forks, cluster_at("sqlite"), tmp_path / "notes", Fault.KILL, every=30)
    assert run(points).wrong == []
    cases = points.all
    assert len(cases) >= 2 * len(migrations.WAYS)
    assert sum(case.hit for case in cases) >= 2 * len(migrations.WAYS)


@pytest.mark.slow
def test_a_migration_names_waits_for_or_aborts_open_transactions(cluster_at: Callable[[str], Place], forks: Forks) -> None:
    assert run(migrations.Refusals(forks, cluster_at("sqlite"))).wrong == []


def test_migration_failing_before_kill_reports_its_error(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    place, found = cluster_at("sqlite"), list[str]()
    there, missing = ((f"persistent://public/default/{name}", f"topic://public/default/{name}") for name in ("there", "missing"))
    forks.call(make, place, migrations.SETTINGS)
    forks.call(migrations.prepare, place.url, there[:1], [])
    scene = Scene(place.url, tmp_path / "notes")
    scene.begin()
    child = forks.start(migrations.die_midway, scene, "migrator", [there, missing], 1, [None, None])
    assert not migration_storm.expect_kill(child, "the process that migrates, in its second topic,", found)
    (wrong,) = found
    assert wrong.startswith("the process that migrates, in its second topic, was not killed: ")
    assert "The migration of persistent://public/default/missing was not killed, and was told TopicNotFound: " in wrong


@pytest.mark.slow
def test_a_migration_survives_kills_of_every_process(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    """The migrating process is killed while its second topic migrates, and processes are killed at random. Nothing is wrong
    afterwards.
    """
    storm = migration_storm.MigrationStorm(forks, cluster_at("sqlite"), tmp_path / "notes", kills=2, rng=random.Random(2))
    assert run(storm).wrong == []
    assert all(storm.count[what] > 0 for what in ("transactions", "rows", "micro-batches", "looks", "migrators"))
