"""`Consumer`: the committed rows of topics in a plain Python program, in order, acknowledged on a subscription."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers import schema as schemas
from ledgers.arrow import arrow_schema
from metadata import backlog
from metadata.acks import Ack, up_to
from metadata.backlog import Lag
from metadata.client import Client
from metadata.names import is_persistent, segment_name, topic_name, topic_of
from metadata.row_ranges import FIRST, NONE, Row, Rows, Span, end_of, rows
from metadata.subscriptions import checked
from metadata.transaction_buffer import Reading, Selection
from spark_txn_source.entries import EntryRows, in_order
from spark_txn_source.following import Following
from spark_txn_source.plan import acknowledged, check_cursors, check_trims, pieces
from spark_txn_source.topics import full_schema
from txnsegment.transaction import Transaction
from txnsegment.values import as_values, values_of

IDLE_SECONDS = 1.0
"""Wake-ups may be lost: an idle consumer looks again after so long, and sooner while something is undecided."""
UNDECIDED_SECONDS = 0.05


@dataclass(frozen=True)
class Message:
    """One committed row. `id`: `ledger:entry:index`, unique within its segment; `value`: by column; `txn`: who wrote it."""

    topic: str
    segment: str
    id: str
    value: dict[str, Any]
    publish_ms: int
    txn: str | None
    span: Span = field(repr=False)
    """What acknowledging it covers: the row, and the empty space behind the row before."""


@dataclass(frozen=True)
class Batch:
    """Committed rows of one entry as Arrow, in order. `rows` has no metadata columns; `ids` gives their message ids."""

    topic: str
    segment: str
    ledger: int
    entry: int
    index: int
    rows: pa.RecordBatch
    publish_ms: int
    txn: str | None
    span: Span = field(repr=False)

    @property
    def ids(self) -> list[str]:
        return [f"{self.ledger}:{self.entry}:{self.index + i}" for i in range(self.rows.num_rows)]

    def messages(self) -> Iterator[Message]:
        last = self.rows.num_rows - 1
        for i, value in enumerate(self.rows.to_pylist()):
            first = self.span[0] if i == 0 else Row(self.ledger, self.entry, self.index + i)
            end = self.span[1] if i == last else Row(self.ledger, self.entry, self.index + i + 1)
            name = f"{self.ledger}:{self.entry}:{self.index + i}"
            yield Message(self.topic, self.segment, name, value, self.publish_ms, self.txn, (first, end))


class Consumer:
    """Made by `cluster.consumer(topics, subscription)`; for one thread, and for one loop at a time.

        with cluster.consumer("orders", "billing", start="earliest") as consumer:
            for message in consumer.messages():
                ...
                consumer.ack(message)

    Rows come in the order of their transactions, over all segments and topics, so parents before children, each committed row as
    long as it is not acknowledged. It sleeps until a commit wakes it. Several consumers of one subscription all get everything:
    who acknowledges a row first wins, the other one's ack is an AckConflict.
    """

    def __init__(
        self,
        client: Client,
        topics: Sequence[str],
        subscription: str,
        *,
        columns: Sequence[str] | None = None,
        value_format: str = "columns",
        schema_version: int | None = None,
    ) -> None:
        self._client, self._subscription, self._columns = client, checked(subscription), columns
        self._values = values_of(topics, columns, value_format, schema_version)
        names = tuple(n if n.startswith("segment:") else str(topic_name(n)) for n in topics)
        self._following = Following(client, Selection(names))
        self._done: dict[str, Rows] = {}
        self._floor: dict[str, Row] = {}
        self._seen: dict[str, Row] = {}
        self._after = 0
        self._guards: dict[str, int] = {}
        self._current: Iterator[Batch] | None = None
        self._life = 0
        self.rewind()

    def rewind(self) -> None:
        """Deliver again what is not acknowledged. It happens by itself when a transaction that acknowledges ends without a commit.

        Raises SubscriptionNotFound, DataLoss (retention has taken rows of it).
        """
        reading = self._following.read()
        self._done = acknowledged(self._client, reading, self._subscription)
        check_cursors(reading, self._done, self._subscription)
        self._floor = {s: found[0][1] if found and found[0][0] == FIRST else FIRST for s, found in self._done.items()}
        self._seen = {}
        self._after = backlog.first_pending(reading, self._done, reading.cut)
        self._guards = reading.guards()
        self._current = None
        self._life += 1

    # --- delivering -----------------------------------------------------------------------------------------------

    def messages(self, *, timeout: float | None = None) -> Iterator[Message]:
        """Row by row. `timeout`: stop after so many SECONDS without a new row; None: never."""
        for batch in self.batches(timeout=timeout):
            life = self._life
            for message in batch.messages():
                yield message
                if life != self._life:  # rewound: the rest of the batch comes again with all else
                    break

    __iter__ = messages

    def batches(self, *, timeout: float | None = None) -> Iterator[Batch]:
        """Batch by batch. Can be left and taken up again at the next batch. Raises TopicNotFound, DataLoss, CorruptPart."""
        clock = self._client.cluster.clock
        idle = clock.monotonic()
        while True:
            if self._current is None:
                reading = self._following.read()
                if reading.cut > self._after:
                    self._current = self._deliver(reading)
            batch = None if self._current is None else next(self._current, None)
            if batch is not None:
                yield batch
                idle = clock.monotonic()
                continue
            if self._current is not None:
                self._current = None
                continue
            left = IDLE_SECONDS if timeout is None else timeout - (clock.monotonic() - idle)
            if left <= 0:
                return
            self._following.wait(min(left, UNDECIDED_SECONDS if reading.undecided else IDLE_SECONDS))

    def _deliver(self, reading: Reading) -> Iterator[Batch]:
        check_trims(reading, self._after, reading.cut, self._guards, self._done)
        codec = None if self._values is None else self._values.codec(self._client, reading)
        wanted = self._wanted(reading) if codec is None else codec.arrow
        order = sorted(reading.segments, key=lambda s: _order(s.name))
        if wanted is not None:
            found = [
                pieces(reading, segment, self._after, reading.cut, marks=True, done=self._done.get(segment.name, NONE))
                for segment in order
            ]
            for rows in in_order(self._client.cluster.storage, found, wanted, None if codec is None else codec.filled):
                yield self._batch(rows if codec is None else rows._replace(batch=as_values(codec, rows)))
        self._after = reading.cut

    def _wanted(self, reading: Reading) -> pa.Schema | None:
        """The columns of today: a topic that grows one shows it from the next batch on. None: nothing was ever written."""
        full: StructType | None = full_schema(self._client, reading.topics)
        if full is None:
            return None
        return arrow_schema(full if self._columns is None else schemas.columns(full, list(self._columns)))

    def _batch(self, found: EntryRows) -> Batch:
        stop = found.first_row + found.batch.num_rows
        first = Row(found.ledger, found.entry, found.first_row)
        if (found.entry, found.first_row) == (0, 0):
            first = self._behind(found.segment, first)
        end = Row(found.ledger, found.entry + 1, 0) if stop == found.of else Row(found.ledger, found.entry, stop)
        self._seen[found.segment] = end
        topic = str(topic_of(found.segment))
        return Batch(
            topic,
            found.segment,
            found.ledger,
            found.entry,
            found.first_row,
            found.batch,
            found.publish_ms,
            found.txn,
            (first, end),
        )

    def _behind(self, segment: str, row: Row) -> Row:
        """The end of the last visible row before a ledger's first one: between them nothing is visible, now or ever, and covering
        it lets acks of consecutive rows grow together in the cursor.
        """
        done = self._done.get(segment, NONE)
        before = bisect_right(done, (row, row))
        acked = min(done[before - 1][1], row) if before else FIRST
        return max(acked, self._seen.get(segment, FIRST))

    # --- acknowledging --------------------------------------------------------------------------------------------

    def ack(self, *given: Message | Batch | Iterable[Message | Batch], txn: Transaction | None = None) -> None:
        """Acknowledge these rows, at once or with the commit of `txn`. Several at a time cost no more than one.

        Raises AckConflict (somebody else has acknowledged or claims one of them), SubscriptionNotFound, TxnConflict (`txn` ended).
        """
        spans: dict[str, list[Span]] = {}
        for one in _flat(given):
            spans.setdefault(one.segment, []).append(one.span)
        acks = [Ack(segment, self._subscription, rows(found)) for segment, found in sorted(spans.items())]
        if txn is not None:
            txn.acknowledge(acks, dropped=self.rewind)
        elif acks:
            self._client.coordinator.acks.acknowledge(acks)

    def ack_cumulative(self, given: Message | Batch, *, txn: Transaction | None = None) -> None:
        """Acknowledge everything that was delivered up to and with it, in all segments. Raises as `ack` does."""
        ledger = given.span[1].ledger_id
        boundaries = {}
        for segment in self._seen.keys() | {given.segment}:
            if segment == given.segment:
                boundaries[segment] = given.span[1]
            else:
                boundaries[segment] = end_of(ledger if _order(segment) < _order(given.segment) else ledger - 1)
        new = {s: end for s, end in sorted(boundaries.items()) if end > self._floor.get(s, FIRST)}
        acks = [up_to(segment, self._subscription, end) for segment, end in new.items()]
        if txn is not None:
            txn.acknowledge(acks, dropped=self.rewind)
        else:
            self._client.coordinator.acks.advance(acks)
        self._floor |= new

    def lag(self) -> Lag:
        """How far the subscription lags behind what is committed."""
        reading = self._following.read()
        done = acknowledged(self._client, reading, self._subscription)
        found = {s.name: backlog.lag(reading, s, done[s.name], reading.cut) for s in reading.segments}
        for topic in reading.topics:
            whole = backlog.total({segment: found[segment] for segment in topic.segments() if segment in found})
            backlog.measure(str(topic.name), self._subscription, whole)
        return backlog.total(found)

    def close(self) -> None:
        self._following.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _order(segment: str) -> tuple[str, int]:
    """Of one transaction's rows: topic by topic, segment by segment."""
    if is_persistent(segment):
        return segment, -1  # what was migrated comes before all that went on from it
    name = segment_name(segment)
    return str(name.topic), name.segment_id


def _flat(given: Iterable[Message | Batch | Iterable[Message | Batch]]) -> Iterator[Message | Batch]:
    for one in given:
        if isinstance(one, Message | Batch):
            yield one
        else:
            yield from one
