"""The tasks of a read from Pulsar. Each task connects by itself and reads a range of one segment as Arrow batches."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from ledgers.arrow import conform
from metadata.common.workers import spare_imports
from metadata.records.row_ranges import NONE, Row, common
from metadata.records.row_ranges import Rows as Hidden
from pulsar_protocol.batches import Rows
from pulsar_protocol.chunks import whole
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Entry
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
"""How long a task waits for the next entry while the broker is away. After this time the task fails."""


class PulsarTask(InputPartition):
    """One task: the entries of a segment after the position `after`, up to the position `to`, inclusive. `fail_on_loss`: whether
    the task fails if the first chunks of a message of this range were deleted. `hidden`: the rows of the segment that are left out.
    """

    def __init__(
        self,
        url: str,
        topic: str,
        segment: str,
        after: Position,
        to: Position,
        columns: PulsarColumns,
        fail_on_loss: bool = True,
        hidden: Hidden = NONE,
    ) -> None:
        self.url, self.topic, self.segment = url, topic, segment
        self.after, self.to, self.columns, self.fail_on_loss, self.hidden = after, to, columns, fail_on_loss, hidden

    def narrowed(self, after: Position, to: Position) -> PulsarTask:
        """Return the task for a part of the range."""
        return PulsarTask(self.url, self.topic, self.segment, after, to, self.columns, self.fail_on_loss, self.hidden)

    def without(self, hidden: Hidden) -> PulsarTask:
        """Return the task that leaves out these rows."""
        return PulsarTask(self.url, self.topic, self.segment, self.after, self.to, self.columns, self.fail_on_loss, hidden)


class OneAfterAnother(InputPartition):
    """One task that reads ranges of several segments, one after another. The segments are ancestors and descendants of each other,
    and an ancestor is read before its descendants.
    """

    def __init__(self, ranges: list[PulsarTask]) -> None:
        self.ranges = ranges


def read_task(task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in exactly the Arrow schema that Spark derives from the read's schema. For an empty plan Spark
    passes a partition of its own class, which has no rows.
    """
    spare_imports()
    if isinstance(task, OneAfterAnother):
        for one in task.ranges:
            yield from read_task(one)
        return
    if not isinstance(task, PulsarTask):
        return
    client = shared_client(task.url).patient()  # the planning has reached the cluster, so its address is right
    versions = SchemaVersions(client, task.topic, task.columns.values(task.topic), binary=task.columns.binary)
    rows = _Rows(task, versions)
    for position, entry in _entries(client, task):
        version = bytes(entry.metadata.schema_version)
        if rows.count and (version != rows.version or rows.full):
            yield from rows.batches()
            rows = _Rows(task, versions)
        rows.add(position, entry, version)
    if rows.count:
        yield from rows.batches()


def _entries(
    client: PulsarClient,
    task: PulsarTask,
    *,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[tuple[Position, Entry]]:
    """Yield the entries of the range. After a lost connection the read continues after the last entry that was yielded. Raises the
    error of the broker if no entry comes for `PATIENCE_SECONDS`.
    """

    def read(start: Position, end: Position) -> Iterator[tuple[Position, Entry]]:
        return entries(client, task.segment, start, end)

    after, pauses, deadline = task.after, growing(), now() + PATIENCE_SECONDS
    while True:
        try:
            for position, entry in whole(read, after, task.to, fail_on_loss=task.fail_on_loss):
                yield position, entry
                after, pauses, deadline = position, growing(), now() + PATIENCE_SECONDS
            return
        except PulsarError as error:
            seconds = next(pauses)
            if not passes(error) or now() + seconds > deadline:
                raise
            pause(seconds)


@dataclass
class _Rows:
    """Messages of one schema version, with the entries that contain them. `batch` converts them into one Arrow batch."""

    task: PulsarTask
    versions: SchemaVersions
    version: bytes = b""
    origins: list[tuple[Position, Any, Rows]] = field(default_factory=list)
    """The position, the metadata and the messages of each entry."""
    count: int = 0
    size: int = 0

    @property
    def full(self) -> bool:
        return self.count >= BATCH_ROWS or self.size >= BATCH_BYTES

    def add(self, position: Position, entry: Entry, version: bytes) -> None:
        rows = entry.rows()
        self.version = version
        self.origins.append((position, entry.metadata, rows))
        self.count += len(rows)
        self.size += len(entry.payload)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batch of these messages, without the hidden rows. Yield nothing if all of them are hidden."""
        hidden = self.task.hidden
        if not hidden:
            yield self.batch()
            return
        kept = [keep for position, _, rows in self.origins for keep in shown(hidden, position, rows.indexes)]
        if any(kept):
            yield self.batch() if all(kept) else self.batch().filter(pa.array(kept))

    def batch(self) -> pa.RecordBatch:
        columns = self.task.columns
        decoded = self.versions.of(self.version).decode(
            self._joined("values", None), self._joined("keys", None), lambda row: f"The message {self._ids()[row]}"
        )
        wanted = to_arrow_schema(columns.wanted, timezone="UTC")
        known = [name for name in wanted.names if name in decoded.schema.names]
        batch = conform(pruned(decoded.select(known), wanted), wanted)
        if columns.output.fieldNames() == columns.wanted.fieldNames():
            return batch
        output = to_arrow_schema(columns.output, timezone="UTC")
        return pa.RecordBatch.from_arrays([self._column(one, batch) for one in output], schema=output)

    def _column(self, wanted: pa.Field, batch: pa.RecordBatch) -> pa.Array:
        match wanted.name:
            case "__topic":
                found: list[Any] = [self.task.topic] * self.count
            case "__segment":
                found = [self.task.segment] * self.count
            case "__messageId":
                found = self._ids()
            case "__publishTime":
                found = self._by_entry(lambda metadata: metadata.publish_time * 1000)
            case "__txnId":
                found = self._by_entry(_txn)
            case "__key":
                found = self._joined("keys", None)
            case "__properties":
                found = [list(one.items()) for one in self._joined("properties", {})]
            case "__eventTime":
                found = [one * 1000 if one else None for one in self._joined("events", 0)]
            case "__orderingKey":
                found = self._joined("ordering_keys", None)
            case name:
                return batch.column(name)
        return pa.array(found, pa.int64()).cast(wanted.type) if pa.types.is_timestamp(wanted.type) else pa.array(found, wanted.type)

    def _joined(self, attribute: str, nothing: object) -> list[Any]:
        """Return an attribute of all messages. `nothing`: the value that all messages of an entry get if none of them has the
        attribute.
        """
        found: list[Any] = []
        for _, _, rows in self.origins:
            values = getattr(rows, attribute)
            found += [nothing] * len(rows) if values is None else values
        return found

    def _by_entry(self, of: Callable[[Any], Any]) -> list[Any]:
        return [one for _, metadata, rows in self.origins for one in [of(metadata)] * len(rows)]

    def _ids(self) -> list[str]:
        return [f"{position.text}:{index}" for position, _, rows in self.origins for index in rows.indexes]


def shown(hidden: Hidden, position: Position, indexes: Sequence[int]) -> list[bool]:
    """Return for each row of an entry whether it is not hidden. `indexes`: the places of the rows within the entry, ascending."""
    first, end = Row(position.ledger, position.entry, 0), Row(position.ledger, position.entry + 1, 0)
    spans = hidden[max(0, bisect_right(hidden, (first, first)) - 1) : bisect_left(hidden, (end, end))]
    of_entry = common(spans, ((first, end),))
    if not of_entry:
        return [True] * len(indexes)
    if of_entry == ((first, end),):
        return [False] * len(indexes)
    rows = (Row(position.ledger, position.entry, index) for index in indexes)
    return [not any(begin <= row < stop for begin, stop in of_entry) for row in rows]


def _txn(metadata: Any) -> str | None:
    return f"{metadata.txnid_most_bits}_{metadata.txnid_least_bits}" if metadata.HasField("txnid_most_bits") else None


def tasks(
    url: str, topic: str, starts: dict[str, Position], ends: dict[str, Position], columns: PulsarColumns, *, fail_on_loss: bool
) -> list[PulsarTask]:
    """Return a task for each segment that has entries between its start and its end, in the order of `ends`. A segment without a
    start is read whole. Deleted chunks are no error if the read starts at the beginning of the segment.
    """
    found = []
    for segment, end in ends.items():
        start = starts.get(segment, EARLIEST)
        if end > start:
            found.append(PulsarTask(url, topic, segment, start, end, columns, fail_on_loss and start != EARLIEST))
    return found
