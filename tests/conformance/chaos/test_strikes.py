"""Children that are struck, and parties that are waited for: what ended by itself, or never worked, is found out."""

from __future__ import annotations

import math
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conformance.chaos import carrying_on, spark_migration
from conformance.chaos.carrying_on import Scene, read_notes
from conformance.chaos.forks import Child, Died, Forks, Struck, strike
from conformance.processes import Session

ALWAYS, NEVER = 1.0, 0.0


def ended(child: Child) -> Child:
    assert child.ended(60)
    return child


@pytest.mark.parametrize(("kill", "does"), [(ALWAYS, Struck.KILLED), (NEVER, Struck.STOPPED)])
def test_who_runs_is_killed_and_begun_again_or_stopped_for_a_while(kill: float, does: Struck, forks: Forks) -> None:
    running = {"a": forks.start(time.sleep, 60)}
    first = running["a"]
    try:
        assert strike("a", {"a": lambda: forks.start(time.sleep, 60)}, running, random.Random(1), kill=kill, longest=0.1) is does
        assert (running["a"] is first) is (does is Struck.STOPPED)
        assert not running["a"].ended(0)
    finally:
        running["a"].stop()


@pytest.mark.parametrize("kill", [ALWAYS, NEVER])
def test_who_has_ended_is_missed_and_what_it_raised_is_told(kill: float, forks: Forks) -> None:
    running = {"a": ended(forks.start(math.sqrt, 4))}
    assert strike("a", {"a": lambda: forks.start(math.sqrt, 9)}, running, random.Random(1), kill=kill) is Struck.MISSED
    assert running["a"].result() == 3
    running = {"a": ended(forks.start(math.sqrt, -1))}
    with pytest.raises(Died, match="ValueError"):
        strike("a", {}, running, random.Random(1), kill=kill)


def test_work_is_waited_for_and_its_lack_is_told(forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene("memory://nobody", tmp_path / "scene")
    scene.begin()
    notes = scene.notes("writer")
    notes.add(again=0)
    with pytest.raises(Died, match=r"writer, reader are waited for\): 2\.0"):
        scene.wait_for_work(["writer", "reader"], [ended(forks.start(math.sqrt, 4))])
    monkeypatch.setattr(carrying_on, "WORK_SECONDS", 0.0)
    notes.add(version=0)
    with pytest.raises(Died, match=r"writer noted less than 2 pieces of work in 0 s\."):
        scene.wait_for_work(["writer"], [], more=2)


@dataclass(frozen=True)
class LookedAt(Scene):
    """A scene that tells how often somebody has counted what was done."""

    looks: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def done(self, who: str) -> int:
        count = super().done(who)
        self.looks.release()
        return count


def test_work_is_waited_for_until_so_much_is_noted_after_the_call(tmp_path: Path) -> None:
    """What was noted before it does not count, nor what is no work; it returns with the last piece that it wants."""
    scene = LookedAt("memory://nobody", tmp_path / "scene")
    scene.begin()
    notes = scene.notes("writer")
    notes.add(version=0)

    def work() -> None:
        """A note after each look, the first of which is how much was there when the call began."""
        for noted in ({"again": 1}, {"version": 1}, {"again": 2}, {"version": 2}):
            assert scene.looks.acquire(timeout=60)
            notes.add(**noted)

    writer = threading.Thread(target=work, daemon=True)
    writer.start()
    scene.wait_for_work(["writer"], [], more=2)
    assert scene.done("writer") == 3
    writer.join()


@pytest.mark.parametrize(
    ("command", "seconds", "says"), [("echo gone; exit 3", 60.0, "before it ended with 3"), ("sleep 60", 0.0, "0 s")]
)
def test_a_job_that_writes_nothing_is_told(
    command: str, seconds: float, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark").mkdir()
    seen = tmp_path / "spark" / "seen"
    seen.write_text('{"rows": []}\n{"rows": [["half')
    monkeypatch.setattr(spark_migration, "START_SECONDS", seconds)
    job = Session(["sh", "-c", command], tmp_path / "job.log")
    try:
        with pytest.raises(Died, match=f"wrote no rows .*{says}"):
            spark_migration.wait_for_rows(tmp_path, job)
        seen.write_text('{"rows": [["key"]]}\n')
        spark_migration.wait_for_rows(tmp_path, job)
    finally:
        job.kill()


def test_half_a_line_is_not_read_and_whoever_goes_on_drops_it(tmp_path: Path) -> None:
    file = tmp_path / "writer.jsonl"
    assert read_notes(file) == []
    file.write_text('{"version": 0}\n{"vers')
    assert read_notes(file) == [{"version": 0}]
    assert file.read_text().endswith('{"vers'), "who reads writes nothing"
    notes = carrying_on.Notes(file)
    notes.add(version=1)
    assert (notes.before, read_notes(file)) == ([{"version": 0}], [{"version": 0}, {"version": 1}])
