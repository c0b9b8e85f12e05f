"""Eight writers over four segments while readers look on: no read sees part of a transaction, none falls a second behind."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.chaos.contention import Answer, Commit, lag_ms, load
from conformance.chaos.driver import Place
from conformance.chaos.forks import Forks


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_no_read_is_torn_and_none_falls_behind(
    store: str, cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path
) -> None:
    found = load(forks, cluster_at(store), tmp_path, writers=8, seconds=4.0, readers=("buffer", "stream"))
    logging.getLogger(__name__).info("%s", found)
    assert found.wrong == []
    assert found.commits > 8
    assert max(found.lag_ms.values()) < 1000


@pytest.mark.slow
def test_batch_reads_with_their_rows(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    found = load(forks, cluster_at("sqlite"), tmp_path, writers=4, seconds=3.0, readers=("batch",))
    assert found.wrong == []
    assert found.answers["batch"] > 1


def test_lag_is_the_age_of_the_oldest_commit_that_the_reader_did_not_have() -> None:
    commits = [Commit(5, 100.0, 110.0), Commit(7, 150.0, 160.0), Commit(6, 120.0, 400.0)]
    answers = [Answer(90.0, 4), Answer(200.0, 5), Answer(500.0, 7)]
    # before the answer at 200: 5 and 7 had returned, 5 began at 100; before the one at 500: 6 and 7, 6 began at 120
    assert lag_ms(commits, answers) == 380.0
    assert lag_ms(commits, answers[:2]) == 100.0
    assert lag_ms(commits, [Answer(200.0, 7), Answer(500.0, 7)]) == 0.0
