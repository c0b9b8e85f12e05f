"""`Consumer`: the committed rows of topics in a plain Python program, in order, acknowledged on a subscription."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
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
from metadata.errors import DataLoss
from metadata.names import is_persistent, segment_name, topic_of
from metadata.providers import Providers
from metadata.reading import Reading
from metadata.row_ranges import FIRST, NONE, Row, Span, end_of, rows
from metadata.subscriptions import checked
from spark_txn_source.entries import EntryRows, in_order
from spark_txn_source.plan import check_trims, pieces
from spark_txn_source.topics import full_schema
from txnsegment.feeds import Feed, Feeds, full_name
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
    long as it is not acknowledged. A `persistent://` topic has an order of its own: its rows come in the order of its log, up to
    its maxReadPosition, and stand in no order to those of other topics. Once it is migrated, what is left of it and all that goes
    on come in the one order with all `topic://` topics. It sleeps until a commit wakes it. Several consumers of one subscription
    all get everything: who acknowledges a row first wins, the other one's ack is an AckConflict.
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
        names = list(dict.fromkeys(full_name(client, name) for name in topics))
        self._values = values_of(names, columns, value_format, schema_version)
        self._woken = threading.Event()
        self._feeds = Feeds(client, names, self._subscription, self._woken)
        self._floor: dict[str, Row] = {}
        self._seen: dict[str, Row] = {}
        self._next: deque[tuple[Feed, Reading]] = deque()
        self._current: Iterator[Batch] | None = None
        self._life = 0
        try:
            self.rewind()
        except BaseException:
            self.close()
            raise

    def rewind(self) -> None:
        """Deliver again what is not acknowledged. It happens by itself when a transaction that acknowledges ends without a commit.

        Raises SubscriptionNotFound, TopicNotFound, DataLoss (retention has taken rows of it).
        """
        self._next.clear()
        self._current = None
        self._feeds.begin()
        self._floor, self._seen = {}, {}
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
                self._woken.clear()  # before looking: a wake-up in between is not lost
                self._current = self._more()
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
            undecided = any(feed.reading.undecided for feed in self._feeds)
            self._woken.wait(min(left, UNDECIDED_SECONDS if undecided else IDLE_SECONDS))

    def _more(self) -> Iterator[Batch] | None:
        """What is new in the next feed that has something. All were looked at when it was seen, and each has its turn before they
        are looked at again.
        """
        if not self._next:
            self._feeds.look()
            self._next.extend((feed, feed.reading) for feed in self._feeds if feed.reading.cut > feed.after)
        return self._deliver(*self._next.popleft()) if self._next else None

    def _deliver(self, feed: Feed, reading: Reading) -> Iterator[Batch]:
        done, known = self._feeds.done, feed.known
        check_trims(reading, feed.after, reading.cut, known, done)
        codec = None if self._values is None else self._values.codec(self._client, reading)
        wanted = self._wanted() if codec is None else codec.arrow
        order = sorted(reading.segments, key=lambda s: _order(s.name))
        if wanted is not None:
            found = [
                (segment, pieces(segment, start, reading.cut, marks=True, done=done.get(segment.name, NONE)))
                for segment in order
                if (start := max(feed.after, known.get(segment.name, 0))) < reading.cut
            ]
            for rows in in_order(self._client.cluster.storage, found, wanted, None if codec is None else codec.filled):
                yield self._batch(rows if codec is None else rows._replace(batch=as_values(codec, rows)))
        feed.after = reading.cut

    def _wanted(self) -> pa.Schema | None:
        """The columns of today: a topic that grows one shows it from the next batch on. None: nothing was ever written."""
        topics = sorted((topic for feed in self._feeds for topic in feed.reading.topics), key=lambda topic: str(topic.name))
        full: StructType | None = full_schema(self._client, topics)
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
        done = self._feeds.done.get(segment, NONE)
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
        else:
            Providers(self._client).acknowledge(acks)

    def ack_cumulative(self, given: Message | Batch, *, txn: Transaction | None = None) -> None:
        """Acknowledge everything that was delivered up to and with it, in all segments that one log orders: of a `persistent://`
        topic in that topic alone (also if it was migrated since), else in all `topic://` topics. Raises as `ack` does, and DataLoss
        if the segment has gone since: it does not say any more what came before.
        """
        feed = next((found for found in self._feeds if found.covers(given.segment)), None)
        if feed is None:
            last = given.id if isinstance(given, Message) else given.ids[-1]
            raise DataLoss(
                f"{given.segment} of {given.topic} has gone since {last} was delivered: its topic was deleted, or retention took "
                "all of it. Nothing was acknowledged: acknowledge a later row."
            )
        views = {view.name: view for view in feed.reading.segments}
        number = views[given.segment].number(given.span[1].ledger_id)
        boundaries = {given.segment: given.span[1]}
        by_itself = number <= feed.known.get(given.segment, 0)  # it came before its topic was joined to the others
        for segment in set() if by_itself else (self._seen.keys() & views.keys()) - {given.segment}:
            below = views[segment].ledger_id(number if _order(segment) < _order(given.segment) else number - 1)
            boundaries[segment] = end_of(below) if below else FIRST
        new = {s: end for s, end in sorted(boundaries.items()) if end > max(self._floor.get(s, FIRST), self._behind_cursor(s))}
        acks = [up_to(segment, self._subscription, end) for segment, end in new.items()]
        if txn is not None:
            txn.acknowledge(acks, dropped=self.rewind)
        else:
            Providers(self._client).advance(acks)
        self._floor |= new

    def _behind_cursor(self, segment: str) -> Row:
        """The boundary up to which all was acknowledged when this began."""
        done = self._feeds.done.get(segment, NONE)
        return done[0][1] if done and done[0][0] == FIRST else FIRST

    def lag(self) -> Lag:
        """How far the subscription lags behind what is committed."""
        found: dict[str, Lag] = {}
        for feed in self._feeds:
            reading = feed.look()
            done = feed.done(reading)
            lags = {s.name: backlog.lag(reading, s, done[s.name], reading.cut) for s in reading.segments}
            for topic in reading.topics:
                whole = backlog.total({name: lag for name, lag in lags.items() if topic_of(name) == topic.name})
                backlog.measure(str(topic.name), self._subscription, whole)
            found |= lags
        return backlog.total(found)

    def close(self) -> None:
        self._feeds.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _order(segment: str) -> tuple[str, int]:
    """Of one transaction's rows: topic by topic, segment by segment."""
    # What was migrated comes before all that went on from it.
    return str(topic_of(segment)), -1 if is_persistent(segment) else segment_name(segment).segment_id


def _flat(given: Iterable[Message | Batch | Iterable[Message | Batch]]) -> Iterator[Message | Batch]:
    for one in given:
        if isinstance(one, Message | Batch):
            yield one
        else:
            yield from one
