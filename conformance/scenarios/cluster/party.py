"""One party of the deployment: a job that is submitted, watched, and submitted again when it has died, as a supervisor would.

Each has its own way to ZooKeeper (a proxy for each server) and its own clock file, so that a fault can be one party's alone.
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
"""An executor that does not answer for 20 s is given up: then its tasks run elsewhere, and it may come back as a zombie."""


class Party:
    """A job by name, and the drivers that were started for it. `restarts`: how often one had to be replaced; `slow`: how often of
    them for want of speed.
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
        """`arguments`: those of the module, but for `url` and `marks`. `say`: is told why drivers were replaced."""
        self._say = say
        self.name = name
        self.restarts = self.slow = 0
        self.done = False
        self._module, self._script, self._arguments, self._cores = module, script, dict(arguments), cores
        self._folder, self._cluster = folder, cluster
        folder.mkdir(parents=True)
        self.clock = folder / "clock"
        self.shift = 0.0
        """Of its clock, in seconds."""
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
        """Submit a driver. It counts as the party's from now on."""
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
        """Replace the driver if it has ended and should not have; note it if it has ended as it should."""
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
        """The supervisor keeps out during the block: whoever entered it starts and ends drivers."""
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
        """The newest."""
        return self._drivers[-1]

    def application(self) -> str | None:
        """Spark's id of the newest driver, once it has one."""
        file = self._applications[-1]
        return file.read_text() if file.exists() else None

    def executors(self) -> list[Executor]:
        identity = self.application()
        return [] if identity is None else self._cluster.executors(identity)

    def task_workers(self) -> list[int]:
        """The Python processes that run its tasks."""
        return workers_below([executor.pid for executor in self.executors()])

    def driver_workers(self) -> list[int]:
        """The Python processes of its driver that plan, read streams and commit."""
        return workers_below(self.driver.members())

    @contextmanager
    def each_proxy(self, way: str, *arguments: float) -> Iterator[None]:
        """`refuse`, `delay`, `silence` or `drop_replies` on all its ways to ZooKeeper."""
        with ExitStack() as stack:
            for proxy in self.proxies:
                stack.enter_context(getattr(proxy, way)(*arguments))
            yield

    def ports(self) -> list[int]:
        """The local ports by which ZooKeeper's servers know it."""
        return [port for proxy in self.proxies for port in proxy.ports()]

    # --- the end ---

    def logs(self, characters: int = 3000) -> str:
        """The end of what the newest driver said."""
        return self.driver.tail(characters)

    def last_words(self, characters: int = 3000) -> str:
        """The end of what the driver said that was replaced last; empty if none was."""
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
    """What a driver's log says that it died of: the last thing raised."""
    found = _RAISED.findall(log)
    return str(found[-1])[:300] if found else "its log names nothing that was raised"


_TRACEBACK = "\nTraceback (most recent call last):\n"
_SLOW = re.compile(
    r"Python worker failed to connect back|for the Python worker to connect back|No ZooKeeper server of \S+ answered"
)


def for_want_of_speed(log: str) -> bool:
    """Whether a driver's last traceback is of a limit that a busy machine may exceed though all is well: Spark's, of 10 s for a
    Python worker to start, or a client's, of as much for a ZooKeeper server to answer.
    """
    _, traceback, words = f"\n{log}".rpartition(_TRACEBACK)
    return bool(traceback) and _SLOW.search(words) is not None
