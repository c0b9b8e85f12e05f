from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.pulsar_java import JavaClient
from pulsar_protocol.client import PulsarClient
from tests.support.pulsar_clusters import cluster

__all__ = ["cluster"]


@pytest.fixture(scope="session")
def java(pulsar: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    """Pulsar's own Java client, connected to the broker of the tests."""
    with JavaClient(tmp_path_factory.mktemp("java"), pulsar) as client:
        yield client


@pytest.fixture
def client(pulsar: str) -> Iterator[PulsarClient]:
    """This project's client of the same broker."""
    with PulsarClient(pulsar) as opened:
        yield opened
