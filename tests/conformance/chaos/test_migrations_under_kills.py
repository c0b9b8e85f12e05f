"""Persistent topics migrate while everybody works on them, and who migrates is killed at its store calls, or anybody at random:
`make chaos` does it at every call, with sleepers, twins and failures, with thirty kills, with jobs of Spark, and on ZooKeeper.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.chaos import migration_storm, migrations
from conformance.chaos.crashing import Fate
from conformance.chaos.driver import Place, make
from conformance.chaos.forks import Forks
from conformance.chaos.migration_workload import Scene


@pytest.mark.slow
def test_whoever_migrates_may_die(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    cases = list(migrations.points(forks, cluster_at("sqlite"), tmp_path / "notes", Fate.DIE, every=30))
    assert [(case.what, case.wrong) for case in cases if case.wrong] == []
    assert len(cases) >= 2 * len(migrations.WAYS)
    assert sum(case.hit for case in cases) >= len(migrations.WAYS)


@pytest.mark.slow
def test_what_is_open_is_named_waited_for_or_aborted(cluster_at: Callable[[str], Place], forks: Forks) -> None:
    assert forks.call(migrations.refusals, cluster_at("sqlite")) == []


def test_migration_failing_before_kill_reports_its_error(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    place, report = cluster_at("sqlite"), migration_storm.Stormed()
    there, missing = ((f"persistent://public/default/{name}", f"topic://public/default/{name}") for name in ("there", "missing"))
    forks.call(make, place, migrations.SETTINGS)
    forks.call(migrations.prepare, place.url, there[:1], [])
    scene = Scene(place.url, tmp_path / "notes")
    scene.begin()
    child = forks.start(migrations.die_midway, scene, "migrator", [there, missing], 1, [None, None])
    assert not migration_storm.expect_kill(child, "who migrates", report)
    (wrong,) = report.wrong
    assert wrong.startswith("who migrates was not killed: ")
    assert "The migration of persistent://public/default/missing was not killed, and was told TopicNotFound: " in wrong


@pytest.mark.slow
def test_everybody_may_die(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    """Who migrates is among them: killed between its first topic and its last."""
    found = migration_storm.storm(forks, cluster_at("sqlite"), tmp_path / "notes", kills=2, rng=random.Random(2))
    assert found.wrong == []
    assert min(found.transactions, found.rows, found.micro_batches, found.looks) > 0
