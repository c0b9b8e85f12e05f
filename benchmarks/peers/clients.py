"""Writers without Spark: each system's own Python client, in the way that writes exactly once where there is one."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from benchmarks.peers.rows import ARROW, SCHEMA
from benchmarks.peers.systems import PARTS, Kafka, System, Txnsegment

Commit = Callable[[int], None]
"""Commits one row with this id. Returns when the system has acknowledged it."""
PAYLOAD = os.urandom(100)


def create(system: System, table: str) -> None:
    """Create an empty table for `committer`."""
    if isinstance(system, Txnsegment):
        from txnsegment import connect

        with connect(system.url) as cluster:
            cluster.topics.create(table, segments=PARTS, key="k", schema=SCHEMA)
    elif isinstance(system, Kafka):
        system.prepare(table)
    else:
        from deltalake import write_deltalake

        write_deltalake(str(system.root / table), ARROW.empty_table(), mode="append")


def committer(system: System, table: str) -> Commit:
    """Return the function that commits rows to a table of `create`. For the system `kafka_json` a commit is a transaction."""
    if isinstance(system, Txnsegment):
        return _txnsegment(system, table)
    if isinstance(system, Kafka):
        return _kafka(system, table)
    return _delta(system, table)


def _row(number: int) -> dict[str, Any]:
    return {"id": number, "k": f"key-{number % 1000}", "payload": PAYLOAD, "ts": time.time_ns() // 1000}


def _arrow(number: int) -> pa.Table:
    return pa.Table.from_pylist([_row(number)], schema=ARROW)


def _txnsegment(system: Txnsegment, table: str) -> Commit:
    from txnsegment import connect

    cluster = connect(system.url)

    def commit(number: int) -> None:
        with cluster.begin() as txn:
            txn.append(table, _arrow(number))
            txn.commit()

    return commit


def _kafka(system: Kafka, table: str) -> Commit:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": system.hosts, "acks": "all", "compression.type": "zstd", "linger.ms": 0}
    producer = Producer({**settings, "transactional.id": f"peers-{table}"})
    producer.init_transactions(60)

    def commit(number: int) -> None:
        row = _row(number)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(row["ts"] / 1e6)) + f".{row['ts'] % 1_000_000:06d}Z"
        value = json.dumps({**row, "payload": base64.b64encode(PAYLOAD).decode(), "ts": stamp})
        producer.begin_transaction()
        producer.produce(system.topic(table), key=row["k"], value=value)
        producer.commit_transaction(60)

    return commit


def _delta(system: System, table: str) -> Commit:
    from deltalake import DeltaTable, write_deltalake

    opened = DeltaTable(str(system.root / table))

    def commit(number: int) -> None:
        write_deltalake(opened, _arrow(number), mode="append")

    return commit
