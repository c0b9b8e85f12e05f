"""The processes of the benchmark: a writer commits transactions of the public API, and a reader runs one streaming read.

A reader has no JVM. It calls the real stream reader as Spark does (`MicroBatchExecution`), in a process of its own, as each
query of Spark has a Python process of its own. After a poll without rows it pauses as long as Spark, and after a micro-batch as
long as Spark's own work takes at least.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from conformance.harness.spark_driver import MicroBatchExecution
from conformance.scenarios.together import ENOUGH, START, STOP, say
from txnsegment import connect

SCHEMA = pa.schema([("writer", pa.int64()), ("version", pa.int64()), ("row", pa.int64())])
ROWS = 4
"""Rows of a transaction."""
POLL_SECONDS = 0.01
"""The pause of Spark between two polls of an idle stream (spark.sql.streaming.pollingDelay)."""
BATCH_SECONDS = 0.1
"""The pause of a reader after a micro-batch. It stands for the work of Spark's own that the reader does not do."""
_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class Place:
    """A cluster, and the folder of the files by which its processes begin and end together."""

    url: str
    folder: Path

    def began(self) -> bool:
        return (self.folder / START).exists()

    def enough(self) -> bool:
        return (self.folder / ENOUGH).exists()

    def stopped(self) -> bool:
        return (self.folder / STOP).exists()


@dataclass(frozen=True)
class Commit:
    """A commit. `number`: that of its registration. `seconds`: those of the call. `at`: when the call returned (monotonic time,
    which all processes of a machine share).
    """

    number: int
    seconds: float
    at: float


@dataclass
class Wrote:
    """What a writer did. `processor`: its seconds of processor time."""

    topic: str
    commits: list[Commit] = field(default_factory=list)
    staging: float = 0.0
    processor: float = 0.0


@dataclass
class Saw:
    """What a reader saw. `batches`: the end of each micro-batch with rows, and when its rows were read. `ids`: the id of each
    row (its version and its place in the transaction), by writer. `processor`: its seconds of processor time while the writers
    wrote.
    """

    topic: str
    batches: list[tuple[int, float]] = field(default_factory=list)
    ids: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    processor: float = 0.0

    def wrong(self, expected: dict[int, int]) -> list[str]:
        """Return in words which rows this reader did not see exactly once. `expected`: the number of rows of each writer to its
        topic.
        """
        found = []
        for writer in sorted(expected.keys() | self.ids.keys()):
            ids, count = np.sort(np.array(self.ids.get(writer, []), np.int64)), expected.get(writer, 0)
            if not np.array_equal(ids, np.arange(count)):
                found.append(f"{len(ids)} rows, {len(np.unique(ids))} of them different, of {count} rows of writer {writer}")
        return found


def write(place: Place, writer: int, topic: str) -> Wrote:
    """Commit transactions of four rows one after the other, from the file `start` on until the file `enough` exists."""
    done = Wrote(topic)
    with connect(place.url) as cluster:
        say("ready", place.folder)
        while not place.began():
            time.sleep(_LOOK_SECONDS)
        processor = time.process_time()
        while not place.enough():
            version = len(done.commits)
            rows = [[writer] * ROWS, [version] * ROWS, list(range(ROWS))]
            staged = time.monotonic()
            with cluster.begin() as txn:
                txn.append(topic, pa.table(rows, schema=SCHEMA))
                began = time.monotonic()
                committed = txn.commit()
            at = time.monotonic()
            assert committed.number is not None
            done.commits.append(Commit(committed.number, at - began, at))
            done.staging += began - staged
        done.processor = time.process_time() - processor
    return done


def read(place: Place, topic: str) -> Saw:
    """Read a topic as a stream, until the file `stop` exists and the stream has no more rows."""
    query = MicroBatchExecution()
    query.start({"serviceUrl": place.url, "path": topic, "startingOffsets": "earliest"})
    seen = Saw(topic)
    began: float | None = None
    query.next()
    say("ready", place.folder)
    while True:
        last = place.stopped()
        if began is None and place.began():
            began = time.process_time()
        if began is not None and not seen.processor and place.enough():
            seen.processor = time.process_time() - began
        batches = query.next()
        if not batches:
            if last:
                break
            time.sleep(POLL_SECONDS)
            continue
        seen.batches.append((int(query.at["log"]), time.monotonic()))
        for batch in batches:
            writers, versions, rows = (column.to_numpy() for column in batch.columns)
            for writer in np.unique(writers):
                mine = writers == writer
                seen.ids[int(writer)] += (versions[mine] * ROWS + rows[mine]).tolist()
        time.sleep(BATCH_SECONDS)
    query.stop()
    return seen
