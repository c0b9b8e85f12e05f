"""A real Spark standalone cluster on this machine, from pyspark's jars: a master, workers, and jobs given to `spark-submit`.

    with SparkCluster(folder, python=environment / "bin" / "python") as cluster:
        job = cluster.submit(script, ["--topic", "t"], folder / "job.log", settings={"spark.cores.max": "2"})
        assert job.wait(300) == 0

All processes listen on 127.0.0.1 only and end with the block. Executors are separate processes, started by the workers.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from conformance.harness.spark_start import python_environment, spark_class_path, spark_environment
from conformance.ports import LOCAL, free_ports
from conformance.processes import Found, Session, processes
from metadata.common.errors import ConfigurationError, Unavailable
from txnsegment.java import find_java

START_SECONDS = 300.0
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Executor:
    """One executor. `pid`: the id of the process. `application`: the application's id. `number`: the executor's id within the
    application.
    """

    pid: int
    application: str
    number: str


class SparkCluster:
    """A master and workers. A context manager, which calls `start` and `stop`."""

    def __init__(
        self,
        folder: Path | str,
        *,
        workers: int = 2,
        cores: int = 2,
        memory: str = "2g",
        python: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`cores`, `memory`: the cores and the memory that each worker offers, even if the machine has less. `python`: the
        interpreter of executors and drivers (default: python3 on PATH). `environment`: variables added for all processes.
        """
        import pyspark

        self.folder = Path(folder)
        self._temporary = self.folder / "tmp"
        self.home = Path(pyspark.__file__).parent
        self.port, self._ui_port = free_ports(2)
        self.python = python
        self._workers, self._cores, self._memory = workers, cores, memory
        self._more = dict(environment or {})
        self._sessions: list[Session] = []
        self._jobs: list[Session] = []

    @property
    def url(self) -> str:
        """`spark://host:port`, as `--master` takes it."""
        return f"spark://{LOCAL}:{self.port}"

    @property
    def web(self) -> str:
        """The URL of the master's web pages."""
        return f"http://{LOCAL}:{self._ui_port}"

    def start(self) -> Self:
        self._temporary.mkdir(parents=True, exist_ok=True)
        try:
            self._launch("master", "master.Master", "--host", LOCAL, "--port", str(self.port), "--webui-port", str(self._ui_port))
            for number in range(1, self._workers + 1):
                name = f"worker-{number}"
                offered = ("--cores", str(self._cores), "--memory", self._memory, "--webui-port", "0")
                self._launch(name, "worker.Worker", "--host", LOCAL, *offered, "--work-dir", str(self.folder / name), self.url)
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _launch(self, name: str, main: str, *words: str) -> None:
        options = ["-Xmx256m", "-Dspark.deploy.maxExecutorRetries=-1", "-Dspark.worker.cleanup.enabled=false"]
        command = [str(find_java()), *options, "-cp", spark_class_path(), f"org.apache.spark.deploy.{main}", *words]
        self._sessions.append(Session(command, self.folder / f"{name}.log", environment=self._environment({}), folder=self.folder))

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process of the cluster. It has the variables of this process, without those that redirect
        Spark or Python, then the variables of the cluster, then `more`. A later variable replaces an earlier one of the same name.
        """
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_", "PYTHON"))}
        spark = spark_environment()
        (core,) = (self.home / "jars").glob("spark-core_*.jar")
        scala = core.name.removeprefix("spark-core_").split("-")[0]  # Spark's start scripts set the Scala version for workers
        found = {
            **ours,
            "SPARK_HOME": str(self.home),
            "SPARK_SCALA_VERSION": scala,
            **spark,
            "JDK_JAVA_OPTIONS": f"{spark['JDK_JAVA_OPTIONS']} -XX:-UsePerfData -Djava.io.tmpdir={self._temporary}",
            "TMPDIR": str(self._temporary),  # killed processes leave files there
            **self._more,
        }
        if self.python is not None:
            found |= python_environment(self.python)
        return {**found, **more}

    def _wait(self) -> None:
        """Wait until all workers are registered. Raises Unavailable."""
        deadline = time.monotonic() + START_SECONDS
        while (alive := self.alive()) < self._workers:
            ended = [session for session in self._sessions if not session.running()]
            if ended or time.monotonic() > deadline:
                log = (ended or self._sessions)[0]
                raise Unavailable(
                    f"{alive} of {self._workers} workers of the Spark cluster {self.url} registered: ...{log.tail(1500)}",
                    advice=f"See the logs in {self.folder}.",
                )
            time.sleep(0.1)

    def alive(self) -> int:
        """Return the number of registered workers. It is 0 while the master does not listen, or does not answer with JSON yet."""
        try:
            return sum(worker["state"] == "ALIVE" for worker in self.state()["workers"])
        except (OSError, http.client.HTTPException, json.JSONDecodeError):  # a starting master serves another page first
            return 0

    def state(self) -> dict[str, Any]:
        """Return the master's state from its JSON page, with `workers`, `activeapps` and `completedapps`.

        Raises OSError, HTTPException, JSONDecodeError.
        """
        with urllib.request.urlopen(f"{self.web}/json/", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def submit(
        self,
        script: Path,
        arguments: Sequence[str],
        output: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Session:
        """Run `spark-submit --deploy-mode client` and return at once. The session contains the driver's JVM and Python processes.

        `settings`: Spark's settings; they override the defaults for small executors. `environment`: variables added for the driver.
        """
        if not script.exists():
            raise ConfigurationError(f"There is no script {script} to submit.")
        number = len(self._jobs)
        given = {
            "spark.driver.host": LOCAL,
            "spark.driver.bindAddress": LOCAL,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(self.folder / "local"),
            "spark.sql.warehouse.dir": str(self.folder / f"warehouse-{number}"),
            "spark.sql.session.timeZone": "UTC",
            **(settings or {}),
        }
        words = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        command = [str(self.home / "bin" / "spark-submit"), "--master", self.url, "--deploy-mode", "client", *words]
        job = Session(
            [*command, str(script), *arguments], output, environment=self._environment(environment or {}), folder=self.folder
        )
        self._jobs.append(job)
        return job

    def executors(self, application: str | None = None) -> list[Executor]:
        """Return the live executors of one application, or of all applications if it is None."""
        ours = {session.pid for session in self._sessions}
        found = []
        for one in processes():
            if one.session in ours and one.state != "Z" and EXECUTOR in (command := one.command()):
                known = dict(itertools.pairwise(command))
                if application in (None, known.get("--app-id")):
                    found.append(Executor(one.pid, known["--app-id"], known["--executor-id"]))
        return sorted(found, key=lambda e: (e.application, int(e.number)))

    def python_workers(self, application: str | None = None) -> list[int]:
        """Return the ids of the Python processes that run tasks for executors. `application` as in `executors`."""
        return workers_below([executor.pid for executor in self.executors(application)])

    def below(self, pid: int) -> list[int]:
        """Return the ids of all processes below a process: its children, their children, and so on."""
        children: dict[int, list[int]] = {}
        for one in processes():
            children.setdefault(one.parent, []).append(one.pid)
        found: list[int] = []
        todo = [pid]
        while todo:
            todo += (started := children.get(todo.pop(), []))
            found += started
        return found

    def stop(self) -> None:
        """Kill the jobs, then the workers, then the master."""
        for session in (*reversed(self._jobs), *reversed(self._sessions)):
            session.kill()
        self._jobs, self._sessions = [], []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def workers_below(pids: Sequence[int]) -> list[int]:
    """Return the ids of the Python workers below these JVMs. A worker was forked by a pyspark.daemon, or started by the JVM itself.

    The daemons are not returned. Below a driver's JVM, the workers plan, commit and read streams.
    """
    everything = {one.pid: one for one in processes() if one.state != "Z"}
    daemons = {pid for pid, one in everything.items() if one.parent in pids and _runs(one, "pyspark.daemon")}
    forked = [pid for pid, one in everything.items() if one.parent in daemons]
    alone = [pid for pid, one in everything.items() if one.parent in pids and pid not in daemons and _runs(one, "pyspark.")]
    return sorted(forked + alone)


def _runs(process: Found, module: str) -> bool:
    words = process.command()
    return any(a == "-m" and b.startswith(module) for a, b in itertools.pairwise(words))
