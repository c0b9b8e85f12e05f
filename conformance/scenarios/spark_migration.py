"""A real Spark job writes to a persistent topic and a real Spark query reads it while `txnsegment topics migrate` runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from conformance.harness.spark_start import spark_environment
from conformance.history.format import Event, Plan, Poll, Successor
from conformance.processes import Session
from conformance.scenarios.driver import Place, make, planned
from conformance.scenarios.files import add_batches
from conformance.scenarios.following import follow, polls
from conformance.scenarios.forks import Died, Forks
from conformance.scenarios.history import ROWS, commit, committed, judged
from conformance.scenarios.scenario import Scenario
from conformance.scenarios.sessions import launched
from metadata.records.names import is_persistent
from txnsegment.cli.app import build

BATCHES, MORE = 40, 10
"""BATCHES: how many batches the first run of the job writes. MORE: how many the second run writes, after the migration."""
JOBS_STOP = "stop-jobs"
START_SECONDS, RUN_SECONDS = 180.0, 600.0
LOOK_SECONDS = 0.05


class SparkMigration(Scenario):
    """The persistent topic `place.topic` migrates while a Spark job writes to it and a Spark query reads it. Its successor is the
    topic:// of the same name. After the migration, the job is run again and writes more batches.

    `after`: how many batches of the first run of the job went to the successor.
    """

    name = "migration through Spark"

    def __init__(self, forks: Forks, place: Place, folder: Path) -> None:
        self._forks, self._place, self._folder = forks, place, folder
        self._running: list[Session] = []
        self._wrong: list[str] = []
        self.micro_batches = self.after = self.took_ms = 0

    def setup(self) -> None:
        self._forks.call(make, self._place)
        self._forks.call(planned, self._place)
        add_batches(self._folder / "input", 0, BATCHES)

    def start(self) -> None:
        self._reading = follow(self._place, self._folder, self._folder / "stop")
        self._running.append(self._reading)
        self._job = self._start_job()
        wait_for_rows(self._folder, self._place.topic, self._job)

    def faults(self) -> None:
        """Migrate the topic by the command `txnsegment topics migrate`. There is no real fault in this scenario."""
        place, began = self._place, time.monotonic()
        words = ["--service-url", place.url, "topics", "migrate", place.topic, "--to", successor(place.topic), "--wait", "120"]
        code, said = self._forks.start(command, words).result(RUN_SECONDS)
        self.took_ms = round(1000 * (time.monotonic() - began))
        self._wrong += [] if code == 0 else [f"topics migrate ended with {code}: {said}"]
        self._end_job()

    def check(self) -> list[str]:
        add_batches(self._folder / "input", BATCHES, MORE)
        self._job = self._start_job()
        self._end_job()
        (self._folder / "stop").touch()
        code = self._reading.wait(RUN_SECONDS)
        self._wrong += [] if code == 0 else [f"the reading query ended with {code}: {self._reading.tail()}"]
        found = polls(self._folder / "spark" / "seen", self._place.topic)
        self.micro_batches = len(found)
        _, self.after = sides(found)
        return [*self._wrong, *judge(found, self._place.topic)]

    def figures(self) -> str:
        return (
            f"{BATCHES + MORE} batches, {self.after} of {BATCHES} of the running job after the migration ({self.took_ms} ms), "
            f"read in {self.micro_batches} micro-batches"
        )

    def close(self) -> None:
        for session in self._running:
            session.kill()

    def _start_job(self) -> Session:
        folder = self._folder
        marks = folder / "marks"
        marks.mkdir(exist_ok=True)
        given: dict[str, object] = {"url": self._place.url, "topic": self._place.topic, "input": folder / "input", "marks": marks}
        given |= {"checkpoint": folder / "checkpoint", "stop": folder / JOBS_STOP}
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        job = launched("conformance.scenarios.job", words, folder / f"job-{len(self._running)}.log", spark_environment(warm=True))
        self._running.append(job)
        return job

    def _end_job(self) -> None:
        """Wait until the job has written all of its input and ended."""
        (self._folder / JOBS_STOP).touch()
        code = self._job.wait(RUN_SECONDS)
        self._job.kill()
        self._wrong += [] if code == 0 else [f"a job ended with {code}: {self._job.tail()}"]


def command(words: Sequence[str]) -> tuple[int, str]:
    """Run `txnsegment WORDS` in this process, since a new Python process would need seconds for its imports. Return the exit code
    and the output.
    """
    done = CliRunner().invoke(build(), list(words))
    return done.exit_code, done.output


def wait_for_rows(folder: Path, topic: str, job: Session) -> None:
    """Wait until the reading query has recorded rows of the job. Raises Died if none come, or if the job ends first."""
    seen = folder / "spark" / "seen"
    until = time.monotonic() + START_SECONDS
    while not any(poll.rows for poll in polls(seen, topic)):
        code = job.wait(LOOK_SECONDS)
        if code is not None or time.monotonic() > until:
            ended = f"within {START_SECONDS:g} s" if code is None else f"before it ended with {code}"
            raise Died(f"The job wrote no rows {ended}: {job.tail()}")


def judge(found: Sequence[Poll], topic: str) -> list[str]:
    """Judge the micro-batches of the query with the history checker. The query must have read all rows of all batches. Also, the
    first run of the job must have written batches both before and after the migration. Return what is wrong.
    """
    jobs: list[Event] = []
    for batch, at in enumerate(range(-BATCHES - MORE, 0)):
        jobs += [commit(at, batch, topic), committed(at + 0.5, batch)]
    top = max((row.position[0] for poll in found for row in poll.rows if not is_persistent(row.segment)), default=0)
    ended = max((poll.at for poll in found), default=0)
    said: list[Event] = [Successor(0, topic, successor(topic)), Plan(ended + 2, ended + 1, "spark", (topic,), top, top)]
    wrong, (before, after) = judged([jobs, said, found]), sides(found)
    if not before or not after:
        wrong.append(f"the topic did not migrate while the job ran: {before} batches before, {after} after")
    return wrong


def sides(found: Sequence[Poll]) -> tuple[int, int]:
    """Return two counts of batches that the query read. First, the batches without rows in the successor. Second, the batches of
    the job's first run with rows in the successor.
    """
    rows = [row for poll in found for row in poll.rows]
    after = {int(row.id) // ROWS for row in rows if not is_persistent(row.segment)}
    return len({int(row.id) // ROWS for row in rows} - after), len(after & set(range(BATCHES)))


def successor(topic: str) -> str:
    """Return the name of a persistent topic's successor."""
    return topic.replace("persistent://", "topic://")
