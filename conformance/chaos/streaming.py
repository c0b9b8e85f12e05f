"""A streaming job that is killed, put to sleep and doubled, while readers look on; then every row is counted."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from conformance.chaos.driver import Place, end, make, planned
from conformance.chaos.files import add_batches
from conformance.chaos.forks import Child, Forks
from conformance.chaos.history import Observation, commit, committed, judged, now
from conformance.chaos.reading import Following, read_all
from conformance.chaos.sessions import SPARK_ENVIRONMENT, launched
from conformance.history.format import Event
from conformance.processes import Session
from metadata.cluster_records import Settings
from metadata.names import any_topic_name

START_SECONDS = 180.0
RUN_SECONDS = 600.0


@dataclass
class Observed:
    """What the readers beside the job saw."""

    reads: int = 0
    micro_batches: int = 0
    events: list[Event] = field(default_factory=list)


def observe(place: Place, stop: Path) -> Observed:
    """Batch reads and one streaming read, one after the other for as long as `stop` does not exist, and once more after that."""
    seen, noted = Observed(), Observation(str(any_topic_name(place.topic)))
    following = Following(place.url, place.topic)
    last = False
    while not last:
        last = stop.exists()
        began = now()
        noted.read(began, read_all(place.url, place.topic), final=last)
        seen.reads += 1
        began, start = now(), following.log
        rows = following.next()
        noted.poll(began, start, following.log, rows)
        seen.micro_batches += bool(rows)
        time.sleep(0.0 if last else 0.1)  # leave the cores to the job
    seen.events = noted.events
    return seen


@dataclass
class Report:
    """What came of it all. `kills`: sessions that were running when they were killed; `wrong`: empty if all is well."""

    kills: int = 0
    batches: int = 0
    observed: Observed = field(default_factory=Observed)
    wrong: list[str] = field(default_factory=list)


class StreamingJob:
    """One topic, one checkpoint, and the drivers that are started on it."""

    def __init__(self, forks: Forks, place: Place, folder: Path) -> None:
        self._forks, self._place, self._folder = forks, place, folder
        self._input, self._checkpoint, self._marks = folder / "input", folder / "checkpoint", folder / "marks"
        self._marks.mkdir(parents=True)
        self._launched: list[Session] = []
        self._events: list[Event] = []
        self.batches = 0
        self.report = Report()
        forks.call(make, place, Settings())
        forks.call(prepare, place)
        self._stop = folder / "stop"
        self._observer: Child = forks.start(observe, place, self._stop)

    def feed(self, count: int) -> None:
        """More input, which somebody may commit from now on."""
        topic = str(any_topic_name(self._place.topic))
        self._events += [commit(now(), batch, topic) for batch in range(self.batches, self.batches + count)]
        add_batches(self._input, self.batches, count)
        self.batches += count

    def start(self) -> Session:
        """A driver on the checkpoint. Returned at once, before its query runs."""
        given = {"url": self._place.url, "topic": self._place.topic, "input": self._input, "checkpoint": self._checkpoint}
        arguments = [word for name, value in {**given, "marks": self._marks}.items() for word in (f"--{name}", str(value))]
        output = self._folder / f"driver-{len(self._launched)}.log"
        driver = launched("conformance.chaos.job", arguments, output, SPARK_ENVIRONMENT)
        self._launched.append(driver)
        return driver

    def runs(self, driver: Session) -> bool:
        """Wait until the query of a driver runs; False if the driver ended before."""
        return driver.wait_for(self._marks / str(driver.pid), START_SECONDS)

    def kill_at(self, driver: Session, seconds: float, *, starting: bool) -> bool:
        """SIGKILL to all of a driver's processes so many seconds after its start, or after its query runs; False if it had ended
        before that."""
        if not starting and not self.runs(driver):
            return False
        ended = driver.wait(seconds) is not None
        driver.kill()
        self.report.kills += not ended
        return not ended

    def finish(self) -> None:
        """A driver that nobody disturbs writes what is left."""
        driver = self.start()
        code = driver.wait(RUN_SECONDS)
        driver.kill()
        if code == 0:
            self._events += [committed(now(), batch) for batch in range(self.batches)]
        else:
            self.report.wrong.append(f"the last driver ended with {code}: {driver.tail()}")

    def check(self) -> Report:
        """End the readers; the history checker judges what they saw (the history is left in the job's folder)."""
        self._stop.touch()
        self.report.observed = self._observer.result(RUN_SECONDS)
        self.report.batches = self.batches
        self.report.wrong += judged([self._events, self.report.observed.events], self._folder / "history.jsonl")
        self.report.wrong += self._forks.call(end, self._place, self.batches)
        return self.report

    def close(self) -> None:
        """End everything that was started."""
        self._stop.touch()
        for driver in self._launched:
            driver.kill()
        self._observer.stop()

    def __enter__(self) -> StreamingJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def prepare(place: Place) -> None:
    """Make the topic, so that readers can begin."""
    planned(place)


def random_kills(job: StreamingJob, kills: int, rng: random.Random, say: Callable[[str], None]) -> Report:
    """Kill the driver so many times: one in six while it starts, the others up to six seconds after its query runs."""
    while job.report.kills < kills:
        job.feed(10)
        starting = rng.random() < 1 / 6
        seconds = rng.uniform(0, 10 if starting else 6)
        driver = job.start()
        hit = job.kill_at(driver, seconds, starting=starting)
        say(
            f"kill {job.report.kills} of {kills}: {seconds:.2f} s after {'its start' if starting else 'its query ran'}"
            if hit
            else "done"
        )
    job.finish()
    return job.check()


def zombie_driver(job: StreamingJob, rng: random.Random) -> Report:
    """A driver sleeps while it writes; its successor writes all there is; then it wakes and goes on."""
    job.feed(8)
    zombie = job.start()
    if job.runs(zombie):
        zombie.wait(rng.uniform(0.5, 4))
    zombie.send(signal.SIGSTOP)
    job.finish()
    zombie.send(signal.SIGCONT)
    zombie.wait(RUN_SECONDS)
    zombie.kill()
    return job.check()


def two_drivers(job: StreamingJob) -> Report:
    """Two drivers of one checkpoint at the same time. Spark ends one when it notices; a third one writes what is left."""
    job.feed(8)
    drivers = [job.start(), job.start()]
    for driver in drivers:
        driver.wait(RUN_SECONDS)
        driver.kill()
    job.feed(2)
    job.finish()
    return job.check()
