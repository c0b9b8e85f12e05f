"""Fixtures of the tests on object stores. Tests with the mark `objects` run on VersityGW (`make objects`), the others on Moto
(`make test`). A test that asks for `store` runs on both.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.object_proxy import ObjectProxy
from conformance.object_stores import ACCESS_KEY, SECRET_KEY, MotoServer, ObjectServer, VersityGateway
from ledgers.storage import LedgerStorage
from metadata.cluster.cluster import open_cluster
from metadata.records.cluster_records import Settings
from txnsegment import Cluster, connect

QUICK = Settings(
    txn_timeout_ms=200, max_txn_timeout_ms=200, deadline_allowance_ms=50, orphan_age_ms=1000, grace_period_ms=1, fold_after_ms=0
)
"""Settings of a cluster whose files become orphans after a second."""


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


class Place:
    """A bucket on a server, behind a proxy, and a folder for the stores of clusters that keep their ledgers in the bucket."""

    def __init__(self, server: ObjectServer, proxy: ObjectProxy, folder: Path) -> None:
        self.server, self.proxy, self.folder = server, proxy, folder
        self.bucket = f"b{uuid.uuid4().hex[:20]}"
        self.s3 = server.client()
        self.s3.create_bucket(Bucket=self.bucket)
        self.uri = server.uri(self.bucket, hosts=proxy.hosts)
        self.url = f"file://{folder}/cluster"

    def storage(self) -> LedgerStorage:
        return LedgerStorage(self.uri)

    def cluster(self, settings: Settings | None = None) -> Cluster:
        """Connect to the cluster of this place, which the first call creates."""
        if settings is not None:
            open_cluster(self.url, ledgers=self.uri, settings=settings).store.close()
        return connect(self.url, ledgers=self.uri)

    def keys(self, ending: str = "") -> list[str]:
        """Return the keys of the objects, without markers of folders."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        found = [one["Key"] for page in pages for one in page.get("Contents", [])]
        return sorted(key for key in found if key.endswith(ending) and not key.endswith("/"))

    def uploads(self) -> list[str]:
        """Return the keys of the unfinished multipart uploads."""
        return [one["Key"] for one in self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])]


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
