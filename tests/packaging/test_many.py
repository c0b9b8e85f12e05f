"""The benchmarks `many` and `logs`: what they measure is checked, and the model of several logs keeps its bounds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.many.logs import AFTER, BEFORE, COSTS, DECIDE, OPEN, POLL, REGISTER, Case, simulated
from benchmarks.many.measuring import Cell, delays, measure, table
from benchmarks.many.parties import ROWS, Commit, Saw


@pytest.mark.parametrize("cell", [Cell(2, 2), Cell(2, 2, shared=True)], ids=str)
def test_writers_and_readers_together(tmp_path: Path, cell: Cell) -> None:
    found = measure(cell, [], f"file://{tmp_path}/cluster", tmp_path / "home", seconds=1.0)
    assert found.wrong() == []
    assert found.commits > 2
    assert 0 < found.fairness <= 1
    assert all(0 <= delay < 60_000 for lags in found.lags_ms() for delay in lags)
    rows = [sum(map(len, one.ids.values())) for one in found.saw]
    each = [ROWS * len(one.commits) for one in found.wrote]
    assert rows == ([sum(each)] * 2 if cell.shared else each)
    assert table([found]).row_count == 1


def test_a_reader_that_misses_or_doubles_a_row_is_found() -> None:
    seen = Saw("t")
    seen.ids[0] += [0, 1, 2, 3]
    assert seen.wrong({0: 4}) == []
    assert seen.wrong({0: 8}) == ["4 rows, 4 of them different, of 8 rows of writer 0"]
    assert seen.wrong({0: 4, 1: 4}) == ["0 rows, 0 of them different, of 4 rows of writer 1"]
    seen.ids[0].append(3)
    assert seen.wrong({0: 4}) == ["5 rows, 4 of them different, of 4 rows of writer 0"]


def test_the_delay_of_a_commit_is_that_of_the_first_micro_batch_that_has_it() -> None:
    commits = [Commit(number, 0.01, at) for number, at in ((3, 1.0), (5, 2.0), (6, 2.5), (9, 4.0))]
    assert delays(commits, [(4, 1.5), (6, 2.25), (8, 9.0)]) == [500.0, 250.0, 0.0], "the last commit was not seen"


QUIET = Case(logs=1, crossing=0.0, writers=1, readers=0)
STEPS = (*BEFORE, *OPEN, *REGISTER, *DECIDE)
SERVICE = sum(changes * COSTS.change + requests * COSTS.request for changes, requests in (*STEPS, AFTER))


def test_a_lone_writer_waits_for_each_step_of_its_commit() -> None:
    costs = replace(COSTS, flush=0.0)
    least = sum(
        costs.network + changes * costs.change + requests * costs.request for changes, requests in (*OPEN, *REGISTER, *DECIDE)
    )
    _, p99 = simulated(QUIET, costs)
    assert p99 == pytest.approx(least)


def test_a_log_makes_no_more_commits_than_its_processor_serves() -> None:
    rate, _ = simulated(replace(QUIET, writers=64), seconds=10)
    assert 0.9 * 1000 / SERVICE < rate <= 1.01 * 1000 / SERVICE
    polls = 64 * 10.0 * (POLL[0] * COSTS.change + POLL[1] * COSTS.request) / 1000
    rate, _ = simulated(replace(QUIET, writers=64, readers=64), seconds=10)
    assert 0.9 * (1 - polls) * 1000 / SERVICE < rate <= 1.01 * (1 - polls) * 1000 / SERVICE


def test_more_logs_make_more_commits_and_crossing_transactions_cost_both() -> None:
    case = Case(logs=4, crossing=0.0, writers=256)
    rates = [simulated(replace(case, crossing=share), seconds=2)[0] for share in (0.0, 0.5, 1.0)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 3 * simulated(replace(case, logs=1), seconds=2)[0]
    assert simulated(case, seconds=2, seed=3) == simulated(case, seconds=2, seed=3), "a seed decides all"
