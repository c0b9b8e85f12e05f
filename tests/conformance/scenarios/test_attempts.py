"""Spark repeats or duplicates attempts of tasks. Only the parts of the attempts that Spark accepted become visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.harness.spark_start import spark_environment
from conformance.scenarios.driver import Place, unfinished
from conformance.scenarios.forks import Forks
from conformance.scenarios.history import Row, written
from conformance.scenarios.reading import read_all
from conformance.scenarios.sessions import launched

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("trouble", "again"), [("retry", "attempt-0-1"), ("speculation", "attempt-1-1")])
def test_only_accepted_attempts_count(trouble: str, again: str, tmp_path: Path, forks: Forks) -> None:
    place = Place(f"file://{tmp_path}/cluster", "t")
    (tmp_path / "job").mkdir()
    given = {"--url": place.url, "--topic": place.topic, "--folder": str(tmp_path / "job"), "--trouble": trouble}
    words = [word for pair in given.items() for word in pair]
    driver = launched("conformance.scenarios.attempts", words, tmp_path / "log", spark_environment(warm=True))
    try:
        assert driver.wait(180) == 0, driver.tail()
    finally:
        driver.kill()
    assert (tmp_path / "job" / again).exists(), "no second attempt was made"
    rows: list[Row] = forks.call(read_all, place.url, place.topic)
    assert sorted(r.seq for r in rows) == [seq for batch in (0, 1) for _, seq, _, _ in written(batch)]
    assert len({r.txn for r in rows}) == 1
    assert forks.call(unfinished, place) == []
