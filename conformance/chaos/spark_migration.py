"""A real Spark job writes to a persistent topic and a real Spark query reads it while `txnsegment topics migrate` runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

from conformance.chaos.contention import follow, polls
from conformance.chaos.driver import Place, make, planned
from conformance.chaos.files import add_batches
from conformance.chaos.forks import Died, Forks
from conformance.chaos.history import ROWS, commit, committed, judged
from conformance.chaos.sessions import launched
from conformance.harness.spark_start import spark_environment
from conformance.history.format import Event, Plan, Successor
from conformance.processes import Session
from metadata.records.names import is_persistent
from txnsegment.cli.app import build

BATCHES, MORE = 40, 10
"""Of the job that runs while the topic migrates, and of the next one on its checkpoint."""
JOBS_STOP = "stop-jobs"
START_SECONDS, RUN_SECONDS = 180.0, 600.0
LOOK_SECONDS = 0.05


@dataclass
class Report:
    """What came of it. `after`: batches of the first job that went into the topic that goes on."""

    batches: int = 0
    micro_batches: int = 0
    after: int = 0
    took_ms: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.batches} batches, {self.after} of {BATCHES} of the running job after the migration ({self.took_ms} ms), "
            f"read in {self.micro_batches} micro-batches"
        )


def spark_migration(forks: Forks, place: Place, folder: Path) -> Report:
    """Run it. `place.topic` is persistent://; it goes on under the same name as a topic://."""
    report, stop = Report(), folder / "stop"
    forks.call(make, place)
    forks.call(planned, place)
    add_batches(folder / "input", 0, BATCHES)
    reading = follow(place, folder, stop)
    jobs: list[Session] = []
    try:
        jobs.append(_job(place, folder))
        wait_for_rows(folder, place.topic, jobs[0])
        to = successor(place.topic)
        began = time.monotonic()
        code, said = forks.start(
            command, ["--service-url", place.url, "topics", "migrate", place.topic, "--to", to, "--wait", "120"]
        ).result(RUN_SECONDS)
        report.took_ms = round(1000 * (time.monotonic() - began))
        if code != 0:
            report.wrong.append(f"topics migrate ended with {code}: {said}")
        _end(jobs[0], folder, report)
        add_batches(folder / "input", BATCHES, MORE)
        jobs.append(_job(place, folder))
        _end(jobs[1], folder, report)
        stop.touch()
        code = reading.wait(RUN_SECONDS)
        if code != 0:
            report.wrong.append(f"the reading query ended with {code}: {reading.tail()}")
    finally:
        for session in (*jobs, reading):
            session.kill()
    judge(folder, place.topic, report)
    return report


def command(words: Sequence[str]) -> tuple[int, str]:
    """`txnsegment WORDS`, without the seconds that a new Python takes to import it: exit code and output."""
    done = CliRunner().invoke(build(), list(words))
    return done.exit_code, done.output


def _job(place: Place, folder: Path) -> Session:
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    given = {"url": place.url, "topic": place.topic, "input": folder / "input", "checkpoint": folder / "checkpoint", "marks": marks}
    given["stop"] = folder / JOBS_STOP
    words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    output = folder / f"job-{len(list(folder.glob('job-*')))}.log"
    return launched("conformance.chaos.job", words, output, spark_environment())


def wait_for_rows(folder: Path, topic: str, job: Session) -> None:
    """Until the reader has a micro-batch of the job's. Raises Died if none comes, or if the job ends before."""
    seen = folder / "spark" / "seen"
    until = time.monotonic() + START_SECONDS
    while not any(poll.rows for poll in polls(seen, topic)):
        code = job.wait(LOOK_SECONDS)
        if code is not None or time.monotonic() > until:
            ended = f"within {START_SECONDS:g} s" if code is None else f"before it ended with {code}"
            raise Died(f"The job wrote no rows {ended}: {job.tail()}")


def _end(job: Session, folder: Path, report: Report) -> None:
    """Once it has written all its input."""
    (folder / JOBS_STOP).touch()
    code = job.wait(RUN_SECONDS)
    job.kill()
    if code != 0:
        report.wrong.append(f"a job ended with {code}: {job.tail()}")


def judge(folder: Path, topic: str, report: Report) -> None:
    """The history checker judges what the query got of all batches; the job was under way when the topic migrated."""
    found = polls(folder / "spark" / "seen", topic)
    rows = [row for poll in found for row in poll.rows]
    after = [row for row in rows if not is_persistent(row.segment)]
    report.batches, report.micro_batches = BATCHES + MORE, len(found)
    jobs: list[Event] = []
    for batch, at in enumerate(range(-report.batches, 0)):
        jobs += [commit(at, batch, topic), committed(at + 0.5, batch)]
    ended, top = max((poll.at for poll in found), default=0), max((row.position[0] for row in after), default=0)
    said: list[Event] = [Successor(0, topic, successor(topic)), Plan(ended + 2, ended + 1, "spark", (topic,), top, top)]
    report.wrong += judged([jobs, said, found])
    batches = {int(row.id) // ROWS for row in after}
    before = {int(row.id) // ROWS for row in rows} - batches
    report.after = len(batches & set(range(BATCHES)))
    if not before or not report.after:
        report.wrong.append(f"the topic did not migrate while the job ran: {len(before)} batches before, {report.after} after")


def successor(topic: str) -> str:
    """The name that a persistent topic goes on by here."""
    return topic.replace("persistent://", "topic://")
