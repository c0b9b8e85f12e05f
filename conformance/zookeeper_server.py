"""Real ZooKeeper servers for tests and development, from the jars that come with pyspark.

    with ZooKeeperServer(folder) as server:
        store = open_store(f"zk://{server.hosts}/test")

The servers listen on 127.0.0.1 only, keep their data in the given folder, and end with the block. A server can be stopped, killed,
suspended, and started again with its old data and port.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from conformance.class_archive import IN_PLACE, archive_folder, fingerprint
from conformance.ports import LOCAL, free_ports
from conformance.processes import marked
from conformance.server_clock import shifted
from metadata.common.errors import ConfigurationError, Unavailable
from txnsegment.java import find_java

START_SECONDS = 180.0
STOP_SECONDS = 10.0


NEEDED = ("zookeeper-", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-")
"""The beginnings of the names of the jars that a server needs. The jars serve ZooKeeper itself, its log, connections with TLS,
metrics and compressed snapshots.
"""


def zookeeper_classpath() -> str:
    """Return the class path of a server: those jars of the installed pyspark that a server needs. Raises ConfigurationError if
    ZooKeeper is not among them. With all 280 jars of pyspark, the start of a server would take 1.5 times as long.
    """
    return os.pathsep.join(map(str, _jars()))


def _jars() -> list[Path]:
    import pyspark

    folder = Path(pyspark.__file__).parent / "jars"
    jars = sorted(folder.glob("*.jar"))
    if not any(re.match(r"zookeeper-\d", jar.name) for jar in jars):
        raise ConfigurationError(f"There is no ZooKeeper in {folder}.", advice="Install pyspark 4.2 or newer from PyPI.")
    return [jar for jar in jars if jar.name.startswith(NEEDED)]


def zookeeper_archive() -> Path:
    """Return the path of the archive of a server's classes, for this Java and this pyspark. The archive may not exist: only tests
    make it (`conformance.harness.zookeeper_classes`).
    """
    return _archives() / f"{fingerprint(_jars())}.jsa"


def _archives() -> Path:
    return archive_folder("zookeeper-classes")


def archive_options() -> list[str]:
    """Return the Java options to start with the archive, or no options if there is no archive for this Java and this pyspark."""
    if not _archives().is_dir():  # so a user's server does not ask Java for its version
        return []
    archive = zookeeper_archive()
    return [*IN_PLACE, f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []


class ZooKeeperServer:
    """One server, standalone or a member of an ensemble. A context manager, which calls `start` and `stop`."""

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        member: int | None = None,
        clock_off: float = 0.0,
    ) -> None:
        """`port`: the server's port (default: a free port, reserved until this process ends). `settings`: further lines of zoo.cfg.
        `member`: the server's number in an ensemble, whose members `settings` lists. `clock_off`: the clock's error in seconds.
        """
        self.clock_off = clock_off
        self.folder = Path(folder)
        self.port = port or free_ports(1)[0]
        self._settings = dict(settings or {})
        self._java_options = list(java_options)
        self._member = member
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        """`host:port`, as a zk:// URL takes it."""
        return f"{LOCAL}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def launch(self) -> None:
        """Start the process and return at once. `wait` waits until it serves clients."""
        if self._process is not None:
            raise ConfigurationError(f"The ZooKeeper server on {self.hosts} runs already.")
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": LOCAL,
            "tickTime": "500",
            "minSessionTimeout": "1000",
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,cons,dump",
            **self._settings,
        }
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if self._member is not None:
            (data / "myid").write_text(f"{self._member}\n")
        classpath, java_options = zookeeper_classpath(), [*archive_options(), *self._java_options]
        if self.clock_off:
            clock, option = shifted(self.folder, self.clock_off)
            # The archive does not fit this class path.
            classpath, java_options = f"{clock}{os.pathsep}{classpath}", [*self._java_options, option]
        main = "ZooKeeperServerMain" if self._member is None else "quorum.QuorumPeerMain"
        with (self.folder / "server.log").open("ab") as out:
            self._process = subprocess.Popen(
                [
                    *(str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *java_options),
                    *("-cp", classpath, f"org.apache.zookeeper.server.{main}", str(config)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env=marked(),
            )

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until the server serves clients, alone or as a member of a quorum. Raises Unavailable with the end of its log."""
        deadline = time.monotonic() + seconds
        while not self.serves():
            ended = not self.running
            if ended or time.monotonic() > deadline:
                how = "has ended" if ended else f"does not serve after {seconds:g} s"
                raise Unavailable(
                    f"The ZooKeeper server on {self.hosts} {how}: ...{self._end_of_log()}",
                    advice=f"See {self.folder / 'server.log'}.",
                )
            time.sleep(0.05)

    def serves(self) -> bool:
        """Return whether the server serves clients. A server that does not serve them names no mode in its answer to `srvr`."""
        return self.mode() is not None

    def mode(self) -> str | None:
        """Return `standalone`, `leader` or `follower`; None if the server does not serve now."""
        found = re.search(r"^Mode: (\w+)", self.ask("srvr"), re.MULTILINE)
        return found[1] if found else None

    def ask(self, word: str, seconds: float = 2.0) -> str:
        """Return the answer to a four-letter command (srvr, ruok, cons, dump). Return an empty text if no answer comes within
        `seconds`.
        """
        answer = b""
        try:
            with socket.create_connection((LOCAL, self.port), timeout=seconds) as connection:
                connection.sendall(word.encode())
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        return answer.decode(errors="replace")

    def start(self) -> Self:
        self.launch()
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the server with SIGTERM, and after this number of seconds with SIGKILL. Its data stays, and `start` uses it again."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End the server with SIGKILL. It loses everything that it has not written yet."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def suspend(self) -> None:
        """Suspend the process. The server then does not answer and keeps all connections open, as on a paused machine."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _end_of_log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-1500:]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class ZooKeeperEnsemble:
    """Several servers that form a quorum. A context manager. `servers`: the members, ordered by their numbers."""

    def __init__(
        self, folder: Path | str, *, size: int = 3, settings: Mapping[str, str] | None = None, clocks_off: Sequence[float] = ()
    ) -> None:
        """`settings`: further lines of every member's zoo.cfg. `clocks_off`: the error of each member's clock, in seconds."""
        off = [*clocks_off, *[0.0] * size]
        ports = free_ports(3 * size)
        members = {f"server.{i + 1}": f"{LOCAL}:{ports[3 * i + 1]}:{ports[3 * i + 2]};{LOCAL}:{ports[3 * i]}" for i in range(size)}
        lines = {"initLimit": "20", "syncLimit": "10", **members, **(settings or {})}
        self.servers = [
            ZooKeeperServer(Path(folder) / f"server-{i + 1}", port=ports[3 * i], settings=lines, member=i + 1, clock_off=off[i])
            for i in range(size)
        ]

    @property
    def hosts(self) -> str:
        """`host:port,host:port,host:port`, as a zk:// URL takes it."""
        return ",".join(server.hosts for server in self.servers)

    def __enter__(self) -> Self:
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def leader(self, seconds: float = START_SECONDS) -> ZooKeeperServer:
        """Wait for a leader and return it. Raises Unavailable if there is none within this number of seconds."""
        return self._of_mode("leader", seconds)

    def follower(self, seconds: float = START_SECONDS) -> ZooKeeperServer:
        """Wait for a follower and return the first one. Raises Unavailable if there is none within this number of seconds."""
        return self._of_mode("follower", seconds)

    def _of_mode(self, mode: str, seconds: float) -> ZooKeeperServer:
        deadline = time.monotonic() + seconds
        while True:
            for server in self.servers:
                if server.running and server.mode() == mode:
                    return server
            if time.monotonic() > deadline:
                raise Unavailable(f"The ensemble {self.hosts} has had no {mode} for {seconds:g} s.", advice="See server.log.")
            time.sleep(0.05)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
