"""All processes of a run: three ZooKeeper servers, a Spark cluster and the jobs of a scene. This module also writes the jobs' input
and supervises the jobs.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql.types import StringType, StructField, StructType

from conformance.input_files import Singly
from conformance.processes import Session, left_behind
from conformance.scenarios.cluster.changing import PASSING
from conformance.scenarios.cluster.disk import Disk
from conformance.scenarios.cluster.input import WRITTEN, add_file
from conformance.scenarios.cluster.installation import build_wheel, fresh_environment
from conformance.scenarios.cluster.jobs import SCRIPT
from conformance.scenarios.cluster.party import Party
from conformance.scenarios.cluster.scene import Reads, Scene, Writes
from conformance.scenarios.scenario import Failed
from conformance.servers import SparkCluster, ZooKeeperEnsemble
from metadata.client.client import client
from metadata.cluster.cluster import open_cluster
from metadata.records.cluster_records import Settings
from metadata.records.names import is_persistent, persistent_name, topic_name

CHROOT = "/suite"
WORKERS = 2
"""The number of workers of the Spark cluster."""
BACKLOG = 12
"""How many batches of input are written beyond those that the fastest writer has committed."""
SESSION_MS = 4_000
"""The longest session timeout that the ZooKeeper servers grant. It is short, so that sessions can expire during a fault."""
SETTINGS = Settings(txn_timeout_ms=10_000, header_retention_ms=30_000, fold_after_registrations=16, fold_after_ms=3_000)
"""Settings with which transactions reach their deadlines, registrations are folded and headers expire within a run."""
LOOK_SECONDS = 0.05
DEATHS = 3
"""`warm` fails if this many drivers of one party have failed because the machine is too slow (`Party.slow`). It fails at once if a
driver has failed for another reason.
"""


@dataclass
class Progress:
    """The batches of one party that are known to be committed. `at[n]`: the time at which this process first saw that batch n is
    committed (`time.monotonic()` in ms).
    """

    folder: Path
    """The folder that has one file for each committed batch. The number of the batch is the name of the file."""
    at: list[float] = field(default_factory=list)

    def look(self) -> None:
        while (self.folder / str(len(self.at))).exists():
            self.at.append(time.monotonic() * 1000)


class Late(Failed):
    """Something for which the run waits has not happened in time, or cannot happen any more."""


class Deployment:
    """The processes of a scene, as a context manager: they start at its beginning and end at its end. `folder` must be empty.
    If an error has ended the supervisor, each method that waits raises this error.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], wheel: Path | None = None, *, scene: Scene, seed: int = 0) -> None:
        """`say`: is called with each message of the supervisor. `wheel`: the wheel to install (None: build one from the source
        tree). `seed`: the seed of the changes to the topics (`conformance.scenarios.cluster.changing`).
        """
        self.scene = scene
        self.topics = scene.topics
        self.writers = tuple(job.name for job in scene.writers)
        self.readers = tuple(job.name for job in scene.readers)
        self._seed = seed
        self.folder = folder
        self._say = say
        self.chroot = CHROOT
        self._wheel = wheel
        self._stack = ExitStack()
        self._over = threading.Event()
        self._guard = threading.Lock()
        self._failure: BaseException | None = None
        self.fed: list[float] = []
        """The time at which each batch of input was written."""
        self.parties: dict[str, Party] = {}
        self._changings = 0
        self._drained = False
        self.drained = 0.0
        """The time at which all input was committed and the readers were asked to end."""

    def start(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        folder, enter = self.folder, self._stack.enter_context
        left_behind(folder)
        wheel = self._wheel or build_wheel(folder / "build")
        python = fresh_environment(folder / "environment", wheel, start="conformance.scenarios.cluster.clock_shim")
        self.disk = enter(Disk(folder / "ledgers"))
        settings = {"maxSessionTimeout": str(SESSION_MS)}
        self.ensemble = enter(ZooKeeperEnsemble(folder / "zookeeper", settings=settings))
        self.url = f"zk://{self.ensemble.hosts}{CHROOT}"
        self._make()
        cores, memory = self.scene.cores // WORKERS + 1, f"{len(self.scene.jobs)}g"
        self.spark = enter(SparkCluster(folder / "spark", python=python, workers=WORKERS, cores=cores, memory=memory))
        self.script = folder / "run.py"
        self.script.write_text(SCRIPT)
        self.input, self.stop, self._readers_stop = folder / "input", folder / "stop", folder / "stop-readers"
        self.input.mkdir()
        self._queries: list[Singly] = []
        self.progress: dict[str, Progress] = {}
        for job in self.scene.writers:
            self._add_writer(job)
        for reading in self.scene.readers:
            self._add_reader(reading)
        self._feed()
        for party in self.parties.values():
            party.start(self.chroot)
        self.changes = folder / "changes"
        self.changes.mkdir()
        self._python = python
        self.changing = self._start_changing()
        self._stack.callback(lambda: self.changing.stop())
        self._supervisor = threading.Thread(target=self._look_after, name="supervisor", daemon=True)
        self._supervisor.start()
        self._stack.callback(self._end_supervisor)

    def _add_writer(self, job: Writes) -> None:
        """Add a writer. The names of the files in the folder `done` are the numbers of the batches that the writer has committed.
        For a streaming query, `done` is the folder `commits` of Spark's checkpoint. For the batch job, it is a folder that the job
        fills.
        """
        if job.streams:
            checkpoint, fed = self.checkpoint(job.name), self.folder / f"{job.name}-input"
            keeps, module, done = {"checkpoint": checkpoint, "input": fed}, "writer", checkpoint / "commits"
            fed.mkdir()
            self._queries.append(Singly(checkpoint, partial(add_file, fed)))
        else:
            done = self.folder / f"{job.name}-progress"
            done.mkdir()
            keeps, module = {"progress": done, "input": self.input}, "loader"
        self._add(job.name, module, job.cores, done, topic=job.topic, name=job.name, stop=self.stop, **keeps)

    def _add_reader(self, job: Reads) -> None:
        self.seen(job.name).mkdir()
        checkpoint = self.checkpoint(job.name)
        self._add(
            job.name,
            "reader",
            job.cores,
            checkpoint / "commits",
            topics=json.dumps(self.topics),
            name=job.name,
            checkpoint=checkpoint,
            seen=self.seen(job.name),
            limit=job.limit,
            batches="yes" if job.batches else "no",
            stop=self._readers_stop,
        )

    def checkpoint(self, name: str) -> Path:
        """Return the checkpoint of a party with a streaming query."""
        return self.folder / f"{name}-checkpoint"

    def seen(self, name: str) -> Path:
        """Return the folder in which a reader records its histories."""
        return self.folder / f"{name}-seen"

    def _start_changing(self) -> Session:
        self._changings += 1
        given = {
            "url": self.url,
            "seed": f"{self._seed}.{self._changings}",
            "topics": json.dumps(self.topics),
            "segments": f"{self.scene.fewest}:{self.scene.most}",
            "rounds": "yes" if self.scene.rounds else "no",
            "notes": self.changes,
            "stop": self.stop,
        }
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON"))}
        command = [str(self._python), "-m", "conformance.scenarios.cluster.changing", *words]
        return Session(command, self.changes / "changing.log", environment=ours, folder=self.folder)

    def _changed(self) -> bool:
        """Return whether the changing process has ended after its work. Replace it if it was killed. Raises Late if it failed."""
        with self._guard:
            code = self.changing.wait(0)
            if code == -signal.SIGKILL:
                self._say("who changes the topics was killed; started again")
                self.changing = self._start_changing()
            elif code:
                raise Late(f"Who changes the topics ended with {code}: {self.changing.tail()}")
            return code == 0

    def _make(self) -> None:
        """Create the cluster and its topics, so that readers can begin before any writer has begun."""
        made = client(open_cluster(self.url, ledgers=(self.folder / "ledgers" / "root").as_uri(), settings=SETTINGS))
        for topic in self.topics:
            if is_persistent(topic):
                made.instream.topics.ensure(persistent_name(topic), schema=WRITTEN)
            else:
                made.topics.ensure(topic_name(topic), segments=self.scene.first, key="key", schema=WRITTEN, create=True)
        schema = StructType([StructField("key", StringType()), StructField("id", StringType())])
        made.topics.ensure(topic_name(PASSING), segments=1, key="key", schema=schema, create=True)
        made.close()

    def _add(self, party: str, module: str, cores: int, done: Path, **arguments: object) -> None:
        made = Party(
            party,
            f"conformance.scenarios.cluster.{module}",
            self.folder / party,
            self.spark,
            self.ensemble,
            script=self.script,
            arguments=arguments,
            cores=cores,
            say=self._say,
        )
        self._stack.callback(made.close)
        self.parties[party], self.progress[party] = made, Progress(done)

    # --- the supervisor ---

    def _look_after(self) -> None:
        try:
            while not self._over.wait(LOOK_SECONDS):
                for progress in self.progress.values():
                    progress.look()
                if not self._drained:
                    self._feed()
                for query in self._queries:
                    query.feed(len(self.fed))
                for party in self.parties.values():
                    party.tend()
                self._changed()
        except BaseException as error:
            self._failure = error

    def _feed(self) -> None:
        while len(self.fed) < max(self.committed(name) for name in self.writers) + BACKLOG:
            add_file(self.input, len(self.fed))
            self.fed.append(time.monotonic() * 1000)

    def _end_supervisor(self) -> None:
        self._over.set()
        self._supervisor.join()

    def check(self) -> None:
        """Raise the error that has ended the supervisor, if there is one."""
        if self._failure is not None:
            raise self._failure

    def wait(self, what: str, true: Callable[[], bool], seconds: float) -> float:
        """Wait until `true` returns true. Return how many seconds that took. After `seconds` raise Late, which names `what`."""
        began = time.monotonic()
        while not true():
            self.check()
            if time.monotonic() - began > seconds:
                logs = "\n".join(f"--- {party.name}\n{party.logs(1500)}" for party in self.parties.values())
                raise Late(f"{what}: not within {seconds:g} s\n{logs}")
            time.sleep(LOOK_SECONDS)
        return time.monotonic() - began

    # --- phases ---

    def committed(self, name: str) -> int:
        """Return how many batches of a writer, or micro-batches of a reader, are known to be committed."""
        return len(self.progress[name].at)

    def batches(self) -> int:
        """Return how many batches all writers together are known to have committed."""
        return sum(self.committed(name) for name in self.writers)

    def warm(self, seconds: float) -> None:
        """Wait until each party has committed a batch and each reader has recorded a read. Raises Late after `seconds`."""
        self.wait("the first commits and reads", self._warm, seconds)

    def _warm(self) -> bool:
        for party in self.parties.values():
            if party.restarts > party.slow or party.restarts >= DEATHS:
                raise Late(f"The {party.name} died before anything was done to it: {party.last_words()}")
        kept = [(job.name, kind) for job in self.scene.readers for kind in (("poll", "read") if job.batches else ("poll",))]
        return all(p.at for p in self.progress.values()) and all(self._has_read(name, kind) for name, kind in kept)

    def _has_read(self, name: str, kind: str) -> bool:
        """Return whether a reader's histories of this kind have events besides their Start events."""
        return any(file.read_bytes().count(b"\n") > 1 for file in self.seen(name).glob(f"{kind}-*"))

    def drain(self, seconds: float) -> None:
        """Add no more input. Let the writers write the remaining input and end. Then let the readers read the rest and end."""
        self._drained = True
        everything = f"that {' and '.join(self.writers)} write what is there"
        self.wait(everything, lambda: all(self.committed(name) >= len(self.fed) for name in self.writers), seconds)
        self.stop.touch()
        self.wait("the writers' end", lambda: all(self.parties[name].done for name in self.writers), seconds)
        self.wait("the last changes to the topics", self._changed, seconds)
        self.drained = time.monotonic() * 1000
        self._readers_stop.touch()
        self.wait("the readers' end", lambda: all(self.parties[name].done for name in self.readers), seconds)
        for progress in self.progress.values():
            progress.look()

    @property
    def changing_restarts(self) -> int:
        """How often the changing process was replaced."""
        return max(0, self._changings - 1)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
