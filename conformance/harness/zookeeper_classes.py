"""The archive of the Java classes of ZooKeeper servers, for suites that start many of them. A server uses it if it is there
(`conformance.zookeeper_server`).
"""

from __future__ import annotations

from pathlib import Path

from kazoo.client import KazooClient

from conformance.class_archive import keep
from conformance.zookeeper_server import START_SECONDS, ZooKeeperServer, zookeeper_archive
from metadata.common.errors import ConfigurationError


def make_archive() -> Path:
    """Return the path of the archive for this Java and this pyspark. The first call in an environment makes the archive, which
    takes 1.4 s of processor time. Raises ConfigurationError if the archive cannot be made.
    """
    archive = zookeeper_archive()
    keep(archive, _make)
    return archive


def _make(made: Path) -> None:
    """Start a server, call it, and end it. Java then stores the classes that the server has loaded. Raises ConfigurationError."""
    with ZooKeeperServer(made.parent / "server", java_options=[f"-XX:ArchiveClassesAtExit={made}"]) as server:
        client = KazooClient(server.hosts)
        client.start()
        try:
            client.create("/one", b"1", ephemeral=True)
            client.set("/one", b"2")
            client.get_children("/", watch=lambda _: None)
            two = client.transaction()
            two.check("/one", 1)
            two.create("/two", b"")
            assert two.commit()[1] == "/two"
        finally:
            client.stop()
            client.close()
        server.stop(START_SECONDS)  # Java writes the archive at its end
        if not made.exists():
            log = server.folder / "server.log"
            raise ConfigurationError(
                f"A ZooKeeper server left no archive of its classes: {log.read_text(errors='replace')[-2000:]}",
                advice="Servers start without it, too; it needs Java 17 or newer.",
            )
