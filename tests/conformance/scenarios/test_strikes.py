"""Tests of faults on child processes, and of waits for their work. A child that ended by itself or never worked is reported."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conformance.history.files import Resumed
from conformance.history.format import Commit, Plan, Poll, Read, Start, Told
from conformance.processes import Session
from conformance.scenarios import migration_workload, spark_migration
from conformance.scenarios.forks import Child, Died, Forks, Struck, strike
from conformance.scenarios.history import now
from conformance.scenarios.migration_workload import Scene

ALWAYS, NEVER = 1.0, 0.0
TOPIC = "persistent://public/default/chaos"


def ended(child: Child) -> Child:
    assert child.ended(60)
    return child


@pytest.mark.parametrize(("kill", "does"), [(ALWAYS, Struck.KILLED), (NEVER, Struck.STOPPED)])
def test_a_running_job_is_killed_and_restarted_or_suspended(kill: float, does: Struck, forks: Forks) -> None:
    running = {"a": forks.start(time.sleep, 60)}
    first = running["a"]
    try:
        assert strike("a", {"a": lambda: forks.start(time.sleep, 60)}, running, random.Random(1), kill=kill, longest=0.1) is does
        assert (running["a"] is first) is (does is Struck.STOPPED)
        assert not running["a"].ended(0)
    finally:
        running["a"].stop()


@pytest.mark.parametrize("kill", [ALWAYS, NEVER])
def test_an_ended_job_is_missed_and_its_error_reported(kill: float, forks: Forks) -> None:
    running = {"a": ended(forks.start(math.sqrt, 4))}
    assert strike("a", {"a": lambda: forks.start(math.sqrt, 9)}, running, random.Random(1), kill=kill) is Struck.MISSED
    assert running["a"].result() == 3
    running = {"a": ended(forks.start(math.sqrt, -1))}
    with pytest.raises(Died, match="ValueError"):
        strike("a", {}, running, random.Random(1), kill=kill)


def test_missing_work_is_reported_after_a_wait(forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("memory://nobody", tmp_path / "scene")
    scene.begin()
    history = scene.history("writer")
    history.add(Told(now(), "writer-0", "unknown"))
    with pytest.raises(Died, match=r"writer, reader are waited for\): 2\.0"):
        scene.wait_for_work(["writer", "reader"], [ended(forks.start(math.sqrt, 4))])
    monkeypatch.setattr(migration_workload, "WORK_SECONDS", 0.0)
    history.add(Told(now(), "writer-0", "committed"))
    with pytest.raises(Died, match=r"writer recorded less than 2 pieces of work in 0 s\."):
        scene.wait_for_work(["writer"], [], more=2)


@dataclass(frozen=True)
class LookedAt(Scene):
    """A scene that releases the semaphore `looks` each time that it counts work."""

    looks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def done(self, who: str) -> int:
        count = super().done(who)
        self.looks.release()
        return count


def test_a_wait_counts_work_noted_after_the_call(tmp_path: Path) -> None:
    """A wait counts only commits that are recorded after the call began, and no other events. It returns when the last commit that
    it waits for is recorded.
    """
    scene = LookedAt("memory://nobody", tmp_path / "scene")
    scene.begin()
    history = scene.history("writer")
    history.add(Told(now(), "writer-0", "committed"))

    def work() -> None:
        """Add an event each time that the wait has counted the commits. The wait counts them for the first time when it begins."""
        for said in ("unknown", "committed", "unknown", "committed"):
            assert scene.looks.acquire(timeout=60)
            history.add(Told(now(), "writer-1", said))

    writer = threading.Thread(target=work, daemon=True)
    writer.start()
    scene.wait_for_work(["writer"], [], more=2)
    assert scene.done("writer") == 3
    writer.join()


@pytest.mark.parametrize(
    ("command", "seconds", "says"), [("echo gone; exit 3", 60.0, "before it ended with 3"), ("sleep 60", 0.0, "0 s")]
)
def test_a_job_without_writes_is_reported(
    command: str, seconds: float, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark").mkdir()
    seen = tmp_path / "spark" / "seen"
    seen.write_text('{"at_ms": 1, "batch": 0, "rows": []}\n{"rows": [["half')
    monkeypatch.setattr(spark_migration, "START_SECONDS", seconds)
    job = Session(["sh", "-c", command], tmp_path / "job.log")
    try:
        with pytest.raises(Died, match=f"wrote no rows .*{says}"):
            spark_migration.wait_for_rows(tmp_path, TOPIC, job)
        row = ["key", 0, 0, 1, TOPIC, "1:0:0", None]
        seen.write_text(json.dumps({"at_ms": 1, "batch": 0, "rows": [row]}) + "\n")
        spark_migration.wait_for_rows(tmp_path, TOPIC, job)
    finally:
        job.kill()


def test_a_partial_line_counts_as_no_work_and_is_dropped_by_the_next_writer(tmp_path: Path) -> None:
    scene = Scene("memory://nobody", tmp_path)
    file, told = tmp_path / "writer.jsonl", Told(1, "writer-0", "committed")
    assert scene.done("writer") == 0
    with scene.history("writer") as history:
        history.add(told)
    with file.open("a") as half:
        half.write('{"event":"told","said":"committed"')
    assert scene.done("writer") == 1
    assert file.read_text().endswith('"committed"'), "a reader does not change the file"
    with Resumed(file, Start(9, "writer")) as again:
        assert again.before[1:] == [told]  # type: ignore[attr-defined]
        again.add(told)
    assert scene.done("writer") == 2


def test_commits_deliveries_and_reads_count_as_work(tmp_path: Path) -> None:
    scene = Scene("memory://nobody", tmp_path)
    with scene.history("anybody") as history:
        history.add(Commit(1, "c", "anybody", "app", "", 0, ()))
        history.add(Told(2, "c", "failed"))
        history.add(Plan(3, 2, "anybody", (), 0, 0))
        assert scene.done("anybody") == 0
        history.add(Poll(4, 3, "anybody", 0, (), ()))
        history.add(Read(5, 4, "anybody", (), ()))
        assert scene.done("anybody") == 2
