"""Measures the cost of a commit on each store: sequential round trips, latency, and commits a second with 1, 4 and 16 writers."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from urllib.parse import quote

from benchmarks.measure import Report, folder
from conformance.harness.faulty_store import FaultyStore
from conformance.harness.round_trips import Counting
from conformance.servers import ZooKeeperServer
from ledgers.model import Part
from ledgers.storage import LedgerStorage
from metadata.client.client import client
from metadata.cluster.cluster import open_cluster
from metadata.records.names import topic_name
from metadata.rules.transitions import Claim
from metadata.write.write_set import WriteSet

SECONDS = 8.0
BYTES = 10_000


def _path(app: str) -> str:
    return f"bench/{quote(app, safe='')}.parquet"


def lay(storage: LedgerStorage, app: str) -> None:
    """Publish the one file of an application. All parts of its transactions name this file."""
    if storage.info(_path(app)) is None:
        storage.publish(_path(app), bytes(BYTES))


def write_set(topic: str, segments: list[str], app: str, version: int, staged_ms: int, parts: int = 1) -> WriteSet:
    """Return the write set of a transaction over all these segments. All parts name the one file that `lay` publishes. That is
    enough, because a commit checks that the file of a part exists, and never opens the file.
    """
    found = {s: [Part(_path(app), 100, BYTES, 1, (100,), 0) for _ in range(parts)] for s in segments}
    return WriteSet(app, topic, Claim(version, app, f"{app}-{version}", True), found, staged_ms, 30_000)


def _writer(url: str, app: str, seconds: float, results: Queue[list[float]]) -> None:
    made = client(open_cluster(url))
    topic = made.topics.get(topic_name("bench"))
    segments = topic.segments()
    lay(made.cluster.storage, app)
    taken = []
    version = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work = write_set(str(topic.name), segments, app, version, made.cluster.store.view().now_ms())
        started = time.perf_counter()
        made.coordinator.commit(work)
        taken.append(time.perf_counter() - started)
        version += 1
    made.close()
    results.put(taken)


def rate(url: str, writers: int, seconds: float = SECONDS) -> tuple[float, float]:
    """Return (commits a second, median latency in ms). Each of the `writers` processes is an application of its own. All of them
    commit to the same 4 segments.
    """
    context = multiprocessing.get_context("spawn")
    results: Queue[list[float]] = context.Queue()
    processes = [context.Process(target=_writer, args=(url, f"app-{writers}-{i}", seconds, results)) for i in range(writers)]
    for process in processes:
        process.start()
    taken = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(len(t) for t in taken) / seconds, statistics.median(x for t in taken for x in t) * 1000


def round_trips(url: str, segments: int, parts: int, history: int) -> int:
    """Return the largest number of sequential round trips of one commit, after `history` commits have filled the caches."""
    cluster = open_cluster(url)
    counting = Counting()
    cluster.store = FaultyStore(cluster.store, counting)
    made = client(cluster)
    name = topic_name(f"trips-{segments}-{parts}-{history}")
    topic = made.topics.create(name, segments=segments)
    made.coordinator.background = lambda job: None  # skips the work for which a commit does not wait
    lay(cluster.storage, str(name))
    worst = 0
    for version in range(history + 3):
        work = write_set(str(name), topic.segments(), str(name), version, cluster.store.view().now_ms(), parts)
        counting.reset()
        made.coordinator.commit(work)
        worst = max(worst, counting.trips) if version >= history else 0
    made.close()
    return worst


@contextmanager
def stores() -> Iterator[dict[str, str]]:
    """Yield the service URLs of one cluster on each store. Each cluster has a topic `bench` of 4 segments."""
    with folder() as root, ZooKeeperServer(root / "zookeeper") as server:
        urls = {"sqlite": f"file://{root}/sqlite", "zookeeper": f"zk://{server.hosts}/bench"}
        for name, url in urls.items():
            ledgers = root / f"{name}-ledgers"
            made = client(open_cluster(url, ledgers=None if name == "sqlite" else f"file://{Path(ledgers).resolve()}"))
            made.topics.create(topic_name("bench"), segments=4)
            made.close()
        yield urls


def run(*, seconds: float = SECONDS) -> Report:
    report = Report("Commits")
    with stores() as urls:
        for name, url in urls.items():
            trips = {
                f"{segments} segments, {parts} parts each, {history} commits before": round_trips(url, segments, parts, history)
                for segments, parts, history in ((1, 1, 1), (4, 1, 1), (64, 1, 1), (4, 200, 1), (4, 1, 60))
            }
            report.claim(f"{name}: round trips that a commit waits for, at most", max(trips.values()), 8, at_least=False, unit="")
            report.claim(
                f"{name}: spread over segments, parts and history",
                max(trips.values()) - min(trips.values()),
                0,
                at_least=False,
                unit="",
            )
            for writers in (1, 4, 16):
                per_second, median = rate(url, writers, seconds)
                report.figures.append(
                    (f"{name}, {writers} writers, 4 segments", f"{per_second:.0f} commits/s, median {median:.1f} ms")
                )
    return report


if __name__ == "__main__":
    run().show()
