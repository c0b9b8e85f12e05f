"""Tests of a stream whose topics are split, merged, created and deleted while it runs: under limits, without limits, and by
AvailableNow.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import TYPE_CHECKING

import pyarrow as pa

from conformance.scenarios.reading import position_of
from metadata.records.names import key_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

    from tests.spark.conftest import Deployment

KEYS = 7
ROWS = 14


class Writing:
    """Writes numbered rows with a few keys to topics, and splits and merges segments of the topics."""

    def __init__(self, here: Deployment) -> None:
        self.here, self._next = here, count()
        self.written: dict[str, list[int]] = defaultdict(list)

    def create(self, *topics: str) -> None:
        for topic in topics:
            self.here.cluster.topics.create(topic, segments=2, key="k", schema="k string, n bigint")

    def append(self, *topics: str) -> None:
        """Commit one transaction to each topic."""
        for topic in topics:
            numbers = [next(self._next) for _ in range(ROWS)]
            self.here.append(topic, pa.table({"k": [f"k{n % KEYS}" for n in numbers], "n": pa.array(numbers, pa.int64())}))
            self.written[topic] += numbers

    def active(self, topic: str) -> list[int]:
        found = [s for s in self.here.cluster.topics.describe(topic).segments if s.sealed_ms is None]
        return [s.id for s in sorted(found, key=lambda s: s.start)]

    def split(self, topic: str) -> None:
        self.here.cluster.topics.split(topic, self.active(topic)[0])

    def merge(self, topic: str) -> None:
        self.here.cluster.topics.merge(topic, *self.active(topic)[-2:])


def check(batches: list[list[Row]], written: dict[str, list[int]], limit: int) -> None:
    """Check that every row comes once, from a segment that contains the hash of its key, and that the rows of each key come in
    order. Check that each micro-batch has at most `limit` rows, and has rows of a key from one segment only, so never from a parent
    and its child.
    """
    seen: dict[str, list[int]] = defaultdict(list)
    by_key: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rows in batches:
        assert len(rows) <= limit
        ids = defaultdict(set)
        for row in sorted(rows, key=lambda row: position_of(row["__messageId"])):
            topic, _, segment = row["__segment"].rpartition("/")
            start, end, number = segment.split("-")
            assert int(start, 16) <= key_hash(row["k"].encode()) <= int(end, 16)
            seen[topic.rpartition("/")[2]].append(row["n"])
            by_key[topic, row["k"]].append(row["n"])
            ids[topic, row["k"]].add(number)
        assert all(len(found) == 1 for found in ids.values()), ids  # in this micro-batch all rows of a key are from one segment
    assert {topic: sorted(numbers) for topic, numbers in seen.items()} == written
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_stream_follows_splits_merges_new_and_deleted_topics_as_it_runs(here: Deployment) -> None:
    writing = Writing(here)
    batches: list[list[Row]] = []
    writing.create("log-a", "log-b")
    limit = 2 * ROWS
    stream = here.stream(
        None,
        topicsPattern="topic://public/default/log-.*",
        startingOffsets="earliest",
        maxRowsPerTrigger=limit,
        includeMetadata="true",
    )

    def keep(rows: DataFrame, batch: int) -> None:
        batches.append(rows.collect())

    writer = stream.writeStream.option("checkpointLocation", str(here.folder / "checkpoint")).foreachBatch(keep)
    query = writer.start()
    here.queries.append(query)
    writing.append("log-a", "log-b")
    writing.split("log-a")
    writing.append("log-a", "log-b", "log-a")
    query.processAllAvailable()
    writing.create("log-c", "elsewhere")
    writing.split("log-a")
    writing.append("log-c", "log-a", "elsewhere")
    writing.merge("log-a")
    writing.append("log-a", "log-c")
    query.processAllAvailable()
    here.cluster.topics.delete("log-b")
    writing.append("log-a")
    writing.split("log-c")
    writing.append("log-c", "log-c")
    query.processAllAvailable()
    query.stop()
    assert max(map(len, batches)) == limit
    at = len(batches)

    writing.merge("log-a")
    writing.append("log-a", "log-c")
    writing.split("log-a")
    writing.append("log-a")
    here.cluster.sweep()  # the sweep drops the seals from the log, but the layouts still have them

    def more(rows: DataFrame, batch: int) -> None:
        keep(rows, batch)
        if len(batches) == at + 1:  # the end of the run was fixed when the run started, so this append belongs to the next run
            writing.split("log-c")
            writing.append("log-c")

    def available() -> int:
        """Return the number of rows of an AvailableNow run."""
        before = sum(map(len, batches))
        writer.foreachBatch(more).trigger(availableNow=True).start().awaitTermination()
        return sum(map(len, batches)) - before

    assert available() == 3 * ROWS
    assert available() == ROWS
    del writing.written["elsewhere"]
    check(batches, writing.written, limit)
