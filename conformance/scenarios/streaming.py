"""A streaming job whose driver is killed, stopped, or run twice, while an observer reads the topic. At the end the history checker
judges the reads, and every row must be in the topic once.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from conformance.harness.spark_start import spark_environment
from conformance.history.format import Event
from conformance.input_files import Singly
from conformance.processes import Session
from conformance.scenarios.driver import Place, end, make, planned
from conformance.scenarios.files import add_batches
from conformance.scenarios.forks import Child, Died, Forks
from conformance.scenarios.history import Observation, commit, committed, judged, now
from conformance.scenarios.reading import Following, read_all
from conformance.scenarios.scenario import Say, Scenario
from conformance.scenarios.sessions import launched
from metadata.records.cluster_records import Settings
from metadata.records.names import any_topic_name

RUN_SECONDS = 600.0
LOOK_SECONDS = 0.02
PAUSE_SECONDS = 0.1
"""The least pause of the observer between its reads. If its reads took longer, the pause is as long as they took, so that the reads
leave cores to the job.
"""


@dataclass
class Observed:
    """How many batch reads and micro-batches the observer made beside the job, and the events of these reads."""

    reads: int = 0
    micro_batches: int = 0
    events: list[Event] = field(default_factory=list)


def observe(place: Place, stop: Path) -> Observed:
    """Run a batch read and a micro-batch of one stream, in turn. After `stop` exists, run both once more and return."""
    seen, noted = Observed(), Observation(str(any_topic_name(place.topic)))
    following = Following(place.url, place.topic)
    last = False
    while not last:
        last = stop.exists()
        began = turned = now()
        noted.read(began, read_all(place.url, place.topic), final=last)
        seen.reads += 1
        began, start = now(), following.log
        rows = following.next()
        noted.poll(began, start, following.log, rows)
        seen.micro_batches += bool(rows)
        time.sleep(0.0 if last else max(PAUSE_SECONDS, (now() - turned) / 1000))
    seen.events = noted.events
    return seen


class StreamingJob(Scenario):
    """One topic, one checkpoint, and the drivers that run on this checkpoint. The subclasses define the faults of the drivers."""

    def __init__(self, forks: Forks, place: Place, folder: Path, rng: random.Random) -> None:
        self._forks, self._place, self._folder, self._rng = forks, place, folder, rng
        self._input, self._checkpoint, self._marks = folder / "input", folder / "checkpoint", folder / "marks"
        self._stop = folder / "stop"
        self._launched: list[Session] = []
        self._observer: Child | None = None
        self._events: list[Event] = []
        self._wrong: list[str] = []
        self._singly = Singly(self._checkpoint, self._lay_down)
        self.batches = self.kills = 0
        self.observed = Observed()

    def setup(self) -> None:
        self._marks.mkdir(parents=True)
        self._forks.call(make, self._place, Settings())
        self._forks.call(planned, self._place)

    def start(self) -> None:
        self._observer = self._forks.start(observe, self._place, self._stop)

    def feed(self, count: int) -> None:
        """Add `count` batches to the input. Their files are written while `go_on` runs."""
        self.batches += count

    def _lay_down(self, batch: int) -> None:
        """Record that a driver may commit the batch from now on. Then write the input file of the batch."""
        self._events.append(commit(now(), batch, str(any_topic_name(self._place.topic))))
        add_batches(self._input, batch, 1)

    def fed(self) -> bool:
        """Return whether all input is written to files."""
        return self._singly.laid == self.batches

    def written(self) -> bool:
        """Return whether all input is committed."""
        return self.fed() and self._singly.committed()

    def drive(self) -> Session:
        """Start a driver on the checkpoint. Return at once, before its query runs."""
        output = self._folder / f"driver-{len(self._launched)}.log"
        given = {"url": self._place.url, "topic": self._place.topic, "input": self._input, "checkpoint": self._checkpoint}
        given |= {"marks": self._marks, "stop": stop_file(output)}
        arguments = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        driver = launched("conformance.scenarios.job", arguments, output, spark_environment(warm=True))
        self._launched.append(driver)
        return driver

    def runs(self, driver: Session) -> bool:
        """Return whether the query of a driver runs or has run."""
        return (self._marks / str(driver.pid)).exists()

    def go_on(self, drivers: Sequence[Session], seconds: float, until: Callable[[], bool]) -> bool:
        """Write input files while drivers run. Return True as soon as `until` returns true. Return False after `seconds`, or when
        all drivers have ended.
        """
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline or not any(driver.running() for driver in drivers):
                return False
            self._singly.feed(self.batches)
            time.sleep(LOOK_SECONDS)
        return True

    def until_it_runs(self, driver: Session) -> None:
        """Wait until the driver's query runs. Raises Died if it does not."""
        if not self.go_on([driver], RUN_SECONDS, lambda: self.runs(driver)):
            raise Died(f"A driver's query did not run within {RUN_SECONDS:g} s: {driver.tail()}")

    def kill_at(self, driver: Session, seconds: float, *, starting: bool) -> bool:
        """Send SIGKILL to all processes of a driver, `seconds` after the driver's query began to run. With `starting`, send it
        `seconds` after this call, which comes right after the driver's start. If the driver commits all input earlier, kill it at
        once, do not count the kill, and return False. Raises Died if the driver ended by itself.
        """
        if not starting:
            self.until_it_runs(driver)
        idle = self.go_on([driver], seconds, self.written)
        if not driver.running():
            raise Died(f"A driver that nobody had disturbed ended: {driver.tail()}")
        driver.kill()
        self.kills += not idle
        return not idle

    def end(self, driver: Session) -> int | None:
        """Let a driver write its remaining input and end. Return its exit code; None if it did not end in time and was killed."""
        stop_file(driver.output).touch()
        code = driver.wait(RUN_SECONDS)
        driver.kill()
        return code

    def finish(self) -> None:
        """Run a driver without faults until it has written the remaining input."""
        driver = self.drive()
        written = self.go_on([driver], RUN_SECONDS, self.written)
        code = self.end(driver)
        if written and code == 0:
            self._events += [committed(now(), batch) for batch in range(self.batches)]
        else:
            done = f"after {self._singly.laid} of {self.batches} batches were laid down"
            self._wrong.append(f"the last driver ended with {code} {done}: {driver.tail()}")

    def check(self) -> list[str]:
        """End the observer. Let the history checker judge its reads. The history stays in the job's folder."""
        assert self._observer is not None
        self._stop.touch()
        self.observed = self._observer.result(RUN_SECONDS)
        wrong = judged([self._events, self.observed.events], self._folder / "history.jsonl")
        left: list[str] = self._forks.call(end, self._place, self.batches)
        return [*self._wrong, *wrong, *left]

    def figures(self) -> str:
        seen = self.observed
        return f"{self.kills} kills, {self.batches} batches, {seen.reads} batch reads, {seen.micro_batches} micro-batches"

    def close(self) -> None:
        """End all processes that were started."""
        for driver in self._launched:
            driver.kill()
        if self._observer is not None:
            self._stop.touch()
            self._observer.stop()


def stop_file(output: Path) -> Path:
    """Return the file whose existence tells the driver with this output file to end."""
    return output.with_suffix(".stop")


class RandomKills(StreamingJob):
    """A new driver is started and killed, `kills` times. One kill in six comes within 10 seconds of the driver's start. The others
    come within 6 seconds after the driver's query began to run.
    """

    def __init__(self, forks: Forks, place: Place, folder: Path, rng: random.Random, kills: int, say: Say) -> None:
        super().__init__(forks, place, folder, rng)
        self.name = "a streaming job, random kills"
        self._kills, self._say = kills, say

    def faults(self) -> None:
        while self.kills < self._kills:
            self.feed(10)
            starting = self._rng.random() < 1 / 6
            seconds = self._rng.uniform(0, 10 if starting else 6)
            hit = self.kill_at(self.drive(), seconds, starting=starting)
            moment = f"{seconds:.2f} s after {'its start' if starting else 'its query ran'}"
            self._say(f"  kill {self.kills} of {self._kills}: {moment}" if hit else "  the driver was done before the kill")
        self.finish()


class ZombieDriver(StreamingJob):
    """A driver is stopped while it writes. A second driver writes all remaining input. Then the first driver continues."""

    name = "a streaming job, zombie driver"

    def faults(self) -> None:
        self.feed(8)
        zombie = self.drive()
        self.until_it_runs(zombie)
        self.go_on([zombie], self._rng.uniform(0.5, 4), self.fed)  # `go_on` ends early once all input files are written
        zombie.send(signal.SIGSTOP)
        self.feed(2)
        self.finish()
        zombie.send(signal.SIGCONT)
        self.end(zombie)


class TwoDrivers(StreamingJob):
    """Two drivers run on one checkpoint. Spark detects that and ends one of them. A third driver writes the remaining input."""

    name = "a streaming job, two drivers"

    def faults(self) -> None:
        self.feed(8)
        drivers = [self.drive(), self.drive()]
        self.go_on(drivers, RUN_SECONDS, lambda: all(self.runs(driver) or not driver.running() for driver in drivers))
        self.feed(2)
        self.go_on(drivers, RUN_SECONDS, self.written)
        for driver in drivers:
            self.end(driver)
        self.feed(2)
        self.finish()
