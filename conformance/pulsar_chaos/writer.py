"""A writer of two Pulsar topics, in a process of its own: transactions of `connect()`, or batch writes of the Spark sink.

    python -m conformance.pulsar_chaos.writer --url URL --admin URL --topics A,B --name NAME --kind connect|sink --file FILE
        --stop FILE

A transaction of `connect()` writes to both topics. The writes of the sink go to the two topics in turn. Every fifth transaction or
write is aborted. No other writer uses the keys of a writer. Each transaction has rows of all of these keys, so it has rows in each
segment of its topics. The writer appends its events to the file `--file`, and ends after the file `--stop` exists.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from conformance.harness.spark_driver import SparkWrite
from conformance.history.files import Writer
from conformance.history.format import Commit, Start, Told, Written
from conformance.jobs import given
from conformance.scenarios.history import now
from pulsar_protocol.layout import RING, ring_place
from spark_txn_sink.pulsar.options import ADMIN_VARIABLE
from txnsegment.pulsar.cluster import open_pulsar

SEGMENTS, KEYS_OF_SEGMENT, ROWS_OF_KEY = 4, 2, 3
ABORTED_EACH = 5


def keys_of(name: str) -> list[str]:
    """Return the keys of a writer: two for each quarter of the ring of hash values."""
    found: dict[int, list[str]] = {}
    for number in itertools.count():
        key = f"{name}-k{number}"
        quarter = found.setdefault(ring_place(key.encode(), "low") * SEGMENTS // RING, [])
        if len(quarter) < KEYS_OF_SEGMENT:
            quarter.append(key)
        if sum(map(len, found.values())) == SEGMENTS * KEYS_OF_SEGMENT:
            return sorted(itertools.chain.from_iterable(found.values()))
    raise AssertionError


def rows_of(name: str, version: int) -> pa.Table:
    """Return the rows of a transaction, key by key."""
    rows = [(key, f"{key}.{version}.{number}") for key in keys_of(name) for number in range(ROWS_OF_KEY)]
    return pa.table({"key": [key for key, _ in rows], "seq": [row for _, row in rows]})


class Notes:
    """The file with the events of a writer. An event names the topic that it is about."""

    def __init__(self, name: str, file: Path) -> None:
        self._name, self._log = name, Writer(file, Start(now(), name))

    def begin(self, topic: str, version: int, table: pa.Table) -> None:
        rows = tuple(Written(row["seq"], row["key"]) for row in table.to_pylist())
        self._log.add(Commit(now(), self._call(topic, version), self._name, self._name, topic, version, rows))

    def aborted(self, topic: str, version: int) -> None:
        self._log.add(Told(now(), self._call(topic, version), "failed"))

    def _call(self, topic: str, version: int) -> str:
        return f"{self._name} {version} {topic}"


def write_by_connect(url: str, topics: list[str], name: str, notes: Notes) -> Iterator[None]:
    """Write one transaction to both topics, then yield. Repeat this without end."""
    with open_pulsar(url, None) as cluster:
        for version in itertools.count():
            table = rows_of(name, version)
            for topic in topics:
                notes.begin(topic, version, table)
            with cluster.begin() as txn:
                for half in (table.slice(0, table.num_rows // 2), table.slice(table.num_rows // 2)):
                    for topic in topics:
                        txn.append(topic, half, key="key")
                if version % ABORTED_EACH == ABORTED_EACH - 1:
                    txn.abort()
                    for topic in topics:
                        notes.aborted(topic, version)
                else:
                    txn.commit()
            yield


def write_by_the_sink(options: dict[str, str], topics: list[str], name: str, notes: Notes) -> Iterator[None]:
    """Write one batch to one of the topics, then yield. Repeat this without end, with the topics in turn."""
    for version in itertools.count():
        topic, table = topics[version % len(topics)], rows_of(name, version)
        notes.begin(topic, version, table)
        write = SparkWrite({**options, "path": topic, "txnAppId": name, "txnVersion": str(version)}, table)
        messages = write.run(tasks=2)
        if version % ABORTED_EACH == ABORTED_EACH - 1:
            write.abort(messages)
            notes.aborted(topic, version)
        else:
            write.commit(messages)
        yield


def main() -> None:
    words = given("python -m conformance.pulsar_chaos.writer", "url", "admin", "topics", "name", "kind", "file", "stop")
    topics, notes, stop = words.topics.split(","), Notes(words.name, Path(words.file)), Path(words.stop)
    if words.kind == "sink":
        options = {"serviceUrl": words.url, "adminUrl": words.admin, "keyColumn": "key", "entryRows": "4"}
        written = write_by_the_sink(options, topics, words.name, notes)
    else:
        os.environ[ADMIN_VARIABLE] = words.admin  # the first append to a topic creates the writers' log by it
        written = write_by_connect(words.url, topics, words.name, notes)
    for _ in written:
        if stop.exists():
            return


if __name__ == "__main__":
    main()
