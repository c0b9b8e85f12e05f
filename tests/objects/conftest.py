"""Fixtures of the tests on object stores. Tests with the mark `objects` run on VersityGW (`make objects`), the others on Moto
(`make test`). A test that asks for `store` runs on both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.object_proxy import ObjectProxy
from conformance.object_stores import ACCESS_KEY, SECRET_KEY, MotoServer, ObjectServer, VersityGateway
from tests.support.object_places import Place


@pytest.fixture(scope="session", autouse=True)
def credentials() -> None:
    """The credentials of the servers, in the environment of this process: a JVM and its workers keep the environment of their
    start.
    """
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY, AWS_EC2_METADATA_DISABLED="true")


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    with MotoServer(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    """A test that ends the server starts it again."""
    with VersityGateway(tmp_path_factory.mktemp("gateway")) as server:
        yield server


@pytest.fixture(params=["moto", pytest.param("gateway", marks=pytest.mark.objects)])
def store(request: pytest.FixtureRequest) -> ObjectServer:
    found: ObjectServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def proxy(store: ObjectServer) -> Iterator[ObjectProxy]:
    with ObjectProxy(store.port) as found:
        yield found


@pytest.fixture
def place(store: ObjectServer, proxy: ObjectProxy, tmp_path: Path) -> Place:
    return Place(store, proxy, tmp_path)


@pytest.fixture
def real(gateway: VersityGateway, tmp_path: Path) -> Iterator[Place]:
    """A place on the real server, for tests with the mark `objects`."""
    with ObjectProxy(gateway.port) as proxy:
        yield Place(gateway, proxy, tmp_path)
