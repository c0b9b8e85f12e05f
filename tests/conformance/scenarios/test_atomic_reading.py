"""Concurrent writers and readers. No read is torn, and each read has all commits that returned before it began."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.scenarios import contention
from conformance.scenarios.contention import POLL_SECONDS, READERS, Answer, Commit, Lag, Load, Watched, lag, missed, watch_buffer
from conformance.scenarios.driver import Place
from conformance.scenarios.forks import Forks
from conformance.scenarios.scenario import run
from conformance.scenarios.together import ENOUGH, START, looks


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "zookeeper"])
def test_no_read_is_torn_and_none_is_old(store: str, cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    found = run(Load(forks, cluster_at(store), tmp_path, writers=8, seconds=4.0, readers=("buffer", "stream")))
    logging.getLogger(__name__).info(found.figures)
    assert found.wrong == []


@pytest.mark.slow
def test_batch_reads_with_their_rows(cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path) -> None:
    found = run(Load(forks, cluster_at("sqlite"), tmp_path, writers=4, seconds=3.0, readers=("batch",)))
    assert found.wrong == []


def stuck(place: Place, stop: Path) -> Watched:
    """Act as a faulty reader. Each of its answers ends at the number at which its first answer ended."""
    seen = watch_buffer(place, stop)
    seen.answers = [dataclasses.replace(answer, through=seen.answers[0].through) for answer in seen.answers]
    return seen


@pytest.mark.slow
def test_a_reader_that_lags_is_found(
    cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(READERS, "stuck", stuck)
    found = run(Load(forks, cluster_at("sqlite"), tmp_path, writers=2, seconds=0.0, readers=("stuck",)))
    assert found.wrong
    assert all(what.startswith("stuck: an answer asked for at ") for what in found.wrong), found.wrong


def shut_out(place: Place, stop: Path) -> Watched:
    """Act as a faulty reader that gets no answer while the writers write."""
    for _ in looks(stop):
        while stop.with_name(START).exists() and not stop.with_name(ENOUGH).exists():
            time.sleep(POLL_SECONDS)
    return Watched()


@pytest.mark.slow
def test_a_reader_that_writers_shut_out_is_found(
    cluster_at: Callable[[str], Place], forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(READERS, "shut out", shut_out)
    monkeypatch.setattr(contention, "ANSWER_SECONDS", 0.5)
    found = run(Load(forks, cluster_at("sqlite"), tmp_path, writers=2, seconds=0.0, readers=("shut out",)))
    assert found.wrong == ["shut out: not 3 answers within 0.5 s while others wrote"]


def test_a_row_is_missed_only_after_its_decision() -> None:
    """A read may lack commit 5 if it began before commit 5 returned. A read may lack commit 7 if it began before commit 6 returned,
    because commit 7 is not readable before commit 6 is decided.
    """
    commits = [Commit(5, 100.0, 110.0), Commit(7, 150.0, 160.0), Commit(6, 120.0, 400.0)]
    assert missed(commits, [Answer(110.0, 500.0, 4), Answer(400.0, 500.0, 5), Answer(401.0, 500.0, 7)]) == []
    assert missed(commits, [Answer(111.0, 111.0, 4)]) == ["an answer asked for at 111 reached 4, 5 was readable before"]
    assert missed(commits, [Answer(401.0, 500.0, 6)]) == ["an answer asked for at 401 reached 6, 7 was readable before"]


def test_the_lag_of_a_reader_starts_at_the_decision() -> None:
    """Commit 7 is not readable before commit 6, which is decided late. `Lag.age` includes the time until that decision,
    `Lag.behind` does not.
    """
    commits = [Commit(5, 100.0, 110.0), Commit(7, 150.0, 160.0), Commit(6, 120.0, 400.0)]
    assert lag(commits, [Answer(90.0, 90.0, 4), Answer(200.0, 200.0, 5)]) == Lag(behind=90.0, age=100.0)
    assert lag(commits, [Answer(200.0, 200.0, 5), Answer(390.0, 390.0, 5), Answer(500.0, 500.0, 7)]) == Lag(behind=100.0, age=380.0)
    assert lag(commits, [Answer(200.0, 200.0, 7), Answer(500.0, 500.0, 7)]) == Lag(behind=0.0, age=0.0)
