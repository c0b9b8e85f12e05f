"""Buckets on S3 servers, clusters that keep their ledgers in them, and short calls to write and read these clusters."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from conformance.object_proxy import Held, ObjectProxy
from conformance.object_stores import ObjectServer
from ledgers.storage import LedgerStorage
from metadata.cluster.cluster import open_cluster
from metadata.records.cluster_records import Settings
from txnsegment import Cluster, connect

QUICK = Settings(
    txn_timeout_ms=200, max_txn_timeout_ms=200, deadline_allowance_ms=50, orphan_age_ms=1000, grace_period_ms=1, fold_after_ms=0
)
"""Settings of a cluster whose files become orphans after a second."""


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

    def objects(self, ending: str = "") -> list[str]:
        """Return the keys of the objects, without markers of folders."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        found = [one["Key"] for page in pages for one in page.get("Contents", [])]
        return sorted(key for key in found if key.endswith(ending) and not key.endswith("/"))

    def uploads(self) -> list[str]:
        """Return the keys of the unfinished multipart uploads."""
        return [one["Key"] for one in self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", [])]


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"k": ["a", "b"] * (count // 2), "v": range(first, first + count)})


def append(cluster: Cluster, first: int, count: int = 10, topic: str = "t") -> None:
    with cluster.begin() as txn:
        txn.append(topic, rows(first, count))
        txn.commit()


def values(cluster: Cluster, topic: str = "t") -> list[int]:
    return sorted(cluster.topics.read(topic).read_all()["v"].to_pylist())


def sweep_until(cluster: Cluster, done: Callable[[], bool]) -> None:
    """Sweep until files have become old enough, which takes a second."""
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline, "the sweep deletes nothing"
        cluster.sweep()
        time.sleep(0.1)


def while_the_server_restarts(real: Place, held: Held, run: Callable[[], None]) -> None:
    """Run `run`. When its request is held, kill the server, let the request through, and start the server again after a further
    request has failed. The kill is done by a second thread: Spark knows the session of the first one only.
    """
    seen: list[str] = []

    def restart() -> None:
        held.wait()
        real.server.kill()
        try:
            with real.proxy.counting() as requests:
                held.release()
                deadline = time.monotonic() + 30
                while not requests and time.monotonic() < deadline:
                    time.sleep(0.01)
            seen.extend(requests)
        finally:
            real.server.start()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        run()
    finally:
        held.release()
        thread.join(120)
    assert seen, "the server was killed, and no request was sent while it was down"
