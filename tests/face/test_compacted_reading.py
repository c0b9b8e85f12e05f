"""The source's own planning and tasks before and after compaction: the same rows under the same positions (without a JVM)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from spark_txn_source.batch import BatchReader
from spark_txn_source.topics import METADATA_FIELDS
from txnsegment import connect
from txnsegment.ddl import parse_schema

SCHEMA = "id bigint, name string, n array<int>"


def write(url: str, first: int, last: int) -> None:
    with connect(url) as cluster:
        for k in range(first, last):
            with cluster.begin(app="load", version=k) as txn:
                ids = [k * 10 + i for i in range(7)]
                columns = [pa.array(ids), [f"name {i}" for i in ids], pa.array([[k, None] for _ in ids], pa.list_(pa.int32()))]
                txn.append("t", pa.table(columns, ["id", "name", "n"]))
                txn.commit()
        cluster.sweep()


def rows(url: str, **options: str) -> list[dict[str, Any]]:
    given = StructType([*parse_schema(SCHEMA).fields, *METADATA_FIELDS])
    reader = BatchReader({"path": "t", "serviceUrl": url, "includeMetadata": "true", **options}, given)
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "options", [{}, {"startingOffsets": '{"log": 3}', "endingOffsets": '{"log": 6}'}, {"maxPartitionBytes": "1"}]
)
def test_the_same_rows_under_the_same_positions(tmp_path: Path, options: dict[str, str]) -> None:
    url = f"file://{tmp_path}/cluster"
    with connect(url) as cluster:
        cluster.topics.create("t", segments=2, key="id", schema=SCHEMA)
    write(url, 1, 9)
    before = rows(url, **options)
    with connect(url) as cluster:
        done = cluster.compact("t")
    assert (done.files_after, done.rows) == (2, 56)
    assert rows(url, **options) == before
    assert len({(row["__segment"], row["__messageId"]) for row in before}) == len(before) > 0
