"""A topic is split from 4 to 16 segments and merged back to 4, again and again, while three writers and three readers run, each in
a process of its own. A seeded plan kills and stops these processes and the splitting process. The history checker judges the
recorded histories.
"""

from __future__ import annotations

import random
import statistics
import time
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from conformance.history.files import Resumed
from conformance.history.files import read as read_history
from conformance.history.format import Commit, Poll, Read, Start, Told, Written
from conformance.scenarios.dangling_transactions import wait_for_deadlines
from conformance.scenarios.driver import Place, make
from conformance.scenarios.forks import Forks, Storm
from conformance.scenarios.history import judged, now
from conformance.scenarios.reading import final_read, micro_batches, named_rows
from conformance.scenarios.scenario import Scenario
from metadata.common.errors import SegmentSealed
from metadata.records.cluster_records import Settings
from metadata.records.names import topic_name
from txnsegment import Cluster, connect

WRITERS, READERS = 3, 3
ROWS, KEYS = 120, 11
"""The number of rows of each transaction, and the number of keys of each writer. No key has two writers."""
FEWEST, MOST = 4, 16
BETWEEN_SECONDS = 0.5
"""The pause after each split or merge. Each transaction writes to all segments, so it starts again if a split or merge comes during
its commit. If the pause were shorter than a commit, hardly any transaction would commit.
"""
LAST_SECONDS = 300.0
SETTINGS = Settings(txn_timeout_ms=10_000, fold_after_registrations=16, fold_after_ms=1_000, header_retention_ms=5_000)


# --- the processes ----------------------------------------------------------------------------------------------------


def write_on(place: Place, name: str, folder: Path, stop: Path) -> None:
    """Run one transaction for each version in turn. A new process continues with the first version that got no reply."""
    log = Resumed(folder / f"{name}.jsonl", Start(now(), name))
    version = sum(isinstance(event, Told) for event in log.before)
    attempt = sum(isinstance(event, Commit) for event in log.before)
    topic = str(topic_name(place.topic))
    with connect(place.url) as cluster:
        while not stop.exists():
            rows = [(f"{name}-k{i % KEYS}", f"{name}.{version}.{i}") for i in range(version * ROWS, (version + 1) * ROWS)]
            with cluster.begin(app=name, version=version) as transaction:
                for half in (rows[: ROWS // 2], rows[ROWS // 2 :]):  # each `append` reads the layout anew
                    keys, ids = zip(*half, strict=True)
                    transaction.append(topic, pa.table({"key": keys, "id": ids}))
                call = f"{name}-{version}-{attempt}"
                written = tuple(Written(row, key) for key, row in rows)
                log.add(Commit(now(), call, name, name, "", version, tuple(w._replace(segment=topic) for w in written)))
                done = transaction.commit()
            log.add(Told(now(), call, "skipped" if done.skipped else "committed", done.txn_id, done.number))
            version, attempt = version + 1, attempt + 1


def read_on(place: Place, name: str, folder: Path, stop: Path, limit: int | None) -> None:
    """Read and record one micro-batch after the other. After the file `stop` exists, end when there are no new rows."""
    log, topics = Resumed(folder / f"{name}.jsonl", Start(now(), name)), (str(topic_name(place.topic)),)
    options = {"path": place.topic, "serviceUrl": place.url}
    for one in micro_batches(options, folder / f"{name}.checkpoint", stop.exists, limit):
        bounds = int(one.start["log"]), int(one.end["log"])
        log.add(Poll(now(), one.began, name, one.number, topics, named_rows(one.found), *bounds, ordered=False))


def split_on(place: Place, folder: Path, stop: Path) -> None:
    """Split the topic until it has 16 active segments, merge it back to 4, and so on. After the file `stop` exists, end when the
    topic has 4 segments again.
    """
    noted = folder / "splits"
    with connect(place.url) as cluster:
        growing = _last(noted) != "merge" or len(_active(cluster, place.topic)) == FEWEST
        while True:
            active = _active(cluster, place.topic)
            growing = len(active) < MOST if growing else len(active) == FEWEST
            if stop.exists() and growing and len(active) == FEWEST and noted.exists() and "merge" in noted.read_text():
                return
            with suppress(SegmentSealed):  # a predecessor that was killed has already split or merged these segments
                if growing:
                    widest = max(active, key=lambda s: s[1] - s[0])
                    cluster.topics.split(place.topic, widest[2])
                else:
                    left, right = min(pairwise(active), key=lambda pair: pair[1][1] - pair[0][0])
                    cluster.topics.merge(place.topic, left[2], right[2])
            with noted.open("a") as out:
                out.write("split\n" if growing else "merge\n")
            time.sleep(BETWEEN_SECONDS)


def _active(cluster: Cluster, topic: str) -> list[tuple[int, int, int]]:
    """Return (start, end, id) of the active segments, in the order of their ranges."""
    return sorted((s.start, s.end, s.id) for s in cluster.topics.describe(topic).segments if s.sealed_ms is None)


def _last(noted: Path) -> str:
    return noted.read_text().split()[-1] if noted.exists() else ""


def last_read(place: Place) -> Read:
    """Sweep the cluster, then read all rows. Return this read as an event."""
    with connect(place.url) as cluster:
        cluster.sweep()
    return final_read(place.url, str(topic_name(place.topic)))


def prepare(place: Place) -> None:
    make(place, SETTINGS)
    with connect(place.url) as cluster:
        cluster.topics.create(place.topic, segments=FEWEST, key="key", schema="key string, id string")


# --- the run ------------------------------------------------------------------------------------------------------------


class Splits(Scenario):
    """The scenario. It strikes `faults` times within `seconds`. It runs longer than `seconds` if the topic was not yet split to 16
    segments and merged back to 4.
    """

    name = "splits"

    def __init__(self, forks: Forks, place: Place, folder: Path, *, seconds: float, faults: int, rng: random.Random) -> None:
        self._forks, self._place, self._folder = forks, place, folder
        self._seconds, self._faults, self._rng = seconds, faults, rng
        self._stop, self._all_written = folder / "stop", folder / "all-written"
        self._storm = Storm()
        self._done = ""

    def setup(self) -> None:
        self._forks.call(prepare, self._place)

    def start(self) -> None:
        begin, place, folder = self._forks.start, self._place, self._folder
        for i in range(WRITERS):
            self._storm.start(f"writer{i}", partial(begin, write_on, place, f"writer{i}", folder, self._stop))
        for i in range(READERS):
            limit = None if i else 3 * ROWS
            self._storm.start(f"reader{i}", partial(begin, read_on, place, f"reader{i}", folder, self._all_written, limit))
        self._storm.start("splitter", partial(begin, split_on, place, folder, self._stop))

    def faults(self) -> None:
        until = time.monotonic() + self._seconds
        for _ in range(self._faults):
            time.sleep(self._seconds / self._faults * self._rng.random())
            self._storm.strike(self._rng.choice(list(self._storm.running)), self._rng, kill=0.6, longest=1.5)
        time.sleep(max(0.0, until - time.monotonic()))

    def check(self) -> list[str]:
        self._stop.touch()
        self._storm.end([*(f"writer{i}" for i in range(WRITERS)), "splitter"], LAST_SECONDS)
        # Readers must not end before all transactions have ended. Otherwise they would stop below an OPEN transaction and miss the
        # rows above it.
        wrong: list[str] = self._forks.call(wait_for_deadlines, self._place.url)
        self._all_written.touch()
        self._storm.end(list(self._storm.running), LAST_SECONDS)
        histories = [read_history(file) for file in sorted(self._folder.glob("*.jsonl"))]
        final: Read = self._forks.call(last_read, self._place)
        wrong += judged([*histories, [final]])
        asked = {event.call: event.at for history in histories for event in history if isinstance(event, Commit)}
        taken = [e.at - asked[e.call] for history in histories for e in history if isinstance(e, Told)]
        commits = len({(e.app, e.version) for h in histories for e in h if isinstance(e, Commit)})
        micro_batches = sum(isinstance(event, Poll) for history in histories for event in history)
        done = (self._folder / "splits").read_text().split()
        split, merged = done.count("split"), done.count("merge")
        self._done = (
            f"{split} splits and {merged} merges under {commits} commits ({len(final.rows)} rows), {micro_batches} micro-batches; "
            f"a commit takes {statistics.median(taken):.0f} ms (median), the slowest {max(taken):.0f} ms"
        )
        if min(split, merged) < MOST - FEWEST:
            wrong.append(f"only {split} splits and {merged} merges were done")
        return wrong

    def figures(self) -> str:
        return f"{self._done}; {self._storm}"

    def close(self) -> None:
        self._storm.close()
