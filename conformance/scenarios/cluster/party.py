"""One party of the deployment: a job, and the Spark driver that runs it. If the driver fails, the deployment submits a new driver.

Each party has its own connection to ZooKeeper (a proxy for each server) and its own clock file, so that a fault can strike one
party alone.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from conformance.processes import Session
from conformance.proxy import TcpProxy
from conformance.scenarios.cluster.clock_shim import VARIABLE, set_shift
from conformance.servers import LOCAL, Executor, SparkCluster, ZooKeeperEnsemble
from conformance.spark_cluster import workers_below

SETTINGS = {
    "spark.task.maxFailures": "8",
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.port.maxRetries": "64",
    "spark.scheduler.mode": "FAIR",
}
"""The Spark settings of all parties. With these settings, Spark gives up an executor that does not answer for 20 s, and runs its
tasks elsewhere. The executor may work on later, as a zombie.
"""


class Party:
    """A job and the drivers that were started for it. `restarts`: how often a driver was replaced after it had failed. `slow`: how
    many of the replaced drivers had failed because the machine was too slow.
    """

    def __init__(
        self,
        name: str,
        module: str,
        folder: Path,
        cluster: SparkCluster,
        ensemble: ZooKeeperEnsemble,
        *,
        script: Path,
        arguments: Mapping[str, object],
        cores: int,
        say: Callable[[str], None],
    ) -> None:
        """`arguments`: the arguments of the module, without `url` and `marks`. `say`: gets a text for each replaced driver."""
        self._say = say
        self.name = name
        self.restarts = self.slow = 0
        self.done = False
        self._module, self._script, self._arguments, self._cores = module, script, dict(arguments), cores
        self._folder, self._cluster = folder, cluster
        folder.mkdir(parents=True)
        self.clock = folder / "clock"
        self.shift = 0.0
        """The current shift of the party's clock, in seconds."""
        set_shift(self.clock, self.shift)
        self.proxies = [TcpProxy(LOCAL, server.port) for server in ensemble.servers]
        self._drivers: list[Session] = []
        self._replaced: Session | None = None
        self._applications: list[Path] = []
        self._lock = threading.RLock()
        self._unattended = False

    @property
    def hosts(self) -> str:
        return ",".join(proxy.hosts for proxy in self.proxies)

    def start(self, chroot: str) -> Session:
        """Submit a driver. From now on it is the party's newest driver."""
        with self._lock:
            number = len(self._drivers)
            marks = self._folder / f"marks-{number}"
            marks.mkdir()
            given = {"url": f"zk://{self.hosts}{chroot}", **self._arguments, "marks": marks}
            words = [self._module, *(word for name, value in given.items() for word in (f"--{name}", str(value)))]
            driver = self._cluster.submit(
                self._script,
                words,
                self._folder / f"driver-{number}.log",
                settings={
                    **SETTINGS,
                    "spark.app.name": self.name,
                    "spark.cores.max": str(self._cores),
                    f"spark.executorEnv.{VARIABLE}": str(self.clock),
                },
                environment={VARIABLE: str(self.clock)},
            )
            self._drivers.append(driver)
            self._applications.append(marks / "application")
            self._chroot = chroot
            return driver

    def tend(self) -> None:
        """Replace the driver if it has failed. Mark the party as done if the driver has succeeded."""
        with self._lock:
            if self.done or self._unattended or (code := self.driver.wait(0)) is None:
                return
            if code == 0:
                self.done = True
            else:
                self._replaced = self.driver
                log = self.driver.tail(200_000)
                self.slow += code > 0 and for_want_of_speed(log)
                self.restarts += 1
                how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}: {_cause(log)}"
                self._say(f"{self.name}: its driver {how}; started again")
                self.start(self._chroot)

    @contextmanager
    def unattended(self) -> Iterator[None]:
        """A context in which the deployment does not replace this party's drivers. The caller starts and ends them."""
        with self._lock:
            self._unattended = True
        try:
            yield
        finally:
            with self._lock:
                self._unattended = False

    # --- what can be broken ---

    @property
    def driver(self) -> Session:
        """The newest driver."""
        return self._drivers[-1]

    def application(self) -> str | None:
        """Return Spark's application id of the newest driver, or None if it has none yet."""
        file = self._applications[-1]
        return file.read_text() if file.exists() else None

    def executors(self) -> list[Executor]:
        identity = self.application()
        return [] if identity is None else self._cluster.executors(identity)

    def task_workers(self) -> list[int]:
        """Return the Python processes that run the party's tasks."""
        return workers_below([executor.pid for executor in self.executors()])

    def driver_workers(self) -> list[int]:
        """Return the driver's Python processes, which plan, read streams and commit."""
        return workers_below(self.driver.members())

    @contextmanager
    def each_proxy(self, way: str, *arguments: float) -> Iterator[None]:
        """A context in which all proxies of the party disturb their connections by `TcpProxy`'s method `way` (such as `refuse`)."""
        with ExitStack() as stack:
            for proxy in self.proxies:
                stack.enter_context(getattr(proxy, way)(*arguments))
            yield

    def ports(self) -> list[int]:
        """Return the local ports of the party's connections to the ZooKeeper servers."""
        return [port for proxy in self.proxies for port in proxy.ports()]

    # --- the end ---

    def logs(self, characters: int = 3000) -> str:
        """Return the end of the newest driver's output."""
        return self.driver.tail(characters)

    def last_words(self, characters: int = 3000) -> str:
        """Return the end of the output of the driver that was replaced last. Return an empty text if no driver was replaced."""
        return "" if self._replaced is None else self._replaced.tail(characters)

    def close(self) -> None:
        for driver in self._drivers:
            driver.send(signal.SIGKILL)
        for driver in self._drivers:
            driver.kill()
        for proxy in self.proxies:
            proxy.close()


_RAISED = re.compile(r"^(?:[\w.]+: )?[\w.]*(?:Error|Exception|Lost|Unavailable|Outcome|Fenced|Conflict)\b.*$", re.MULTILINE)


def _cause(log: str) -> str:
    """Return the last line of a driver's log that names an error. It is taken for the cause of the driver's end."""
    found = _RAISED.findall(log)
    return str(found[-1])[:300] if found else "its log names nothing that was raised"


_TRACEBACK = "\nTraceback (most recent call last):\n"
_SLOW = re.compile(
    r"Python worker failed to connect back|for the Python worker to connect back|No ZooKeeper server of \S+ answered"
)


def for_want_of_speed(log: str) -> bool:
    """Return whether the last traceback in a driver's log names a time limit that a busy machine may exceed. There are two such
    limits: Spark waits at most 10 s for the start of a Python worker, and a client at most 10 s for an answer of a ZooKeeper
    server.
    """
    _, traceback, words = f"\n{log}".rpartition(_TRACEBACK)
    return bool(traceback) and _SLOW.search(words) is not None
