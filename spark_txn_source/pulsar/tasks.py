"""The tasks of a read from Pulsar. Each task connects by itself and reads a range of one segment as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from ledgers.arrow import conform
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Entry, Message
from pulsar_protocol.errors import PulsarError
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.reader import entries
from pulsar_protocol.retries import growing, passes
from pulsar_protocol.values import SchemaVersions
from spark_txn_source.pruning import pruned
from spark_txn_source.pulsar.columns import PulsarColumns
from spark_txn_source.pulsar.topics import shared_client

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024
PATIENCE_SECONDS: Final = 60.0
"""The time after which a task fails if it gets no entry because the broker is away."""


class PulsarTask(InputPartition):
    """One task: the entries of a segment after `after`, up to `to`."""

    def __init__(self, url: str, topic: str, segment: str, after: Position, to: Position, columns: PulsarColumns) -> None:
        self.url, self.topic, self.segment = url, topic, segment
        self.after, self.to, self.columns = after, to, columns


def read_task(task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in exactly the Arrow schema that Spark derives from the read's schema. For an empty plan Spark
    passes a partition of its own class, which has no rows.
    """
    if not isinstance(task, PulsarTask):
        return
    client = shared_client(task.url)
    versions = SchemaVersions(client, task.topic, task.columns.values(task.topic))
    rows = _Rows(task, versions)
    for position, entry in _entries(client, task):
        version = bytes(entry.metadata.schema_version)
        if rows.messages and (version != rows.version or rows.full):
            yield rows.batch()
            rows = _Rows(task, versions)
        rows.add(position, entry, version)
    if rows.messages:
        yield rows.batch()


def _entries(client: PulsarClient, task: PulsarTask) -> Iterator[tuple[Position, Entry]]:
    """Yield the entries of the range. After a lost connection the read goes on after the last entry."""
    after, pauses, deadline = task.after, growing(), time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            for position, entry in entries(client, task.segment, after, task.to):
                yield position, entry
                after, pauses, deadline = position, growing(), time.monotonic() + PATIENCE_SECONDS
            return
        except PulsarError as error:
            pause = next(pauses)
            if not passes(error) or time.monotonic() + pause > deadline:
                raise
            time.sleep(pause)


@dataclass
class _Rows:
    """Messages of one schema version, and where they come from."""

    task: PulsarTask
    versions: SchemaVersions
    version: bytes = b""
    messages: list[Message] = field(default_factory=list)
    origins: list[tuple[Position, Any, int]] = field(default_factory=list)
    """Of each entry: its position, its metadata and the number of its messages."""
    size: int = 0

    @property
    def full(self) -> bool:
        return len(self.messages) >= BATCH_ROWS or self.size >= BATCH_BYTES

    def add(self, position: Position, entry: Entry, version: bytes) -> None:
        found = list(entry.messages())
        self.version = version
        self.messages += found
        self.origins.append((position, entry.metadata, len(found)))
        self.size += len(entry.payload)

    def batch(self) -> pa.RecordBatch:
        values, keys = [one.value for one in self.messages], [one.key for one in self.messages]
        columns = self.task.columns
        decoded = self.versions.of(self.version).decode(values, keys, lambda row: f"The message {self._ids()[row]}")
        wanted = to_arrow_schema(columns.wanted, timezone="UTC")
        batch = conform(pruned(decoded.select(wanted.names), wanted), wanted)
        if columns.output.fieldNames() == columns.wanted.fieldNames():
            return batch
        output = to_arrow_schema(columns.output, timezone="UTC")
        return pa.RecordBatch.from_arrays([self._column(one, batch) for one in output], schema=output)

    def _column(self, wanted: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        messages = self.messages
        match wanted.name:
            case "__topic":
                found: list[Any] = [self.task.topic] * len(messages)
            case "__segment":
                found = [self.task.segment] * len(messages)
            case "__messageId":
                found = self._ids()
            case "__publishTime":
                found = self._by_entry(lambda metadata: metadata.publish_time * 1000)
            case "__txnId":
                found = self._by_entry(_txn)
            case "__key":
                found = [one.key for one in messages]
            case "__properties":
                found = [list(one.properties.items()) for one in messages]
            case "__eventTime":
                found = [one.event_ms * 1000 if one.event_ms else None for one in messages]
            case "__orderingKey":
                found = [one.ordering_key for one in messages]
            case name:
                return batch.column(name)
        return pa.array(found, pa.int64()).cast(wanted.type) if pa.types.is_timestamp(wanted.type) else pa.array(found, wanted.type)

    def _by_entry(self, of: Any) -> list[Any]:
        return [one for _, metadata, count in self.origins for one in [of(metadata)] * count]

    def _ids(self) -> list[str]:
        return [f"{position.text}:{index}" for position, _, count in self.origins for index in range(count)]


def _txn(metadata: Any) -> str | None:
    return f"{metadata.txnid_most_bits}_{metadata.txnid_least_bits}" if metadata.HasField("txnid_most_bits") else None


def tasks(url: str, topic: str, starts: dict[str, Position], ends: dict[str, Position], columns: PulsarColumns) -> list[PulsarTask]:
    """Return a task for each segment that has entries between its start and its end. A segment without a start is read whole."""
    return [
        PulsarTask(url, topic, segment, starts.get(segment, EARLIEST), end, columns)
        for segment, end in sorted(ends.items())
        if end > starts.get(segment, EARLIEST)
    ]
