"""A decision whose session is lost starts over (protocol.md section 3), also one of a single read: nobody's query ends for it.

Found by the cluster suite (`python -m conformance --cluster --faults 8 --seed 3`): a ZooKeeper session expired between two
micro-batches, and the first look at the topic ended the streaming query with SessionLost.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import metadata.cluster.cluster
from conformance.chaos.reading import read_all
from metadata.client.client import shared_client
from metadata.store.contract import View
from metadata.store.memory import MemoryStore
from spark_txn_sink.options import WriteOptions
from spark_txn_sink.plan import plan_write
from txnsegment import connect, segments

SCHEMA = StructType([StructField(name, LongType()) for name in ("seq", "batch", "of")] + [StructField("key", StringType())])


class Forgetful(MemoryStore):
    """Every other view has lost its session before it answers for the first time."""

    def __init__(self, url: str, **_: object) -> None:
        super().__init__(url)
        self._views = itertools.count()

    def view(self) -> View:
        view = super().view()
        if next(self._views) % 2 == 0:
            self.lose_session()
        return view


def test_whoever_loses_a_session_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata.cluster.cluster, "open_store", Forgetful)
    url = f"memory://{tmp_path.name}-forgetful"
    for first in (0, 1):  # whether the first view of each step is a lost one
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
