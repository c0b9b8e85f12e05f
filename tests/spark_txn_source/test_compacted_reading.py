"""Every kind of read returns the same before and after compaction: rows, positions, order, micro-batches, acks.
The tests need no JVM.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from typer.testing import CliRunner

from conformance.harness.spark_driver import MicroBatchExecution, rows_of, run_tasks
from spark_txn_source.batch import BatchReader
from spark_txn_source.columns import METADATA_FIELDS
from txnsegment import Cluster, connect
from txnsegment.cli.app import build
from txnsegment.ddl import parse_schema
from txnsegment.rows import committed_rows

SCHEMA = "id bigint, name string, n array<int>"
GIVEN = StructType([*parse_schema(SCHEMA).fields, *METADATA_FIELDS])


def write(cluster: Cluster, ids: list[int]) -> int:
    columns = [pa.array(ids), [f"name {i}" for i in ids], pa.array([[i % 5, None] for i in ids], pa.list_(pa.int32()))]
    with cluster.begin() as txn:
        txn.append("t", pa.table(columns, ["id", "name", "n"]))
        number = txn.commit().number
    assert number is not None
    return number


def batch(url: str, **options: str) -> list[list[dict[str, Any]]]:
    """Return the rows of each task of a batch, in order."""
    reader = BatchReader({"path": "t", "serviceUrl": url, "includeMetadata": "true", **options}, GIVEN)
    return [[row for found in reader.read(task) for row in found.to_pylist()] for task in reader.partitions()]


def rows(url: str, **options: str) -> list[dict[str, Any]]:
    return [row for task in batch(url, **options) for row in task]


def micro_batches(url: str, end: int, **options: str) -> Iterator[tuple[int, list[Any]]]:
    """Yield the end and the rows of each micro-batch up to `end`."""
    query = MicroBatchExecution()
    query.start({"path": "t", "serviceUrl": url, "includeMetadata": "true", **options}, schema=GIVEN)
    try:
        while query.at["log"] < end:
            found = query.next()
            assert found is not None
            yield query.at["log"], rows_of(found)
    finally:
        query.stop()


def messages(cluster: Cluster, subscription: str) -> list[tuple[str, str, Any, int, str | None]]:
    with cluster.consumer("t", subscription) as consumer:
        return [(m.segment, m.id, m.value["id"], m.publish_ms, m.txn) for m in consumer.messages(timeout=0)]


def everything(url: str, cluster: Cluster, end: int, times: list[int]) -> dict[str, Any]:
    """Return the rows up to a log number, by kind of reader."""
    upto = {"endingOffsets": f'{{"log": {end}}}'}
    found: dict[str, Any] = {"all": rows(url, **upto), "small": rows(url, maxPartitionBytes="1", **upto)}
    for start in (end // 3, end // 2):
        found[f"from {start}"] = rows(url, startingOffsets=f'{{"log": {start}}}', **upto)
    for ms in times:
        found[f"at {ms}"] = rows(url, startingTimestamp=str(ms), **upto)
    found["subscribed"] = rows(url, subscription="acked")
    found["stream"] = list(micro_batches(url, end, maxRowsPerTrigger="9"))
    found["messages"] = messages(cluster, "acked")
    found["printed"] = list(committed_rows(cluster.client, "t", 10_000, message_ids=True).rows)
    return found


@given(
    sizes=st.lists(st.integers(1, 12), min_size=3, max_size=10),
    split=st.booleans(),
    target=st.sampled_from([4_000, 1 << 20]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=3)
def test_random_histories_read_the_same_after_compaction(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], split: bool, target: int, seed: int
) -> None:
    url, chance = f"file://{tmp_path_factory.mktemp('cluster')}/c", random.Random(seed)
    with connect(url) as cluster:
        cluster.topics.create("t", segments=2, key="id", schema=SCHEMA)
        cluster.subscriptions.create("t", "acked", start="earliest")
        number, end, times = 0, 0, list[int]()
        for k, size in enumerate(sizes):
            end = write(cluster, list(range(number, number + size)))
            number += size
            if k == len(sizes) // 2:
                cluster.sweep()
                if split:
                    end = write(cluster, [number])
                    cluster.topics.split("t", 0)
        with cluster.consumer("t", "acked") as consumer:
            some = [m for m in consumer.messages(timeout=0) if chance.random() < 0.4]
            consumer.ack(some)
            times = [m.publish_ms for m in some[:2]]
        end = write(cluster, [number + 1, number + 2])
        cluster.sweep()
        before = everything(url, cluster, end, times)
        assert [row["id"] for row in before["all"]]
        for size in (target, 1 << 22):
            cluster.compact("t", target_bytes=size)
            after = everything(url, cluster, end, times)
            assert after == before, [name for name in before if after[name] != before[name]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/cluster"


@pytest.mark.parametrize(
    "options", [{}, {"startingOffsets": '{"log": 3}', "endingOffsets": '{"log": 6}'}, {"maxPartitionBytes": "1"}]
)
def test_compacted_rows_keep_their_positions(url: str, options: dict[str, str]) -> None:
    with connect(url) as cluster:
        cluster.topics.create("t", segments=2, key="id", schema=SCHEMA)
        for k in range(1, 9):
            write(cluster, [k * 10 + i for i in range(7)])
        cluster.sweep()
        before = rows(url, **options)
        done = cluster.compact("t")
    assert (done.files_after, done.rows) == (2, 56)
    assert rows(url, **options) == before
    assert len({(row["__segment"], row["__messageId"]) for row in before}) == len(before) > 0


def test_a_task_planned_before_a_compaction_reads_its_planned_rows(url: str) -> None:
    with connect(url) as cluster:
        cluster.topics.create("t", schema=SCHEMA)
        for k in range(1, 4):
            write(cluster, [k])
        cluster.sweep()
        reader = BatchReader({"path": "t", "serviceUrl": url}, parse_schema(SCHEMA))
        planned = reader.partitions()
        cluster.compact("t")
        cluster.sweep()
        found = [row["id"] for row in rows_of(run_tasks(reader, planned))]
    assert found == [1, 2, 3]


def test_compacting_by_call_or_command_starts_at_the_given_number_of_files(url: str) -> None:
    with connect(url) as cluster:
        cluster.topics.create("t", schema="n bigint")
        for n in range(3):
            with cluster.begin() as txn:
                txn.append("t", pa.table({"n": [n]}))
                txn.commit()
        cluster.sweep()
        folded = [cluster.topics.describe("t").segments[0].name]
        assert cluster.compact(folded[0], min_files=4).files_before == 0
    done = CliRunner().invoke(build(), ["--service-url", url, "compact", "t", "--min-files", "4", "--json"])
    assert json.loads(done.stdout)["filesBefore"] == 0, done.output
    with connect(url) as cluster:
        assert cluster.compact("t", min_files=3).files_before == 3
