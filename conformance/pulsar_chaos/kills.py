"""Kills the driver, workers and executors of a streaming Spark job into a Pulsar topic, and the broker, while readers read. At the
end the history checker judges the reads.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from conformance.harness.spark_start import spark_environment
from conformance.history.checker import check
from conformance.history.files import merge, write
from conformance.history.format import Start
from conformance.processes import Session, processes, send
from conformance.pulsar_chaos.observing import Headers, Reader, batch_reader, final_look, segments_of, stream_reader
from conformance.pulsar_chaos.seen import Look, spanning, translated, without
from conformance.pulsar_server import PulsarBroker
from conformance.scenarios.driver import Place
from conformance.scenarios.forks import Forks
from conformance.scenarios.history import committed, written
from conformance.scenarios.scenario import Failed, Say
from conformance.scenarios.sessions import launched
from conformance.scenarios.streaming import RUN_SECONDS, StreamingJob, stop_file
from conformance.spark_cluster import EXECUTOR
from pulsar_protocol.client import PulsarClient
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE

ENDLESS = 100_000
LOCAL, CLUSTER = "local[2]", "local-cluster[1,2,1024]"


@dataclass(frozen=True)
class Plan:
    """The number of faults of each kind. `kills`: kills of the driver. `restarts`: kills of the broker, which is then started
    again. `workers`, `executors`: kills of a Python worker or an executor. `changes`: splits and merges of segments. `seconds`:
    most kills of the driver strike within this number of seconds after the driver's query has begun to run
    (`PulsarJob._at_a_moment`).
    """

    kills: int = 30
    restarts: int = 5
    workers: int = 2
    executors: int = 1
    changes: int = 0
    seconds: float = 6.0

    def drawn(self, rng: random.Random) -> list[str]:
        """Return the kinds of all faults in a random order. Every second restart of the broker also kills the driver."""
        found = ["driver"] * self.kills + ["worker"] * self.workers + ["executor"] * self.executors
        found += [("broker", "broker and driver")[number % 2] for number in range(self.restarts)] + ["change"] * self.changes
        rng.shuffle(found)
        return found


class PulsarJob(StreamingJob):
    """A streaming Spark job into a Pulsar topic, two readers of the topic, and the faults of a plan."""

    name = "a streaming job into a Pulsar topic"

    def __init__(self, broker: PulsarBroker, topic: str, folder: Path, rng: random.Random, plan: Plan, say: Say) -> None:
        super().__init__(Forks(), Place(broker.url, f"topic://public/default/{topic}"), folder, rng)
        self._broker, self._plan, self._say = broker, plan, say
        self._readers: list[Reader] = []
        self.struck: Counter[str] = Counter()
        self.restarts = self.ended = self.rows = self.spanning = 0
        self.anomalies: Counter[str] = Counter()
        self._began = time.monotonic()
        self._headers: Headers | None = None
        self._driver: Session | None = None
        self._disturbed = False
        """Whether a fault has struck since the driver was started."""

    def setup(self) -> None:
        self._marks.mkdir(parents=True)
        self._input.mkdir()
        self._broker.create(self._place.topic, 4)

    def start(self) -> None:
        self._feed_for_ever()
        self._busy(LOCAL)
        self._busy(LOCAL)  # the second batch has begun, so the first one is committed, and the topic has a schema
        self._headers = Headers(self._broker.zookeeper.hosts)
        options = {"serviceUrl": self._place.url, "path": self._place.topic}
        self._readers = [
            batch_reader(options, self._headers),
            stream_reader(options, self._headers, self._folder / "stream.checkpoint"),
        ]

    def _feed_for_ever(self) -> None:
        self.batches = ENDLESS

    # --- drivers ---

    def drive_on(self, master: str) -> Session:
        output = self._folder / f"driver-{len(self._launched)}.log"
        given = {"url": self._place.url, "topic": self._place.topic, "input": self._input, "checkpoint": self._checkpoint}
        given |= {"marks": self._marks, "stop": stop_file(output), "master": master, "entry-rows": 4}
        arguments = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        environment = {**spark_environment(), ADMIN_VARIABLE: self._broker.admin_url, **_home()}
        driver = launched("conformance.pulsar_chaos.job", arguments, output, environment, nice=0)
        self._launched.append(driver)
        return driver

    def drive(self) -> Session:
        return self.drive_on(LOCAL)

    def _running(self, master: str) -> Session:
        """Return the running driver, or start a new one. Raises Failed if a driver has ended although no fault had struck since its
        start.
        """
        if self._driver is not None and not self._driver.running():
            if not self._disturbed:
                raise Failed(f"A driver that nobody had disturbed ended: {self._driver.tail()}")
            self.ended += 1
            self._driver.kill()
            self._driver = None
        if self._driver is None:
            self._driver, self._disturbed = self.drive_on(master), False
        return self._driver

    def _busy(self, master: str) -> Session:
        """Return a driver whose query has begun a batch after this call."""
        while True:
            driver, laid = self._running(master), self._singly.laid
            if self.go_on([driver], RUN_SECONDS, lambda: self.runs(driver) and self._singly.laid > laid):  # noqa: B023
                return driver
            if driver.running():
                raise Failed(f"A driver has made no progress: {driver.tail()}")

    def _kill(self, driver: Session) -> None:
        driver.kill()
        self.kills += 1
        self._driver = None

    # --- faults ---

    def faults(self) -> None:
        for number, kind in enumerate(plan := self._plan.drawn(self._rng)):
            self._strike(kind)
            self.struck[kind] += 1
            self._say(
                f"  {number + 1} of {len(plan)}, {time.monotonic() - self._began:.0f} s: {kind}; "
                f"{self._singly.laid} batches begun, {self.ended} drivers ended by themselves"
            )
        self.batches = self._singly.laid + 3
        self.finish()

    def _strike(self, kind: str) -> None:
        if kind == "executor" and self._driver is not None:  # this driver has no executor processes; `_busy` starts another one
            self._driver.kill()
            self._driver = None
        driver = self._at_a_moment() if kind == "driver" else self._busy(CLUSTER if kind == "executor" else LOCAL)
        if kind != "driver":
            self.go_on([driver], self._rng.uniform(0, 3), lambda: False)
        self._disturbed = True
        if kind.startswith("broker"):
            self._broker.kill()
            if kind == "broker and driver":
                self._kill(driver)
            time.sleep(self._rng.uniform(0, 2))
            self._broker.start()
            self.restarts += 1
        elif kind == "driver":
            self._kill(driver)
        elif kind == "change":
            self._change()
        else:
            self._kill_one(driver, "pyspark.daemon" if kind == "worker" else EXECUTOR)

    def _at_a_moment(self) -> Session:
        """Wait for a random moment in the life of a driver, and return this driver. In one case of six the moment is within 10 s of
        this call, and the driver's query may not run yet. Otherwise the query has begun to run.
        """
        while True:
            driver = self._running(LOCAL)
            if self._rng.random() < 1 / 6:
                self.go_on([driver], self._rng.uniform(0, 10), lambda: False)
            else:
                self.go_on([driver], RUN_SECONDS, lambda: self.runs(driver))  # noqa: B023
                self.go_on([driver], self._rng.uniform(0, self._plan.seconds), lambda: False)
            if driver.running():
                return driver

    def _kill_one(self, driver: Session, word: str) -> None:
        """Kill a random process of a driver's session whose command has this word. Wait until the driver has ended, or has begun
        two more batches.
        """
        found = [
            one.pid
            for one in processes()
            if one.session == driver.pid and one.state != "Z" and any(word in each for each in one.command())
        ]
        if not found:
            raise Failed(f"The driver has no process {word}: {driver.tail()}")
        send(self._rng.choice(sorted(found)), signal.SIGKILL)
        laid = self._singly.laid
        self.go_on([driver], RUN_SECONDS, lambda: self._singly.laid > laid + 1)

    def _change(self) -> None:
        """Split a segment, or merge two neighbours, so that the topic has between 3 and 6 active segments."""
        with PulsarClient(self._broker.url) as client:
            active = client.layout(self._place.topic).active
        if len(active) <= 3 or (len(active) < 6 and self._rng.random() < 0.5):
            self._broker.split(self._place.topic, self._rng.choice(active).id)
        else:
            first = self._rng.randrange(len(active) - 1)
            self._broker.merge(self._place.topic, active[first].id, active[first + 1].id)

    # --- the end ---

    def finish(self) -> None:
        """Let the running driver, or another one, write the remaining input."""
        driver = self._running(LOCAL)
        while not self.go_on([driver], RUN_SECONDS, self.written) and not driver.running():
            driver = self._running(LOCAL)
        done, code = self.written(), self.end(driver)
        if not done or code != 0:
            self._wrong.append(f"the last driver ended with {code}: {driver.tail()}")

    def check(self) -> list[str]:
        assert self._headers is not None
        options = {"serviceUrl": self._place.url, "path": self._place.topic}
        ids = {str(seq) for batch in range(self.batches) for _, seq, _, _ in written(batch)}
        last = final_look(options, ids)
        self.rows = len(last.rows)
        deadline = time.monotonic() + 120
        stream = self._readers[1]
        while stream.rows() < len(ids) and time.monotonic() < deadline:
            time.sleep(0.1)
        for one in self._readers:
            one.finish()
        if stream.rows() < len(ids):
            self._wrong.append(f"the stream has {stream.rows()} of {len(ids)} rows")
        told = max((one.at for reader in self._readers for one in reader.looks), default=last.began)
        began = max(last.began, told + 1)
        last = last._replace(began=began, at=max(last.at, began + 1))
        self._events += [committed(told, batch) for batch in range(self.batches)]
        looks = [look for reader in self._readers for look in reader.looks] + [last]
        return [*self._wrong, *self._judged(looks)]

    def _judged(self, looks: list[Look]) -> list[str]:
        with PulsarClient(self._broker.url) as client:
            segments = segments_of(client, self._place.topic)
        clean = without(looks, {one.name: one.dirty for one in self._readers})
        self.spanning = len(spanning(looks[-1], segments))
        seen = translated(clean, segments, self._place.topic)
        history = merge([[Start(0, "conformance.pulsar_chaos", spanning=True)], self._events, seen])
        write(self._folder / "history.jsonl", history)
        findings = check(history)
        self.anomalies = Counter(one.anomaly for one in findings)
        return [str(one) for one in findings]

    def figures(self) -> str:
        batch, stream = self._readers
        struck = ", ".join(f"{count} x {kind}" for kind, count in sorted(self.struck.items()))
        dirty = len(batch.dirty | stream.dirty)
        return (
            f"{struck}; {self.kills} drivers killed, {self.restarts} restarts of the broker, {len(self._launched)} drivers "
            f"({self.ended} ended by themselves); {self.batches} batches, {self.rows} rows; {len(batch.looks)} batch reads "
            f"({batch.failed} failed), {len(stream.looks)} micro-batches ({stream.failed} failed plans or reads); "
            f"{self.spanning} transactions with rows in a segment and in its child; {dirty} transactions read before their commit; "
            f"anomalies: {dict(self.anomalies) or 'none'}"
        )

    def close(self) -> None:
        for driver in self._launched:
            driver.kill()
        if self._headers is not None:
            self._headers.close()


def _home() -> dict[str, str]:
    """Return the environment variables that a driver in `local-cluster` mode needs to start its executors."""
    import pyspark

    home = Path(pyspark.__file__).parent
    (core,) = (home / "jars").glob("spark-core_*.jar")
    return {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": core.name.removeprefix("spark-core_").split("-")[0]}
