"""A real ZooKeeper server, shared by all tests here: each uses a chroot of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.servers import ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
