"""A real ZooKeeper for all tests of this folder; a chroot of its own for each test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from conformance.servers import ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One real server for all tests; each test has a chroot of its own."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def zk_url(zookeeper: ZooKeeperServer) -> str:
    return f"zk://{zookeeper.hosts}/{uuid.uuid4().hex}"
