"""Splits and merges on real files. Rows of a key keep their order through parents and children, and no row is lost or doubled."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.harness.spark_driver import MicroBatchExecution, rows_of
from conformance.scenarios.reading import position_of
from metadata.common.errors import TopicNotFound
from metadata.records.names import key_hash
from txnsegment import Cluster, connect

SCHEMA = pa.schema([("key", pa.string()), ("seq", pa.int64())])


def rows(first: int, count: int = 40) -> pa.RecordBatch:
    return pa.record_batch({"key": [f"k{i % 11}" for i in range(first, first + count)], "seq": range(first, first + count)}, SCHEMA)


def streamed(url: str) -> list[list[dict[str, object]]]:
    """Return the rows of each micro-batch of a stream. The stream's reader is called as Spark calls it."""
    options = {"path": "t", "serviceUrl": url, "includeMetadata": "true", "startingOffsets": "earliest"}
    query, found = MicroBatchExecution(), []
    query.start(options)
    while (batches := query.next()) is not None:
        found.append(rows_of(batches))
    query.stop()
    return found


def check(url: str, expected: int) -> None:
    """Check that each row is read once, from the segment of its key. Check that over all micro-batches the rows of each key come in
    the order in which they were written.
    """
    by_key: dict[str, list[int]] = defaultdict(list)
    for micro_batch in streamed(url):
        ordered = sorted(micro_batch, key=lambda row: position_of(str(row["__messageId"])))
        for row in ordered:
            by_key[str(row["key"])].append(int(str(row["seq"])))
            start, end = str(row["__segment"]).rpartition("/")[2].split("-")[:2]
            assert int(start, 16) <= key_hash(str(row["key"]).encode()) <= int(end, 16)
    assert all(seqs == sorted(seqs) for seqs in by_key.values())
    assert sorted(seq for seqs in by_key.values() for seq in seqs) == list(range(expected))


def active(cluster: Cluster) -> list[tuple[int, int]]:
    """Return the start and the id of each active segment, in the order of their ranges."""
    found = cluster.topics.describe("t").segments
    return sorted((s.start, int(s.name.rpartition("-")[2])) for s in found if s.sealed_ms is None)


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32))
def test_rows_of_a_key_keep_their_order_over_any_splits_and_merges(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Some transactions are staged before a seal and committed after it. The rows of each key still keep their order."""
    rng = random.Random(seed)
    url = f"file://{tmp_path_factory.mktemp('cluster')}/c"
    with connect(url) as cluster:
        cluster.topics.create("t", segments=rng.choice((1, 2, 3)), key="key", schema="key string, seq bigint")
        written = 0
        for _ in range(8):
            transaction = cluster.begin()
            for _ in range(rng.choice((1, 2))):
                transaction.append("t", rows(written))
                written += 40
                for _ in range(rng.choice((0, 0, 1, 2))):
                    ids = [number for _, number in active(cluster)]
                    if len(ids) > 1 and rng.random() < 0.4:
                        at = rng.randrange(len(ids) - 1)
                        cluster.topics.merge("t", ids[at], ids[at + 1])
                    else:
                        cluster.topics.split("t", rng.choice(ids))
            transaction.commit()
            if rng.random() < 0.3:
                cluster.sweep()
    check(url, written)


def test_a_write_into_a_deleted_topic_is_refused(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}/c") as cluster:
        cluster.topics.create("t", key="key", schema="key string, seq bigint")
        transaction = cluster.begin()
        transaction.append("t", rows(0))
        cluster.topics.split("t", 0)
        cluster.topics.delete("t")
        with pytest.raises(TopicNotFound):
            transaction.commit()
