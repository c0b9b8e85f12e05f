"""Fixtures of the chaos tests: clusters, and child processes that may be killed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.scenarios.driver import Place
from conformance.scenarios.forks import Forks
from conformance.servers import ZooKeeperServer


@pytest.fixture(scope="session")
def forks() -> Forks:
    return Forks()


@pytest.fixture
def cluster_at(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Place]:
    """Return a function that makes an unused place. Its argument is the store: `sqlite` or `zookeeper`."""

    def place(store: str) -> Place:
        name = uuid.uuid4().hex
        if store == "sqlite":
            return Place(f"file://{tmp_path}/{name}", "chaos")
        server: ZooKeeperServer = request.getfixturevalue("zookeeper")
        return Place(f"zk://{server.hosts}/{name}", "chaos", f"file://{tmp_path}/{name}-ledgers")

    return place
