"""A real Pulsar 5 broker for tests and development: standalone, with its bookie in the same process, and a ZooKeeper server.

    with PulsarBroker(folder) as broker:
        topic = broker.create("orders", 4)                  # topic://public/default/orders
        spark.readStream.format("txnsegment").option("serviceUrl", broker.url).option("topic", topic)

Maven downloads the jars of Pulsar (`conformance.pulsar_jars`); ZooKeeper is that of `conformance.zookeeper_server`, because the one
inside Pulsar would listen on all interfaces. All servers listen on 127.0.0.1 only, on ports that no other process uses, so several
brokers can run on one machine. They keep their data in the given folder and end with the block. If the process that started them
is killed, they are killed, too. A broker needs some 20 s to start, and 500 MB of memory.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from conformance.ports import LOCAL, free_ports
from conformance.processes import Session
from conformance.pulsar_jars import java_command
from conformance.zookeeper_server import ZooKeeperServer
from metadata.common.errors import ConfigurationError, Unavailable
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import PulsarError

START_SECONDS: Final = 240.0
ANSWER_SECONDS: Final = 60.0
_COORDINATORS: Final = 2
_MEMORY: Final = ("-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m")

_SETTINGS: Final[Mapping[str, object]] = {
    # One bookie, which listens on the loopback interface as the broker does.
    "clusterName": "standalone",
    "bindAddress": LOCAL,
    "advertisedAddress": LOCAL,
    "listeningInterface": "lo",
    "allowLoopback": True,
    "allowEphemeralPorts": True,
    "managedLedgerDefaultEnsembleSize": 1,
    "managedLedgerDefaultWriteQuorum": 1,
    "managedLedgerDefaultAckQuorum": 1,
    # Scalable topics and their transactions. Layouts change only when a test asks for it, and retention deletes no row.
    "scalableTopicsEnabled": True,
    "scalableTopicAutoScaleEnabled": False,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "transactionCoordinatorEnabled": True,
    "transactionCoordinatorScalableTopicsEnabled": True,
    "transactionCoordinatorScalableTopicsParallelism": _COORDINATORS,
    "transactionCoordinatorScalableTopicsTimeoutSweepIntervalSeconds": 5,
    "transactionCoordinatorScalableTopicsGcIntervalSeconds": 20,
    "transactionCoordinatorScalableTopicsGcRetentionSeconds": 120,
    "systemTopicEnabled": True,
    "topicLevelPoliciesEnabled": True,
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    # Settings for little memory, few threads and short waits. The bookie writes its journal, so that a killed broker loses nothing.
    # It does not wait until the journal is on the disk.
    "brokerShutdownTimeoutMs": 5000,
    "loadBalancerEnabled": False,
    "defaultNumberOfNamespaceBundles": 1,
    "managedLedgerCacheSizeMB": 16,
    "numIOThreads": 2,
    "numHttpServerThreads": 8,
    "numOrderedExecutorThreads": 2,
    "numExecutorThreadPoolSize": 2,
    "numCacheExecutorThreadPoolSize": 2,
    "exposeTopicLevelMetricsInPrometheus": False,
    "journalWriteData": True,
    "journalSyncData": False,
    "journalMaxGroupWaitMSec": 1,
    "journalPreAllocSizeMB": 4,
    "journalMaxSizeMB": 64,
    "journalMaxBackups": 0,
    "gcWaitTime": 300_000,
    "diskUsageThreshold": 0.99,
    "diskUsageWarnThreshold": 0.99,
    "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
    "dbStorage_writeCacheMaxSizeMb": 16,
    "dbStorage_readAheadCacheMaxSizeMb": 16,
    "dbStorage_rocksDB_blockCacheSize": 16_777_216,
}


class PulsarBroker:
    """A broker with its bookie and its ZooKeeper server. A context manager, which calls `start` and `stop`."""

    def __init__(
        self,
        folder: Path | str,
        *,
        port: int = 0,
        web_port: int = 0,
        settings: Mapping[str, object] | None = None,
        token: str | None = None,
    ) -> None:
        """`port`, `web_port`: the ports of the binary protocol and of the REST interface (0: a free port, reserved until this
        process ends). `settings`: further lines of the broker's configuration, which take precedence over those of this module.
        `token`: the token of a superuser, which the requests of this class send (needed if `settings` switch authentication on).
        """
        self.folder = Path(folder).absolute()
        self.port, self.web_port = (given or free for given, free in zip((port, web_port), free_ports(2), strict=True))
        self.zookeeper = ZooKeeperServer(self.folder / "zookeeper")
        self._settings, self._token = dict(settings or {}), token
        self._session: Session | None = None

    @property
    def url(self) -> str:
        """The service URL, as the option `serviceUrl` takes it."""
        return f"pulsar://{LOCAL}:{self.port}"

    @property
    def admin_url(self) -> str:
        """The URL of Pulsar's REST interface, as the option `adminUrl` takes it."""
        return f"http://{LOCAL}:{self.web_port}"

    @property
    def admin(self) -> str:
        """The beginning of the URLs of requests to the REST interface."""
        return f"{self.admin_url}/admin/v2"

    @property
    def metadata_url(self) -> str:
        """The URL of Pulsar's metadata store, as `open_store` takes it."""
        return f"zk://{self.zookeeper.hosts}/"

    @property
    def log(self) -> Path:
        """The log of the broker and its bookie."""
        return self.folder / "broker.log"

    @property
    def pid(self) -> int | None:
        return self._session.pid if self._session else None

    @property
    def running(self) -> bool:
        return self._session is not None and self._session.running()

    # --- topics ---

    def create(self, topic: str, segments: int = 1) -> str:
        """Create a scalable topic with this number of segments and return its full name. `topic`: the full name, or a name within
        the namespace public/default. Raises Unavailable, with the broker's answer, if the broker refuses or cannot be reached.
        """
        name = _full(topic)
        self.rest("PUT", f"{_path(name)}?numInitialSegments={segments}")
        return name

    def split(self, topic: str, segment: int) -> None:
        """Split a segment into two, each with half of its range. `segment`: the number of the segment in the layout."""
        self.rest("POST", f"{_path(_full(topic))}/split/{segment}")

    def merge(self, topic: str, a: int, b: int) -> None:
        """Merge two neighbouring segments. `a`, `b`: the numbers of the segments in the layout."""
        self.rest("POST", f"{_path(_full(topic))}/merge/{a}/{b}")

    def layout(self, topic: str) -> dict[str, Any]:
        """Return the layout record of a scalable topic as the REST interface gives it."""
        found: dict[str, Any] = json.loads(self.rest("GET", _path(_full(topic))))
        return found

    def rest(self, method: str, path: str, body: object = None) -> str:
        """Send a request to the REST interface and return the answer. `path`: the part of the URL after `/admin/v2/`. `body`: a
        value that is sent as JSON (None: no body). Raises Unavailable if the broker cannot be reached, or refuses.
        """
        request = urllib.request.Request(
            f"{self.admin}/{path}",
            method=method,
            data=b"" if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if self._token else {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                said: str = answer.read().decode()
                return said
        except urllib.error.HTTPError as error:
            with error:
                why = error.read().decode(errors="replace")
            raise Unavailable(
                f"{method} {request.full_url} answered {error.code}: {why[:1000]}", advice=f"See {self.log}."
            ) from error
        except (OSError, HTTPException) as error:
            raise Unavailable(f"{method} {request.full_url} failed: {error}.", advice=f"See {self.log}.") from error

    # --- the processes ---

    def launch(self) -> None:
        """Start the processes and return at once. `wait` waits until the broker is ready."""
        if self._session is not None:
            raise ConfigurationError(f"The broker {self.url} runs already.")
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.zookeeper.running:
            self.zookeeper.start()
        self._end_sessions()
        config = self.folder / "standalone.conf"
        config.write_text("".join(f"{name}={_text(value)}\n" for name, value in self._lines().items()), encoding="utf-8")
        command = java_command("org.apache.pulsar.PulsarStandaloneStarter", self.folder, options=_MEMORY, level="INFO")
        command += ["--config", str(config), "--no-functions-worker", "--no-stream-storage"]
        command += ["--metadata-url", f"zk:{self.zookeeper.hosts}", "--bookkeeper-dir", str(self.folder / "bookkeeper")]
        self._session = Session(command, self.log, folder=self.folder)

    def _end_sessions(self) -> None:
        """Delete the ephemeral nodes of a killed broker. ZooKeeper itself would delete them after 30 s. A bookie that is started
        while these nodes exist does not register itself again when they are deleted.
        """
        paths = re.findall(r"^\t(/.*)$", self.zookeeper.ask("dump"), re.MULTILINE)
        if paths:
            client = KazooClient(self.zookeeper.hosts)
            client.start(START_SECONDS)
            try:
                for path in paths:
                    with suppress(NoNodeError):
                        client.delete(path)
            finally:
                client.stop()
                client.close()

    def _lines(self) -> dict[str, object]:
        return {**_SETTINGS, "brokerServicePort": self.port, "webServicePort": self.web_port, **self._settings}

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Wait until the broker serves clients and transactions. Raises Unavailable with the end of its log."""
        deadline = time.monotonic() + seconds
        while not self.ready():
            ended = not self.running
            if ended or time.monotonic() > deadline:
                how = "has ended" if ended else f"is not ready after {seconds:g} s"
                said = self._session.tail() if self._session is not None else ""
                raise Unavailable(f"The Pulsar broker {self.url} {how}: ...{said}", advice=f"See {self.log}.")
            time.sleep(0.2)

    def ready(self) -> bool:
        """Return whether the broker serves clients and transactions: the namespace public/default exists, and each transaction
        coordinator has a broker. If `settings` switch the coordinators off, the namespace is enough.
        """
        with suppress(OSError), socket.create_connection((LOCAL, self.port), timeout=2):
            lines = self._lines()
            try:
                self.rest("GET", "namespaces/public/default")
                if not (lines["transactionCoordinatorEnabled"] and lines["transactionCoordinatorScalableTopicsEnabled"]):
                    return True
                token = self._token
                auth = None if token is None else lambda challenge: ("token", token.encode())
                with PulsarClient(self.url, seconds=5, authenticate=auth) as client:
                    return len(client.coordinators()) == lines["transactionCoordinatorScalableTopicsParallelism"]
            except (Unavailable, PulsarError):
                return False
        return False

    def start(self) -> Self:
        """Start the processes and wait until the broker is ready. Raises Unavailable if the broker does not become ready, and
        ConfigurationError if it runs already, or if Java or Maven is missing.
        """
        try:
            self.launch()
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def kill(self) -> None:
        """End the broker and its bookie with SIGKILL. ZooKeeper goes on. `start` starts the broker again with its old data."""
        session, self._session = self._session, None
        if session is not None:
            session.kill()

    def end(self) -> None:
        """End the broker and its bookie with SIGTERM, and with SIGKILL if they still run after a time limit. ZooKeeper goes on."""
        session, self._session = self._session, None
        if session is not None:
            session.stop()

    def restart(self) -> None:
        """End the broker with SIGTERM if it runs, start it again with its old data, and wait until it is ready."""
        self.end()
        self.start()

    def suspend(self) -> None:
        """Suspend the broker. It then does not answer and keeps all connections open, as on a paused machine."""
        assert self._session is not None
        self._session.send(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._session is not None
        self._session.send(signal.SIGCONT)

    def stop(self) -> None:
        """Kill the broker, and end ZooKeeper. Their data stays in the folder."""
        self.kill()
        self.zookeeper.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _full(topic: str) -> str:
    return topic if "://" in topic else f"topic://public/default/{topic}"


def _path(topic: str) -> str:
    """Return the path of a scalable topic in the REST interface."""
    return f"scalable/{topic.removeprefix('topic://')}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
