"""Pytest fixtures of the real servers, for the tests of other projects: `pytest_plugins = ["conformance.fixtures"]`.

Each server starts when the first test asks for it, and ends with the pytest session.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.servers import PulsarBroker, SparkCluster, ZooKeeperEnsemble, ZooKeeperServer


@pytest.fixture(scope="session")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One server. Give each test a chroot of its own: `zk://{zookeeper_server.hosts}/{name}`."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three servers with a quorum. A test that stops a server must start it again."""
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble")) as ensemble:
        yield ensemble


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A master and two workers. Drivers and executors use the Python that runs pytest."""
    with SparkCluster(tmp_path_factory.mktemp("spark-cluster"), python=Path(sys.executable)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def pulsar_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarBroker]:
    """A Pulsar 5 broker. A test that ends the broker must start it again."""
    with PulsarBroker(tmp_path_factory.mktemp("pulsar")) as broker:
        yield broker
