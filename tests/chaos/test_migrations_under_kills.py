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
from conformance.chaos.driver import Place
from conformance.chaos.forks import Forks


@pytest.mark.slow
def test_whoever_migrates_may_die(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    cases = list(migrations.points(forks, cluster_at("sqlite"), tmp_path / "notes", Fate.DIE, every=30))
    assert [(case.what, case.wrong) for case in cases if case.wrong] == []
    assert len(cases) >= 2 * len(migrations.WAYS)
    assert sum(case.hit for case in cases) >= len(migrations.WAYS)


@pytest.mark.slow
def test_what_is_open_is_named_waited_for_or_aborted(cluster_at: Callable[[str], Place], forks: Forks) -> None:
    assert forks.call(migrations.refusals, cluster_at("sqlite")) == []


@pytest.mark.slow
def test_everybody_may_die(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    """Who migrates is among them: killed between its first topic and its last."""
    found = migration_storm.storm(forks, cluster_at("sqlite"), tmp_path / "notes", kills=2, rng=random.Random(2))
    assert found.wrong == []
    assert found.migrators >= found.rounds
    assert min(found.transactions, found.rows, found.micro_batches, found.looks) > 0
