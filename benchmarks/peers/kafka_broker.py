"""One Kafka broker in KRaft mode, which needs no ZooKeeper."""

from __future__ import annotations

import base64
import socket
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from conformance.ports import LOCAL, free_ports
from conformance.processes import Session
from metadata.common.errors import Unavailable
from txnsegment.java import find_java

START_SECONDS = 180.0


class KafkaBroker:
    """A context manager. `flushed`: flush each message to the disk before it is acknowledged, as txnsegment flushes its files. A
    broker of one node does not do this by default.
    """

    def __init__(self, folder: Path, jars: Sequence[Path], *, flushed: bool = False) -> None:
        self.folder = folder
        port, controller = free_ports(2)
        self.hosts = f"{LOCAL}:{port}"
        self._classes = ":".join(map(str, jars))
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOCAL}:{controller}",
            "listeners": f"PLAINTEXT://{self.hosts},CONTROLLER://{LOCAL}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.hosts}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.logs),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.hours": "-1",
            "auto.create.topics.enable": "false",
            "message.max.bytes": str(16 << 20),
        }
        if flushed:
            settings["log.flush.interval.messages"] = "1"
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")

    @property
    def logs(self) -> Path:
        """The folder of the topics: a folder for each partition, named `<topic>-<partition>`."""
        return self.folder / "logs"

    @property
    def pid(self) -> int:
        return self._session.pid

    def _java(self, main: str, *arguments: str) -> list[str]:
        options = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        return [str(find_java()), *options, "-cp", self._classes, main, *arguments]

    def __enter__(self) -> Self:
        if not (self.logs / "meta.properties").exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            format_ = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._settings))
            subprocess.run(format_, check=True, capture_output=True)
        self._session = Session(self._java("kafka.Kafka", str(self._settings)), self.folder / "server.log")
        try:
            self._wait()
        except BaseException:
            self._session.stop()
            raise
        return self

    def _wait(self) -> None:
        """Wait until the broker accepts connections. Clients then wait until it answers."""
        deadline = time.monotonic() + START_SECONDS
        host, port = self.hosts.split(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
                return
            except OSError as error:
                if not self._session.running() or time.monotonic() > deadline:
                    raise Unavailable(f"Kafka did not start on {self.hosts}: {self._session.tail()}") from error
                time.sleep(0.1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._session.stop(60)
