"""Measures the time from a commit to the delivery of its rows to a waiting `Consumer` in another process, on each store."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

from benchmarks.measure import Report, folder
from conformance.servers import ZooKeeperServer
from txnsegment import connect

COMMITS = 200
PAUSE_SECONDS = 0.05
WANTED_MS = 50.0


def _consume(url: str, count: int, ready: Event, results: Queue[dict[int, float]]) -> None:
    """Report the arrival time of each row on the machine's monotonic clock, which all processes share."""
    arrived: dict[int, float] = {}
    with connect(url) as cluster, cluster.consumer("bench", "latency", start="earliest") as consumer:
        ready.set()
        for message in consumer.messages():
            arrived[message.value["n"]] = time.monotonic()
            if len(arrived) == count:
                break
    results.put(arrived)


def latencies(url: str, *, segments: int = 4, count: int = COMMITS) -> list[float]:
    """Return the milliseconds from the end of `flush` to the delivery of its row, for `count` transactions of one row each."""
    context = multiprocessing.get_context("spawn")
    results: Queue[dict[int, float]] = context.Queue()
    ready = context.Event()
    committed: dict[int, float] = {}
    with connect(url) as cluster:
        cluster.topics.create("bench", schema="n bigint", segments=segments)
        process = context.Process(target=_consume, args=(url, count, ready, results))
        process.start()
        ready.wait()
        producer = cluster.producer("bench")
        for n in range(count):
            producer.send({"n": n})
            producer.flush()
            committed[n] = time.monotonic()
            time.sleep(PAUSE_SECONDS)
        arrived = results.get()
        process.join()
    return sorted((arrived[n] - at) * 1000 for n, at in committed.items())


def run() -> Report:
    report = Report("Consumer: from commit to delivery")
    with folder() as where, ZooKeeperServer(where / "zookeeper") as server:
        urls: dict[str, Callable[[], str]] = {
            "ZooKeeper": lambda: f"zk://{server.hosts}/bench",
            "SQLite": lambda: f"file://{where}/cluster",
        }
        for name, url in urls.items():
            if name == "ZooKeeper":
                connect(url(), ledgers=f"file://{where}/ledgers").close()
            found = latencies(url())
            report.claim(f"{name}: median from commit to delivery", statistics.median(found), WANTED_MS, at_least=False, unit="ms")
            report.figures.append(
                (f"{name}: 10%, 90%, 99%, highest", ", ".join(f"{_at(found, q):.1f} ms" for q in (10, 90, 99, 100)))
            )
    return report


def _at(ordered: list[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
