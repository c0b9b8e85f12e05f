"""The process that changes topics while the suite's jobs write and read these topics. It does what an operator would do: it splits,
merges, compacts and trims topics, and sweeps persistent topics.

    python -m conformance.scenarios.cluster.changing --url URL --seed N --topics JSON --segments FEWEST:MOST
        --rounds yes|no --notes FOLDER --stop FILE

All changes use `txnsegment.connect`. If a change fails in the middle, because of the store or a full disk, later processes complete
it. Only the topic `PASSING` is trimmed, which this process itself writes and reads. So all rows of the jobs stay and can be
counted.

With `--rounds yes` the first topic is split until it has MOST active segments, then merged until it has FEWEST, and so on.
`NOTES/history.jsonl` is the history of this process's commits, reads and trims, for the checker. `NOTES/done` has a line for each
change and for each failed change. The process ends when `--stop` exists and each kind of change was done. With `--rounds yes`, a
whole round of splits and merges must also be done.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from conformance.harness.spark_driver import read_batch
from conformance.history.files import Resumed
from conformance.history.format import Commit, Read, Row, Start, Told, Trim, Written
from conformance.jobs import given
from metadata.common.errors import TxnSegmentError
from metadata.records import paths
from metadata.records.names import is_persistent, topic_name
from metadata.records.records import Watermark
from metadata.store.contract import look
from txnsegment import Cluster, connect

PASSING = "passing"
APP = "changing"
ROWS = 20
PAUSE_SECONDS = (0.5, 2.5)
KEEP_BYTES = 1
"""The retention limit of PASSING, in bytes. It is so low that every folded row is trimmed."""
KINDS = ("split", "merge", "compact", "trim")
"""The changes of topic:// topics."""
SWEEP = "sweep"
"""The change of persistent:// topics. A sweep writes snapshots, compacts the transaction log and ends late transactions."""


class Bounds(NamedTuple):
    """How few and how many active segments a topic may have. `rounds`: the first topic is split until it has `most`, then merged
    until it has `fewest`, and so on. Otherwise topics are split and merged at random.
    """

    fewest: int
    most: int
    rounds: bool


class Changes:
    """Makes the changes. It continues the notes of a killed process. `counts`: how often each kind was done in the whole run."""

    def __init__(self, url: str, topics: Sequence[str], rng: random.Random, notes: Path, bounds: Bounds) -> None:
        self._url, self._rng, self._notes, self._bounds = url, rng, notes, bounds
        self._topics = [topic for topic in topics if not is_persistent(topic)]
        self.kinds = _kinds(older=len(topics) - len(self._topics), newer=len(self._topics))
        self._passing = str(topic_name(PASSING))
        self._history = Resumed(notes / "history.jsonl", Start(now(), APP))
        before = self._history.before
        self._version = sum(isinstance(event, Told) for event in before)
        self._asked = sum(isinstance(event, Commit) for event in before)
        trims = [event for event in before if isinstance(event, Trim)]
        self._trimmed = {trim.segment: trim.through for trim in trims}
        self._looked = max((trim.at for trim in trims), default=before[0].at if before else now())
        done = [line.split()[0] for line in _lines(notes / "done") if line.split()[1] != "failed:"]
        self.counts = Counter(done)
        self._growing = next((kind == "split" for kind in reversed(done) if kind in ("split", "merge")), True)

    def due(self) -> str:
        """Return the next kind of change."""
        kind = self._rng.choice(self.kinds)
        return self._turn if self._bounds.rounds and kind in ("split", "merge") else kind

    @property
    def _turn(self) -> str:
        return "split" if self._growing else "merge"

    def missing(self) -> str | None:
        """Return a kind of change that was not done yet, or the next change of an incomplete round of splits and merges. Return
        None if nothing is missing.
        """
        if (kind := next((kind for kind in self.kinds if not self.counts[kind]), None)) is not None:
            return kind
        least = min(self.counts["split"], self.counts["merge"])
        return self._turn if self._bounds.rounds and least < self._bounds.most - self._bounds.fewest else None

    def once(self, kind: str) -> None:
        """Do one change of this kind. Record the change, or its failure."""
        try:
            with connect(self._url) as cluster:
                how: dict[str, Callable[[Cluster], str | None]] = {
                    "split": self._split,
                    "merge": self._merge,
                    "compact": self._compact,
                    "trim": self._trim,
                    SWEEP: self._sweep,
                }
                done = how[kind](cluster)
        except TxnSegmentError as error:
            self._note(f"{kind} failed: {type(error).__name__}: {error}")
            return
        if done is not None:
            self.counts[kind] += 1
            self._note(f"{kind} {done}")

    def _split(self, cluster: Cluster) -> str | None:
        topic = self._sized()
        active = _active(cluster, topic)
        wide = [segment for segment in active if segment[0] < segment[1]]
        if len(active) >= self._bounds.most or not wide:
            self._growing = False
            return None
        one = max(wide, key=lambda s: s[1] - s[0]) if self._bounds.rounds else self._rng.choice(wide)
        cluster.topics.split(topic, one[2])
        return f"{topic} {one[2]}"

    def _merge(self, cluster: Cluster) -> str | None:
        topic = self._sized()
        active = _active(cluster, topic)
        if len(active) <= self._bounds.fewest:
            self._growing = True
            return None
        left, right = self._rng.choice(list(pairwise(active)))
        cluster.topics.merge(topic, left[2], right[2])
        return f"{topic} {left[2]},{right[2]}"

    def _sized(self) -> str:
        """Return the topic whose segments are split or merged next."""
        return self._topics[0] if self._bounds.rounds else self._rng.choice((*self._topics, PASSING))

    def _compact(self, cluster: Cluster) -> str | None:
        topic = self._rng.choice((*self._topics, PASSING))
        done = cluster.compact(topic)
        return f"{topic}: {done.files_before} files into {done.files_after}" if done.files_after else None

    def _trim(self, cluster: Cluster) -> str | None:
        """Write to PASSING, read it, trim it, and read it again. Each row is read before it is trimmed, for the history."""
        self._write(cluster)
        self._read(cluster)
        cluster.retention.set(PASSING, keep_bytes=KEEP_BYTES)
        with self._trims(cluster):
            cluster.client.sweeper.sweep()  # only folded rows can be trimmed
            rows = cluster.retention.trim(PASSING).rows
        self._read(cluster)
        return f"{PASSING}: {rows} rows" if rows else None

    @staticmethod
    def _sweep(cluster: Cluster) -> str | None:
        """Sweep only the persistent topics. A sweep of all topics would also trim PASSING, perhaps before its rows are read."""
        done = cluster.client.instream.sweeper.sweep()
        done.complain()
        text = f"{done.snapshots} snapshots, {done.compacted} compacted, {done.timed_out} timed out, {done.finished} finished"
        return text if done.snapshots or done.compacted else None

    def _write(self, cluster: Cluster) -> None:
        first = self._version * ROWS
        rows = [(f"key-{i % 7}", f"{PASSING}#{i}") for i in range(first, first + ROWS)]
        keys, names = zip(*rows, strict=True)
        written = tuple(Written(name, key, self._passing) for key, name in rows)
        with cluster.begin(app=APP, version=self._version) as transaction:
            transaction.append(PASSING, pa.table({"key": keys, "id": names}))
            call, self._asked = f"{APP}-{self._version}-{self._asked}", self._asked + 1
            self._history.add(Commit(now(), call, APP, APP, "", self._version, written))
            done = transaction.commit()
        self._history.add(Told(now(), call, "skipped" if done.skipped else "committed", done.txn_id, done.number))
        self._version += 1

    def _read(self, cluster: Cluster, *, final: bool = False) -> None:
        began = now()
        options = {"serviceUrl": self._url, "path": PASSING, "includeMetadata": "true"}
        rows = tuple(_rows(iter(read_batch(options))))
        self._history.add(Read(now(), began, APP, (self._passing,), rows, final=final, ordered=False))

    @contextmanager
    def _trims(self, cluster: Cluster) -> Iterator[None]:
        """A context in which rows of PASSING are trimmed. At its end, record in the history all trims that it does not have yet.
        They may include an earlier trim that raised an error.
        """
        try:
            yield
        finally:
            began, looks = self._looked, now()
            for segment in cluster.topics.describe(PASSING).segments:
                record = look(cluster.client.cluster.store, paths.watermark(segment.name))
                mark = None if record is None else Watermark.of(record).trimmed_to
                if mark is not None and mark.ledger_id > self._trimmed.get(segment.name, 0):
                    self._trimmed[segment.name] = mark.ledger_id
                    self._history.add(Trim(now(), began, segment.name, mark.ledger_id))
            self._looked = looks

    def last(self) -> None:
        """Sweep the cluster, read PASSING for the last time, and close the history."""
        with connect(self._url) as cluster:
            with self._trims(cluster):
                cluster.sweep()
            self._read(cluster, final=True)
        self._history.close()

    def _note(self, text: str) -> None:
        with (self._notes / "done").open("a") as out:
            out.write(text.replace("\n", " ") + "\n")


def _kinds(*, older: int, newer: int) -> tuple[str, ...]:
    """Return the kinds of changes for the jobs' topics and PASSING. `older`: the number of persistent:// topics. `newer`: the
    number of topic:// topics. If `newer` is 0, the kind `compact` is left out, because only PASSING could be compacted, and its
    trims leave too few files.
    """
    found = KINDS if newer else tuple(kind for kind in KINDS if kind != "compact")
    return (*found, SWEEP) if older else found


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _active(cluster: Cluster, topic: str) -> list[tuple[int, int, int]]:
    """Return (start, end, id) of the active segments, in the order of their ranges."""
    return sorted((s.start, s.end, s.id) for s in cluster.topics.describe(topic).segments if s.sealed_ms is None)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for row in batch.to_pylist():
            ledger, entry, index = (int(part) for part in row["__messageId"].split(":"))
            yield Row(row["id"], row["__segment"], (ledger, entry, index), row["key"], row["__txnId"])


def now() -> float:
    return time.monotonic() * 1000


def main() -> None:
    words = given("conformance.scenarios.cluster.changing", "url", "seed", "topics", "segments", "rounds", "notes", "stop")
    fewest, _, most = words.segments.partition(":")
    bounds = Bounds(int(fewest), int(most), words.rounds == "yes")
    rng, stop = random.Random(f"changes {words.seed}"), Path(words.stop)
    changes = Changes(words.url, json.loads(words.topics), rng, Path(words.notes), bounds)
    while not stop.exists():
        changes.once(changes.due())
        time.sleep(rng.uniform(*PAUSE_SECONDS))
    while (missing := changes.missing()) is not None:
        changes.once(missing)
        time.sleep(PAUSE_SECONDS[0])
    changes.last()


if __name__ == "__main__":
    main()
