"""A Spark streaming job that is killed, doubled and woken from sleep: every row exactly once, and no read ever saw a part.

`make chaos` kills it 30 times on each store; this is the short form.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.chaos.driver import Place
from conformance.chaos.forks import Forks
from conformance.chaos.streaming import StreamingJob, random_kills, two_drivers, zombie_driver

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", "zookeeper"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def job(store: str, cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> Iterator[StreamingJob]:
    with StreamingJob(forks, cluster_at(store), tmp_path / "job") as made:
        yield made


@pytest.mark.parametrize("store", ["sqlite"])
def test_two_kills(job: StreamingJob) -> None:
    report = random_kills(job, 2, random.Random(7), print)
    assert report.wrong == []
    assert report.kills == 2
    assert report.observed.reads > 2


@pytest.mark.parametrize("store", ["zookeeper"])
def test_a_zombie_driver_that_wakes_after_its_successor_has_committed(job: StreamingJob) -> None:
    assert zombie_driver(job, random.Random(7)).wrong == []


@pytest.mark.parametrize("store", ["sqlite"])
def test_two_drivers_with_one_checkpoint(job: StreamingJob) -> None:
    assert two_drivers(job).wrong == []
