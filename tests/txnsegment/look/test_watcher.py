"""The watcher leaves a cluster its time, shows an error in place of old figures, and recovers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from metadata.common.errors import Unavailable
from tests.txnsegment.look.test_look_reading import commit, make
from txnsegment import Cluster
from txnsegment.look import watcher as module
from txnsegment.look.reading import Looker, open_to_look
from txnsegment.look.series import exposition
from txnsegment.look.watcher import LOOK_EVERY, SHARE, Pace, Watcher


class ManualClock:
    """A clock whose time passes only when a test says so."""

    def __init__(self) -> None:
        self.at = 0.0

    def now_ms(self) -> int:
        return round(self.at * 1000)

    def monotonic(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds


def watched(cluster: Cluster, clock: ManualClock) -> Watcher:
    return Watcher(lambda: Looker(open_to_look(cluster.url)), clock=clock)


def test_looks_take_at_most_a_twentieth_of_the_time() -> None:
    clock = ManualClock()
    pace = Pace(LOOK_EVERY, clock)
    assert pace.is_due()
    clock.at = 0.01
    pace.done(0.0)
    assert pace.due_s == LOOK_EVERY
    clock.at = 3.0
    pace.done(1.0)
    assert pace.due_s == 3.0 + SHARE * 2.0
    clock.at = 20.0
    pace.failed()  # after the time limit of a store that did not answer
    assert pace.due_s == 20.0 + LOOK_EVERY


def test_commits_and_rows_are_counted_once(cluster: Cluster) -> None:
    make(cluster)
    commit(cluster)
    clock = ManualClock()
    watcher = watched(cluster, clock)
    watcher.tick()
    assert (watcher.board.committed, len(watcher.board.ended)) == (0, 1)  # it ended before the watcher began
    for _ in range(3):
        commit(cluster)
        clock.at += 10
        watcher.tick()
    clock.at += 10
    watcher.tick()
    assert (watcher.board.committed, watcher.board.aborted) == (3, 0)
    seconds = [(b.at_ms - a.at_ms) / 1000 for a, b in zip(watcher.board.samples, watcher.board.samples[1:], strict=False)]
    rates = [s.rows or 0.0 for s in watcher.board.samples[1:]]
    assert sum(s * r for s, r in zip(seconds, rates, strict=True)) == pytest.approx(12)
    watcher.close()


def test_more_commits_than_are_kept_are_counted_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_ENDED", 3)
    make(cluster)
    clock = ManualClock()
    watcher = watched(cluster, clock)
    watcher.tick()
    for _ in range(3):
        for _ in range(8):
            commit(cluster)
        clock.at += 10
        watcher.tick()
    assert (watcher.board.committed, len(watcher.board.ended)) == (24, 3)
    watcher.close()


def test_nothing_is_read_before_it_is_due(cluster: Cluster) -> None:
    clock = ManualClock()
    watcher = watched(cluster, clock)
    watcher.tick()
    first = watcher.board
    clock.at += LOOK_EVERY / 2
    watcher.tick()
    assert watcher.board is first
    clock.at += LOOK_EVERY
    watcher.tick()
    assert watcher.board is not first
    watcher.close()


def failing(looker: Looker, errors: list[Exception]) -> Looker:
    look: Callable[..., Any] = looker.look

    def fails(asked: Any = ()) -> Any:
        if errors:
            raise errors.pop()
        return look(asked)

    looker.look = fails  # type: ignore[method-assign]
    return looker


def test_an_error_is_shown_with_its_advice_until_the_cluster_answers_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, opened = ManualClock(), list[str]()
    errors: list[Exception] = []

    def opens() -> Looker:
        opened.append("again")
        return failing(Looker(open_to_look(cluster.url)), errors)

    make(cluster)
    watcher = Watcher(opens, clock=clock)
    watcher.tick()
    commit(cluster)
    clock.at += LOOK_EVERY
    watcher.tick()
    assert (watcher.board.trouble, watcher.board.committed) == (None, 1)
    clock.at = 10.0
    errors += [Unavailable("No server answers.", advice="Start one.")] * 4
    with caplog.at_level(logging.WARNING, "txnsegment.look"):
        for _ in range(4):
            watcher.tick()
            trouble = watcher.board.trouble
            assert trouble is not None
            assert (trouble.message, trouble.advice, trouble.since_s) == ("No server answers.", "Start one.", 10.0)
            assert b"txnsegment_cluster_up 0.0" in exposition(lambda: watcher.board, clock.monotonic)
            clock.at += LOOK_EVERY
    assert len(caplog.records) == 1  # one line for one trouble
    commit(cluster)
    watcher.tick()
    assert watcher.board.trouble is None
    assert watcher.board.seen is not None
    assert len(opened) == 2  # it was opened again after three failures
    assert watcher.board.samples[-1].rows is None
    assert watcher.board.committed == 2  # also the commit meanwhile, and no earlier one again
    watcher.close()


def test_a_fault_of_the_program_is_shown_and_logged_and_looks_go_on(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    clock, errors = ManualClock(), list[Exception]([ZeroDivisionError("a fault")])
    watcher = Watcher(lambda: failing(Looker(open_to_look(cluster.url)), errors), clock=clock)
    watcher.tick()
    assert watcher.board.trouble is not None
    assert watcher.board.trouble.message == "ZeroDivisionError: a fault"
    assert any(record.exc_info for record in caplog.records)
    clock.at += LOOK_EVERY
    watcher.tick()
    assert watcher.board.trouble is None
    watcher.close()


def test_only_the_last_topics_that_were_asked_for_are_remembered(cluster: Cluster) -> None:
    watcher = watched(cluster, ManualClock())
    for number in range(module.ASKED + 5):
        watcher.ask(f"t{number}")
    watcher.ask("t7")
    watcher.ask("new")
    assert len(watcher._asked) == module.ASKED
    assert list(watcher._asked)[-2:] == ["t7", "new"]
    watcher.close()


def test_the_thread_looks_and_ends(cluster: Cluster) -> None:
    make(cluster)
    with cluster.begin() as txn:
        txn.append("t", pa.table({"k": ["a"], "n": [1]}))
        txn.commit()
    watcher = Watcher(lambda: Looker(open_to_look(cluster.url)))
    watcher.start()
    while watcher.board.seen is None:
        assert watcher.board.trouble is None, watcher.board.trouble
        watcher._stop.wait(0.01)
    thread = watcher._thread
    watcher.close()
    assert thread is not None
    assert not thread.is_alive()
    assert watcher.board.seen.size.rows == 1
