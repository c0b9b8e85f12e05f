"""The three backends, real ones: each test gets an empty store of each kind and may open as many sessions on it as it likes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.servers import ZooKeeperServer
from metadata.store.contract import MetadataStore
from metadata.store.memory import MemoryStore
from metadata.store.sqlite import SqliteStore
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root


class Backend:
    """A place for one test's records. `open` gives a new session on it; all end with the test."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._opened: list[MetadataStore] = []

    def open(self, **settings: Any) -> MetadataStore:
        store: MetadataStore
        if self.kind == "memory":
            store = MemoryStore(self.url.removeprefix("memory://"), **settings)
        elif self.kind == "sqlite":
            store = SqliteStore(self.url.removeprefix("file://"), **settings)
        else:
            store = ZooKeeperStore(*hosts_and_root(self.url), **settings)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One real server for all tests; each test has a chroot of its own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zk_url(zookeeper: ZooKeeperServer) -> str:
    return f"zk://{zookeeper.hosts}/{uuid.uuid4().hex}"


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    url = {"memory": f"memory://{uuid.uuid4().hex}", "sqlite": f"file://{tmp_path}/store"}.get(request.param)
    made = Backend(request.param, url or request.getfixturevalue("zk_url"))
    yield made
    made.close()


@pytest.fixture
def store(backend: Backend) -> MetadataStore:
    return backend.open()
