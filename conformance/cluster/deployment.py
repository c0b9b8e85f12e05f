"""Everything that runs: three ZooKeeper servers, a Spark cluster, three parties, their input, and somebody who looks after them."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from pyspark.sql.types import StringType, StructField, StructType

from conformance.cluster.changing import PASSING
from conformance.cluster.disk import Disk
from conformance.cluster.input import SCHEMA, add_file
from conformance.cluster.installation import build_wheel, fresh_environment
from conformance.cluster.jobs import SCRIPT
from conformance.cluster.party import Party
from conformance.domains import MIXED, PERSISTENT, TOPIC, named
from conformance.processes import Session, left_behind
from conformance.servers import SparkCluster, ZooKeeperEnsemble
from metadata.client import client
from metadata.cluster import open_cluster
from metadata.cluster_records import Settings
from metadata.names import is_persistent, persistent_name, topic_name

CHROOT = "/suite"
WRITERS = ("writer", "loader")
SEGMENTS = 2
"""Of a topic that has any. Few, because each batch leaves a file for each task and segment, and batch reads read all of them."""
BACKLOG = 12
"""Batches of input that lie ready beyond what both writers have written."""
SESSION_MS = 4_000
"""What the servers grant a session at most, so that one can expire while we look on."""
SETTINGS = Settings(txn_timeout_ms=10_000, header_retention_ms=30_000, fold_after_registrations=16, fold_after_ms=3_000)
"""Deadlines, folding and forgetting all happen within a run."""
LOOK_SECONDS = 0.05


@dataclass
class Progress:
    """The batches of one party that were seen to be committed: when (`time.monotonic()` in ms), by number."""

    folder: Path
    """Has a file named by each number."""
    at: list[float] = field(default_factory=list)

    def look(self) -> None:
        while (self.folder / str(len(self.at))).exists():
            self.at.append(time.monotonic() * 1000)


class Late(Exception):
    """Something that must happen has not happened in time."""


class Deployment:
    """A context manager. `folder` must be empty. Raises what its servers raise, and what went wrong with the supervisor."""

    def __init__(
        self, folder: Path, say: Callable[[str], None], wheel: Path | None = None, *, seed: int = 0, domain: str = TOPIC
    ) -> None:
        """`say`: is told what the supervisor does. `wheel`: what to install (default: one built from the source tree). `seed`: of
        the changes to the topics (`conformance.cluster.changing`). `domain`: of the jobs' topics (`conformance.domains`).
        """
        streamed, loaded = (PERSISTENT, TOPIC) if domain == MIXED else (domain, domain)
        self.streamed, self.loaded = named(streamed, "streamed"), named(loaded, "loaded")
        self.topics = (self.streamed, self.loaded)
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
        """When each batch of input was laid down."""

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
        python = fresh_environment(folder / "environment", wheel, start="conformance.cluster.clock_shim")
        self.disk = enter(Disk(folder / "ledgers"))
        settings = {"maxSessionTimeout": str(SESSION_MS)}
        self.ensemble = enter(ZooKeeperEnsemble(folder / "zookeeper", settings=settings))
        self.url = f"zk://{self.ensemble.hosts}{CHROOT}"
        self._make()
        self.spark = enter(SparkCluster(folder / "spark", python=python, cores=3, memory="3g"))
        self.script = folder / "run.py"
        self.script.write_text(SCRIPT)
        self.input, self.seen, self.stop = folder / "input", folder / "seen", folder / "stop"
        loaded = folder / "loaded"
        for one in (self.input, self.seen, loaded):
            one.mkdir()
        checkpoint = folder / "checkpoint"
        self.writer = self._party("writer", 2, topic=self.streamed, input=self.input, checkpoint=checkpoint, stop=self.stop)
        self.loader = self._party("loader", 1, topic=self.loaded, input=self.input, progress=loaded, stop=self.stop)
        self._readers_stop = folder / "stop-readers"
        self.reader = self._party(
            "reader",
            2,
            topics=json.dumps(self.topics),
            checkpoint=folder / "reader-checkpoint",
            seen=self.seen,
            stop=self._readers_stop,
        )
        self.parties = {"writer": self.writer, "loader": self.loader, "reader": self.reader}
        self.progress = {
            "writer": Progress(checkpoint / "commits"),
            "loader": Progress(loaded),
            "reader": Progress(folder / "reader-checkpoint" / "commits"),
        }
        self._feed()
        for party in self.parties.values():
            party.start(self.chroot)
        self.changes = folder / "changes"
        self.changes.mkdir()
        self._python, self._changings = python, 0
        self.changing = self._start_changing()
        self._stack.callback(lambda: self.changing.stop())
        self._supervisor = threading.Thread(target=self._look_after, name="supervisor", daemon=True)
        self._supervisor.start()
        self._stack.callback(self._end_supervisor)

    def _start_changing(self) -> Session:
        self._changings += 1
        given = {
            "url": self.url,
            "seed": f"{self._seed}.{self._changings}",
            "topics": json.dumps(self.topics),
            "notes": self.changes,
            "stop": self.stop,
        }
        words = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHON"))}
        command = [str(self._python), "-m", "conformance.cluster.changing", *words]
        return Session(command, self.changes / "changing.log", environment=ours, folder=self.folder)

    def _changed(self) -> bool:
        """Whether all changes were done. Who was killed is replaced; raises Late if he has ended in another way."""
        with self._guard:
            code = self.changing.wait(0)
            if code == -signal.SIGKILL:
                self._say("who changes the topics was killed; started again")
                self.changing = self._start_changing()
            elif code:
                raise Late(f"Who changes the topics ended with {code}: {self.changing.tail()}")
            return code == 0

    def _make(self) -> None:
        """The cluster and its topics, so that readers can begin before writers have."""
        made = client(open_cluster(self.url, ledgers=(self.folder / "ledgers" / "root").as_uri(), settings=SETTINGS))
        for topic in self.topics:
            if is_persistent(topic):
                made.instream.topics.ensure(persistent_name(topic), schema=SCHEMA)
            else:
                made.topics.ensure(topic_name(topic), segments=SEGMENTS, key="key", schema=SCHEMA, create=True)
        schema = StructType([StructField("key", StringType()), StructField("id", StringType())])
        made.topics.ensure(topic_name(PASSING), segments=1, key="key", schema=schema, create=True)
        made.close()

    def _party(self, name: str, cores: int, **arguments: object) -> Party:
        made = Party(
            name,
            f"conformance.cluster.{name}",
            self.folder / name,
            self.spark,
            self.ensemble,
            script=self.script,
            arguments=arguments,
            cores=cores,
            say=self._say,
        )
        self._stack.callback(made.close)
        return made

    # --- the supervisor ---

    def _look_after(self) -> None:
        try:
            while not self._over.wait(LOOK_SECONDS):
                for progress in self.progress.values():
                    progress.look()
                if not self.stop.exists():
                    self._feed()
                for party in self.parties.values():
                    party.tend()
                self._changed()
        except BaseException as error:
            self._failure = error

    def _feed(self) -> None:
        while len(self.fed) < max(self.committed(name) for name in WRITERS) + BACKLOG:
            add_file(self.input, len(self.fed))
            self.fed.append(time.monotonic() * 1000)

    def _end_supervisor(self) -> None:
        self._over.set()
        self._supervisor.join()

    def check(self) -> None:
        """Raises what has ended the supervisor."""
        if self._failure is not None:
            raise self._failure

    def wait(self, what: str, true: Callable[[], bool], seconds: float) -> float:
        """Until it is true; the seconds that took. Raises Late."""
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
        """Batches of a writer, or micro-batches of the reading query, that were seen to be committed."""
        return len(self.progress[name].at)

    def batches(self) -> int:
        """Batches that both writers were seen to commit."""
        return sum(self.committed(name) for name in WRITERS)

    def warm(self, seconds: float) -> None:
        """Until both writers have committed and both readers have read something."""
        self.wait("the first commits and reads", self._warm, seconds)

    def _warm(self) -> bool:
        for party in self.parties.values():
            if party.restarts:
                raise Late(f"The {party.name} died before anything was done to it: {party.first_log()}")
        return all(p.at for p in self.progress.values()) and any(self.seen.glob("poll-*")) and any(self.seen.glob("read-*"))

    def drain(self, seconds: float) -> None:
        """No more input: the writers write what is there and end; then the readers read that and end."""
        self.stop.touch()
        self.wait("the writers' end", lambda: self.writer.done and self.loader.done, seconds)
        self.wait("the last changes to the topics", self._changed, seconds)
        self._readers_stop.touch()
        self.wait("the readers' end", lambda: self.reader.done, seconds)
        for progress in self.progress.values():
            progress.look()

    @property
    def changing_restarts(self) -> int:
        """How often who changes the topics had to be replaced."""
        return self._changings - 1

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
