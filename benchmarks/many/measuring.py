"""Runs the cells of the benchmark: so many writers beside so many readers, on a new cluster of one ensemble."""

from __future__ import annotations

import os
import re
import statistics
import tempfile
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.table import Table

from benchmarks.many.parties import ROWS, SCHEMA, Commit, Place, Saw, Wrote, read, write
from benchmarks.measure import Report, folder
from benchmarks.peers.timed import processor_seconds
from conformance.scenarios.forks import Child, Forks
from conformance.scenarios.together import ENOUGH, START, STOP, wait_until
from conformance.servers import ZooKeeperEnsemble, ZooKeeperServer
from txnsegment import connect
from txnsegment.schemas import from_arrow

SECONDS = 8.0
TOPICS = 16
SEGMENTS = 4
"""Segments of the one topic of a cell whose writers share it. A topic of one writer has one segment."""
CHANGES, REQUESTS = 13, 24
"""What a transaction may cost an ensemble without readers, staging and background work included."""
IDLE_REQUESTS = 45
"""What an idle reader may cost in a second: some ten polls of three requests, and a full reading. Spark asks a hundred times."""
FAIR = 0.5
SETTLE_SECONDS = 1.5
"""How long the readers wait for the first commit, so that they are idle then."""
DRAIN_SECONDS = 120.0
"""How long readers and writers may take to end."""


@dataclass(frozen=True)
class Cell:
    """So many writers and readers. `shared`: all of them use one topic. Otherwise each writer has a topic, and the readers are
    divided among the topics.
    """

    writers: int
    readers: int
    shared: bool = False

    def __str__(self) -> str:
        return f"{self.writers} writers, {self.readers} readers" + (", one topic" if self.shared else "")

    def topic(self, number: int) -> str:
        """Return the topic of a writer or reader with this number."""
        return f"many-{0 if self.shared else number % max(1, min(self.writers or TOPICS, TOPICS))}"


CELLS = (
    *(Cell(writers, readers) for writers in (1, 4, 16) for readers in (0, 16, 64)),
    Cell(16, 64, shared=True),
    Cell(0, 64),
)


@dataclass(frozen=True)
class Server:
    """The counters of the servers of an ensemble: requests of clients, changes of the state, seconds of processor time of each
    server.
    """

    requests: int
    changes: int
    processors: tuple[float, ...]

    @classmethod
    def of(cls, servers: Sequence[ZooKeeperServer]) -> Server:
        answers = [server.ask("srvr") for server in servers]
        received = sum(int(_found(r"^Received: (\d+)", answer)) for answer in answers)
        zxids = [int(_found(r"^Zxid: 0x([0-9a-f]+)", answer), 16) for answer in answers]
        changes = max((zxid & 0xFFFFFFFF for zxid in zxids), default=0)  # the upper half counts the leaders
        return cls(received, changes, tuple(processor_seconds([server.pid or 0]) for server in servers))

    def since(self, before: Server) -> Server:
        used = tuple(now - then for now, then in zip(self.processors, before.processors, strict=True))
        return Server(self.requests - before.requests, self.changes - before.changes, used)

    @property
    def processor(self) -> float:
        return sum(self.processors)


def _found(pattern: str, answer: str) -> str:
    found = re.search(pattern, answer, re.MULTILINE)
    if found is None:
        raise ValueError(f"The answer to srvr has no line {pattern}: {answer}")
    return found[1]


@dataclass(frozen=True)
class Result:
    """What one cell measured in `seconds`."""

    cell: Cell
    seconds: float
    server: Server
    wrote: Sequence[Wrote]
    saw: Sequence[Saw]

    @property
    def commits(self) -> int:
        return sum(len(one.commits) for one in self.wrote)

    @property
    def per_second(self) -> float:
        return self.commits / self.seconds

    def commit_ms(self, percent: int) -> float:
        return percentile([commit.seconds * 1000 for one in self.wrote for commit in one.commits], percent)

    @property
    def fairness(self) -> float:
        """The commits of the slowest writer, by the mean."""
        counts = [len(one.commits) for one in self.wrote]
        return min(counts) / statistics.mean(counts) if counts else float("nan")

    def lags_ms(self) -> list[list[float]]:
        """Return for each reader the delay of each commit to its topic: from the return of the commit to the end of the
        micro-batch.
        """
        by_topic: dict[str, list[Commit]] = defaultdict(list)
        for one in self.wrote:
            by_topic[one.topic] += one.commits
        return [delays(by_topic[one.topic], one.batches) for one in self.saw]

    def wrong(self) -> list[str]:
        """Return in words which reader did not see every row exactly once."""
        expected: dict[str, dict[int, int]] = defaultdict(dict)
        for number, one in enumerate(self.wrote):
            expected[one.topic][number] = ROWS * len(one.commits)
        return [f"{self.cell}, reader {i}: {what}" for i, one in enumerate(self.saw) for what in one.wrong(expected[one.topic])]


def delays(commits: Sequence[Commit], batches: Sequence[tuple[int, float]]) -> list[float]:
    """Return the milliseconds from the return of each commit to the end of the first micro-batch that has it. A micro-batch may end
    before the commit has returned; the delay is then 0.
    """
    ends = [end for end, _ in batches]
    found = []
    for commit in commits:
        place = bisect_left(ends, commit.number)
        if place < len(ends):
            found.append(max(0.0, batches[place][1] - commit.at) * 1000)
    return found


def percentile(values: Sequence[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] if ordered else float("nan")


def measure(cell: Cell, servers: Sequence[ZooKeeperServer], url: str, root: Path, seconds: float) -> Result:
    """Run one cell on a new cluster."""
    place = Place(url, root / "signals")
    place.folder.mkdir(parents=True)
    with connect(url, ledgers=f"file://{root / 'ledgers'}") as cluster:
        for topic in {cell.topic(number) for number in range(max(cell.writers, cell.readers))}:
            cluster.topics.create(topic, segments=SEGMENTS if cell.shared else 1, key="row", schema=from_arrow(SCHEMA))
    forks = Forks()
    children: list[Child] = []
    try:
        writers = [forks.start(write, place, number, cell.topic(number)) for number in range(cell.writers)]
        children += writers
        readers = [forks.start(read, place, cell.topic(number)) for number in range(cell.readers)]
        children += readers
        wait_until("ready", children, place.folder)
        time.sleep(SETTLE_SECONDS)
        before, began = Server.of(servers), time.monotonic()
        (place.folder / START).touch()
        time.sleep(seconds)
        (place.folder / ENOUGH).touch()
        took, server = time.monotonic() - began, Server.of(servers).since(before)
        wrote = [child.result(DRAIN_SECONDS) for child in writers]
        (place.folder / STOP).touch()
        return Result(cell, took, server, wrote, [child.result(DRAIN_SECONDS) for child in readers])
    finally:
        for child in children:
            child.stop()


def table(results: Sequence[Result]) -> Table:
    title = (
        "Transactions of four rows. commit, lag: ms. least: commits of the slowest writer, by the mean. last: lag p99 of the\n"
        "slowest reader. requests, changes, server, writer: of one commit, the latter two in ms of a core. reader: % of a core"
    )
    found = Table(title=title, title_justify="left")
    found.add_column("writers/readers", no_wrap=True)
    for column in (
        *("commits/s", "commit p50", "p99", "least", "lag p50", "last"),
        *("requests/s", "requests", "changes", "server", "writer", "reader"),
    ):
        found.add_column(column, justify="right")
    for one in results:
        lags, commits = [lag for lag in one.lags_ms() if lag], max(1, one.commits)
        every = [delay for lag in lags for delay in lag]
        found.add_row(
            f"{one.cell.writers}/{one.cell.readers}" + (", one topic" if one.cell.shared else ""),
            f"{one.per_second:.0f}",
            f"{one.commit_ms(50):.0f}",
            f"{one.commit_ms(99):.0f}",
            f"{one.fairness:.2f}",
            f"{percentile(every, 50):.0f}",
            f"{max((percentile(lag, 99) for lag in lags), default=float('nan')):.0f}",
            f"{one.server.requests / one.seconds:.0f}",
            f"{one.server.requests / commits:.0f}" if one.commits else "",
            f"{one.server.changes / commits:.0f}" if one.commits else "",
            f"{one.server.processor * 1000 / commits:.1f}" if one.commits else f"{100 * one.server.processor / one.seconds:.0f} %",
            f"{sum(w.processor for w in one.wrote) * 1000 / commits:.1f}" if one.commits else "",
            f"{100 * sum(s.processor for s in one.saw) / one.seconds / len(one.saw):.1f}" if one.saw else "",
        )
    return found


def costs_ms(results: Sequence[Result]) -> tuple[float, float]:
    """Return the milliseconds of the busiest server's processor for a change, and for a request (to any server): the two numbers
    that fit the cells best. They are the service times of the model in `benchmarks.many.logs`.
    """
    counts = [[one.server.changes, one.server.requests] for one in results]
    busiest = [1000 * max(one.server.processors) for one in results]
    found, *_ = np.linalg.lstsq(np.array(counts, float), np.array(busiest), rcond=None)
    return float(found[0]), float(found[1])


def flush_ms(root: Path, runs: int = 50) -> float:
    """Return the median time of a flush (fsync) after an append of 4 KB, on the disk that has the logs of the ensemble."""
    taken = []
    with (root / "flushed").open("wb", buffering=0) as file:
        for _ in range(runs):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - began) * 1000)
    return statistics.median(taken)


def run(*, cells: Sequence[Cell] = CELLS, seconds: float = SECONDS, size: int = 3) -> Report:
    """`size`: the servers of the ensemble."""
    report = Report("Many at once")
    results: list[Result] = []
    with folder() as root, ZooKeeperEnsemble(root / "zookeeper", size=size) as ensemble:
        for number, cell in enumerate(cells):
            home = Path(tempfile.mkdtemp(dir=root))
            results.append(measure(cell, ensemble.servers, f"zk://{ensemble.hosts}/many-{number}", home, seconds))
        flush = flush_ms(root)
    report.tables.append(table(results))
    wrong = [text for one in results for text in one.wrong()]
    report.claim(
        "readers that did not see every row exactly once", len(wrong), 0, at_least=False, unit="", note="; ".join(wrong[:3])
    )
    change, request = costs_ms(results)
    text = f"a change {change:.3f} ms, a request {request:.3f} ms of the busiest server's processor; a flush {flush:.1f} ms"
    report.figures.append(("service times", text))
    _claims(report, results)
    return report


def _claims(report: Report, results: Sequence[Result]) -> None:
    for one in results:
        if one.cell.readers == 0:
            each = one.server.changes / max(1, one.commits), one.server.requests / max(1, one.commits)
            for what, got, wanted in zip(("changes", "requests"), each, (CHANGES, REQUESTS), strict=True):
                report.claim(f"{one.cell}: {what} of the ensemble for a transaction", got, wanted, at_least=False, unit="")
        elif one.cell.writers == 0:
            got = one.server.requests / one.seconds / one.cell.readers
            report.claim(f"{one.cell}: requests of an idle reader in a second", got, IDLE_REQUESTS, at_least=False, unit="")
        if one.cell.writers > 1:
            report.claim(f"{one.cell}: the slowest writer, against the mean", one.fairness, FAIR, at_least=True)
