"""Eight writers over four segments while readers look on: no read sees part of a transaction, none falls a second behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.chaos.contention import Answer, Commit, Lag, lag, load
from conformance.chaos.driver import Place
from conformance.chaos.forks import Forks


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_no_read_is_torn_and_none_falls_behind(
    store: str, cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path
) -> None:
    found = load(forks, cluster_at(store), tmp_path, writers=8, seconds=4.0, readers=("buffer", "stream"))
    logging.getLogger(__name__).info("%s", found)
    assert found.wrong == []
    assert found.commits > 8
    assert max(lag.behind for lag in found.lag.values()) < 1000


@pytest.mark.slow
def test_batch_reads_with_their_rows(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    found = load(forks, cluster_at("sqlite"), tmp_path, writers=4, seconds=3.0, readers=("batch",))
    assert found.wrong == []
    assert found.answers["batch"] > 1


def test_lag() -> None:
    """6 was decided late: 7 is readable no sooner, and an observer who asks for its age sees that; the reader is not late by it."""
    commits = [Commit(5, 100.0, 110.0), Commit(7, 150.0, 160.0), Commit(6, 120.0, 400.0)]
    assert lag(commits, [Answer(90.0, 4), Answer(200.0, 5)]) == Lag(behind=90.0, age=100.0)
    assert lag(commits, [Answer(200.0, 5), Answer(390.0, 5), Answer(500.0, 7)]) == Lag(behind=100.0, age=380.0)
    assert lag(commits, [Answer(200.0, 7), Answer(500.0, 7)]) == Lag(behind=0.0, age=0.0)
