"""A decision, such as a cut or a plan, reads all its records in one session, and starts over if the session is lost (protocol.md
section 3). This holds also for a decision with a single read, because a lost session must not end a query.

The cluster suite found a fault here (`python -m conformance --cluster --faults 8 --seed 3`): a ZooKeeper session expired between
two micro-batches, and the first read of the topic ended the streaming query with SessionLost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import metadata.cluster.cluster
from conformance.harness.faulty_store import Call, FaultyStore
from conformance.scenarios.reading import read_all
from metadata.client.client import shared_client
from metadata.store.memory import MemoryStore
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from txnsegment import connect, segments

SCHEMA = StructType([StructField(name, LongType()) for name in ("seq", "batch", "of")] + [StructField("key", StringType())])


def forgetful(url: str, **_: object) -> FaultyStore:
    """Return a store in memory in which every second view loses its session before its first answer."""
    memory, views = MemoryStore(url), itertools.count()

    def lose(call: Call, go: Callable[[], Any]) -> Any:
        answer = go()
        if call.kind == "view" and next(views) % 2 == 0:
            memory.lose_session()
        return answer

    return FaultyStore(memory, lose)


def test_an_operation_that_loses_its_session_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata.cluster.cluster, "open_store", forgetful)
    url = f"memory://{tmp_path.name}-forgetful"
    for first in (0, 1):  # with 1 the test makes one more view before each commit, so that other views lose their sessions
        topic = f"t{first}"
        with connect(url, ledgers=tmp_path.as_uri()) as cluster:
            store = cluster.client.cluster.store
            for batch in range(3):
                plan_write(shared_client(url), WriteOptions.parse({"path": topic, "serviceUrl": url}, streaming=True), SCHEMA)
                for _ in range(first):
                    store.view()
                with cluster.begin(app="writer", version=10 * first + batch) as txn:
                    txn.append(topic, pa.RecordBatch.from_pylist([{"seq": batch, "batch": batch, "of": 1, "key": "k"}]))
                    txn.commit()
            cluster.sweep()
            assert segments.report(cluster.client, topic).segments
        assert [row.seq for row in read_all(url, topic)] == [0, 1, 2]
