"""`Consumer` delivers the committed rows of topics to a plain Python program, in order, and acknowledges them."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers import schema as schemas
from ledgers.arrow import arrow_schema
from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import DataLoss, NotDelivered
from metadata.read import backlog
from metadata.read.backlog import Lag
from metadata.read.reading import Reading
from metadata.read.segment_view import SegmentView
from metadata.records.names import topic_of
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, Span, before, end_of, minus, rows, union
from metadata.rules.acks import Ack, up_to
from metadata.topics.subscriptions import checked
from spark_txn_source.columns import full_schema
from spark_txn_source.entries import EntryRows, in_order, segment_order
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.losses import check_deletions, check_trims
from spark_txn_source.pieces import pieces
from txnsegment.feeds import Feed, Feeds, full_name
from txnsegment.messages import Ahead, Batch, Message
from txnsegment.transaction import Transaction
from txnsegment.values import as_values, values_of

_DELETED_ADVICE = (
    "If the topic was created again, create the subscription on the new one (cluster.subscriptions.create), then call rewind(): "
    "the consumer continues without these rows."
)
IDLE_SECONDS = 1.0
"""After this time in seconds an idle consumer reads the logs again, because wake-ups may be lost. While a transaction is undecided,
the time is UNDECIDED_SECONDS.
"""
UNDECIDED_SECONDS = 0.05

T = TypeVar("T")


class Consumer:
    """Delivers committed rows to one subscription. Made by `cluster.consumer(topics, subscription)`, for one thread.

        with cluster.consumer("orders", "billing", start="earliest") as consumer:
            for message in consumer.messages():
                ...
                consumer.ack(message)

    It delivers every committed row that is not acknowledged, in the order of transactions, over all segments and topics. So rows of
    parents come before rows of children. All loops over a consumer share one position. A row counts as delivered when a loop
    returns it, not when it is read ahead. If a program leaves a loop (`next`, `break`, an error), the next loop starts with the
    next row, also if it delivers batches. An idle consumer sleeps until a commit wakes it.

    A `persistent://` topic has its own order: its rows come in the order of its log, up to its maxReadPosition. They have no order
    relative to rows of other topics. Once the topic is migrated, its remaining rows and those of its successor come in one order
    with all `topic://` topics.

    Several consumers of one subscription all get every row. The first acknowledgement of a row succeeds. A later acknowledgement of
    the same row raises AckConflict.
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
        self._named = ", ".join(names)
        self._values = values_of(names, columns, value_format, schema_version)
        self._woken = threading.Event()
        self._feeds = Feeds(client, names, self._subscription, self._woken)
        self._given: dict[str, Row] = {}
        """The end of the last row that was delivered since the last rewind, by segment."""
        self._given_before: dict[str, Row] = {}
        """The end of the last row that was delivered before the last rewind, by segment."""
        self._floor: dict[str, Row] = {}
        """By segment, the end of the cumulative acks that are in effect."""
        self._floors: dict[Transaction, dict[str, Row]] = {}
        """The end of the cumulative acks that take effect with the commit of a transaction, by transaction and segment."""
        self._next: deque[tuple[Feed, Reading]] = deque()
        self._current: Iterator[Batch] | None = None
        self._ahead: Ahead | None = None
        self._rewind_due = False
        self._skipped = False
        try:
            self.rewind()
        except BaseException:
            self.close()
            raise

    def rewind(self) -> None:
        """Go back to the subscription's cursors, so that all unacknowledged rows are delivered again.

        The consumer rewinds by itself, at the next delivery, if a transaction that acknowledges rows of this consumer ends without
        a commit or is skipped. Only a call of this method makes the consumer continue without the rows of deleted topics.

        Raises SubscriptionNotFound, TopicNotFound, DataLoss (retention has removed unacknowledged rows). After an error the next
        delivery tries again.
        """
        self._begin_anew(lambda feed: None)

    def _begin_anew(self, check: Callable[[Feed], None]) -> None:
        """Go back to the subscription's cursors if `check` passes for each feed. After an error the next delivery tries again."""
        self._rewind_due = True
        self._next.clear()
        self._current = self._ahead = None
        before_it = self._feeds.done
        self._feeds.begin(check)
        self._given_before |= {s: end for s, end in self._given.items() if end > self._given_before.get(s, FIRST)}
        for segment, acked in self._feeds.done.items():
            if minus(before_it.get(segment, NONE), acked):  # a seek moved the cursor back, so no row counts as delivered
                self._given_before.pop(segment, None)
        self._floor, self._floors, self._given = {}, {}, {}
        self._rewind_due = self._skipped = False

    def _drop(self, skipped: bool) -> None:
        """Note that a transaction with acks of this consumer ended without a commit, or that its commit was skipped.
        `Transaction.abort` calls this, so it does no I/O that could fail.
        """
        self._rewind_due = True
        self._skipped = self._skipped or skipped

    # --- delivering -----------------------------------------------------------------------------------------------

    def messages(self, *, timeout: float | None = None) -> Iterator[Message]:
        """Deliver row by row. `timeout`: stop after this many SECONDS without a new row; None: never stop.

        Raises the errors of `batches`. Raises ValueFormatError for a row with a value that Python cannot represent (e.g. a date
        before the year 1). `batches` still delivers such a row.
        """
        return self._handed_out(self._message, timeout)

    __iter__ = messages

    def batches(self, *, timeout: float | None = None) -> Iterator[Batch]:
        """Deliver batch by batch. If `messages` has delivered some rows of a batch, the first batch has the rest. Raises
        TopicNotFound, DataLoss, CorruptPart. After an error the next call continues with the next row.
        """
        return self._handed_out(self._batch, timeout)

    def _handed_out(self, take: Callable[[Ahead], T], timeout: float | None) -> Iterator[T]:
        clock = self._client.cluster.clock
        idle = clock.monotonic()
        while True:
            if (ahead := self._read_ahead()) is not None:
                yield take(ahead)
                idle = clock.monotonic()
                continue
            left = IDLE_SECONDS if timeout is None else timeout - (clock.monotonic() - idle)
            if left <= 0:
                return
            undecided = any(feed.reading.undecided for feed in self._feeds)
            self._woken.wait(min(left, UNDECIDED_SECONDS if undecided else IDLE_SECONDS))

    def _message(self, ahead: Ahead) -> Message:
        message = ahead.message()
        self._given[message.segment] = message.span[1]
        return message

    def _batch(self, ahead: Ahead) -> Batch:
        batch = ahead.rest()
        self._given[batch.segment] = batch.span[1]
        return batch

    def _read_ahead(self) -> Ahead | None:
        """Return the batch with the next row; None if there is no new row."""
        # The rewind delivers unacknowledged rows again, also below `Feed.after`. So the check for deleted topics begins at 0.
        if self._rewind_due:
            self._begin_anew(lambda feed: self._check_deletions(feed, feed.reading, 0, {}))
        while self._ahead is None or not self._ahead.left:
            if self._current is None:
                self._woken.clear()  # cleared before the read, so that a wake-up during the read is not lost
                self._current = self._more()
                if self._current is None:
                    return None
            batch = next(self._current, None)  # an error ends the generator, and the next call reads its undelivered rows again
            if batch is None:
                self._current = None
            else:
                self._ahead = Ahead(batch)
        return self._ahead

    def _more(self) -> Iterator[Batch] | None:
        """Return the new batches of the next feed that has new rows; None if no feed has new rows. The logs of all feeds are read
        together. The logs are read again when every feed has delivered its rows.
        """
        if not self._next:
            self._feeds.look()
            self._next.extend((feed, feed.reading) for feed in self._feeds if feed.reading.cut > feed.after)
        return self._deliver(*self._next.popleft()) if self._next else None

    def _deliver(self, feed: Feed, reading: Reading) -> Iterator[Batch]:
        done, known = self._not_again(reading), feed.known
        self._check_deletions(feed, reading, feed.after, done)
        try:
            check_trims(LogRange(reading, feed.after, reading.cut, done), known)
        except DataLoss:
            # Rows that another consumer of the subscription has acknowledged since this feed began are no loss.
            now = feed.done(reading)
            done = {s.name: union(done.get(s.name, NONE), now.get(s.name, NONE)) for s in reading.segments}
            check_trims(LogRange(reading, feed.after, reading.cut, done), known)
        codec = None if self._values is None else self._values.codec(self._client, reading)
        wanted = self._wanted() if codec is None else codec.arrow
        order = sorted(reading.segments, key=lambda s: segment_order(s.name))
        if wanted is not None:
            found = [
                (segment, pieces(segment, start, reading.cut, marks=True, done=done.get(segment.name, NONE)))
                for segment in order
                if (start := max(feed.after, known.get(segment.name, 0))) < reading.cut
            ]
            for rows in in_order(self._client.cluster.storage, found, wanted, None if codec is None else codec.filled):
                yield self._made(rows if codec is None else rows._replace(batch=as_values(codec, rows)))
        feed.after = reading.cut

    def _check_deletions(self, feed: Feed, reading: Reading, after: int, done: Mapping[str, Rows]) -> None:
        """Raise DataLoss if a topic that was deleted since the feed began had rows above `after` that are not in `done`. Rows that
        any consumer of the subscription has acknowledged are no loss.
        """
        try:
            check_deletions(LogRange(reading, after, reading.cut, done), feed.deleted_to, feed.known, _DELETED_ADVICE)
        except DataLoss:
            acked = feed.done_of_deleted(reading)
            done = {s.name: union(done.get(s.name, NONE), acked.get(s.name, NONE)) for s in reading.gone}
            check_deletions(LogRange(reading, after, reading.cut, done), feed.deleted_to, feed.known, _DELETED_ADVICE)

    def _not_again(self, reading: Reading) -> dict[str, Rows]:
        """Return the rows, by segment, that must not be delivered: the rows that were acknowledged when the feeds began, and the
        rows that were delivered since then. (After an error some delivered rows may lie above `Feed.after`.)
        """
        found = dict(self._feeds.done)
        for segment in (*reading.segments, *reading.gone):
            if (end := self._given.get(segment.name)) is not None:
                found[segment.name] = union(found.get(segment.name, NONE), before(end))
        return found

    def _wanted(self) -> pa.Schema | None:
        """Return the current columns of the topics; None if no topic has a schema. A new column appears from the next batch on."""
        topics = sorted((topic for feed in self._feeds for topic in feed.reading.topics), key=lambda topic: str(topic.name))
        full: StructType | None = full_schema(self._client, topics)
        if full is None:
            return None
        return arrow_schema(full if self._columns is None else schemas.columns(full, list(self._columns)))

    def _made(self, found: EntryRows) -> Batch:
        stop = found.first_row + found.batch.num_rows
        first = Row(found.ledger, found.entry, found.first_row)
        if (found.entry, found.first_row) == (0, 0):
            first = self._behind(found.segment, first)
        end = Row(found.ledger, found.entry + 1, 0) if stop == found.of else Row(found.ledger, found.entry, stop)
        topic = str(topic_of(found.segment))
        self._client.cluster.figures.read(found.batch.num_rows)
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
        """Return the beginning of the span of a ledger's first row, i.e. of the range that an ack of this row covers. The span
        begins at the end of the last visible row before this row. It also covers the positions between the two rows, which never
        have a visible row. So the acks of consecutive rows join to one range.
        """
        done = self._feeds.done.get(segment, NONE)
        spans = bisect_right(done, (row, row))
        acked = min(done[spans - 1][1], row) if spans else FIRST
        return max(acked, self._given.get(segment, FIRST))

    # --- acknowledging --------------------------------------------------------------------------------------------

    def ack(self, *given: Message | Batch | Iterable[Message | Batch], txn: Transaction | None = None) -> None:
        """Acknowledge these rows, at once or with the commit of `txn`. Several rows cost no more round trips than one.

        Raises AckConflict (one of the rows is acknowledged already, or a transaction claims it), SubscriptionNotFound, TxnConflict
        (`txn` has ended).
        """
        spans: dict[str, list[Span]] = {}
        for one in _flat(given):
            spans.setdefault(one.segment, []).append(one.span)
        acks = [Ack(segment, self._subscription, rows(found)) for segment, found in sorted(spans.items())]
        if txn is not None:
            txn.acknowledge(acks, dropped=self._drop)
        else:
            Providers(self._client).acknowledge(acks)

    def ack_cumulative(self, given: Message | Batch, *, txn: Transaction | None = None) -> None:
        """Acknowledge every row that was delivered up to `given`, inclusive, in all segments of the same log. A row of a `topic://`
        topic acknowledges rows of all `topic://` topics. A row of a `persistent://` topic acknowledges rows of this topic alone,
        also if the topic was migrated since. Rows that were only read ahead, and later rows of the same transaction or batch, are
        not acknowledged.

        Raises the errors of `ack`. Raises NotDelivered if this consumer has not delivered the row, or if the commit of a
        transaction was skipped, so that the rows which it should have acknowledged come again with the next delivery. Raises
        DataLoss if the segment is deleted, because the rows before the given row are then not known.
        """
        last = given.id if isinstance(given, Message) else given.ids[-1]
        if self._skipped:
            raise NotDelivered(
                f"The commit of a transaction with acknowledgements of this consumer of {self._subscription!r} was skipped, so "
                f"rows before {last} of {given.segment} may not have been processed.",
                advice="Nothing was acknowledged. Take the next delivery first: it begins with these rows. Or acknowledge single "
                "rows (ack).",
            )
        feed = next((found for found in self._feeds if found.covers(given.segment)), None)
        if feed is None:
            raise DataLoss(
                f"{given.segment} of {given.topic} has gone since {last} was delivered: its topic was deleted, or retention "
                "removed all of it. Nothing was acknowledged.",
                advice="Acknowledge a later row.",
            )
        if given.span[1] > self._handed_to(given.segment):
            raise NotDelivered(
                f"{last} of {given.segment} was not delivered by this consumer of {self._subscription!r}, or the subscription was "
                "moved back since.",
                advice="Nothing was acknowledged. Acknowledge cumulatively what this consumer delivers; single rows (ack) may come "
                "from any.",
            )
        views = {view.name: view for view in feed.reading.segments}
        number = views[given.segment].number(given.span[1].ledger_id)
        boundaries = {given.segment: given.span[1]}
        by_itself = number <= feed.known.get(given.segment, 0)  # the migrated topic's own feed delivered the row
        floor = self._floor_of(txn)
        handed_out = self._given.keys() | self._given_before.keys()
        for segment in set() if by_itself else (handed_out & views.keys()) - {given.segment}:
            through = number if segment_order(segment) < segment_order(given.segment) else number - 1
            boundaries[segment] = min(self._handed_to(segment), self._row_end(views[segment], through, floor))
        done = feed.done(feed.reading) if self._rewind_due else self._feeds.done
        new = {s: end for s, end in sorted(boundaries.items()) if end > max(floor.get(s, FIRST), _begin(done.get(s, NONE)))}
        acks = [up_to(segment, self._subscription, end) for segment, end in new.items()]
        if txn is not None:
            txn.acknowledge(acks, dropped=self._drop)
        else:
            Providers(self._client).advance(acks)
        (self._floor if txn is None else self._floors.setdefault(txn, {})).update(new)

    def _floor_of(self, txn: Transaction | None) -> dict[str, Row]:
        """Return, by segment, the end of the cumulative acks that a new cumulative ack in `txn` need not repeat. These are the acks
        in effect, and the acks of `txn` itself. Acks of another transaction are not in effect before its commit. `txn` None: the
        new ack takes effect at once.
        """
        for one in [one for one in self._floors if one.counts]:
            self._floor = _higher(self._floor, self._floors.pop(one))
        return self._floor if txn is None else _higher(self._floor, self._floors.get(txn, {}))

    def _row_end(self, view: SegmentView, through: int, floor: Mapping[str, Row]) -> Row:
        """Return the boundary where a cumulative ack of the rows up to the number `through` ends in a segment. If this consumer has
        delivered rows above `through`, the boundary is the end of the last row at or below `through`. The acknowledgement of the
        next row begins at this boundary, and covers the empty positions in between. An ack that ended within these positions would
        conflict with the acknowledgement of the next row.
        """
        below = view.ledger_id(through)
        if not below or end_of(below) >= self._handed_to(view.name):
            return end_of(below) if below else FIRST
        acked = max(floor.get(view.name, FIRST), _begin(self._feeds.done.get(view.name, NONE)))
        found = FIRST
        for ledger in view.ledgers(max(0, view.number(acked.ledger_id) - 1), through):
            found = end_of(ledger.id, ledger.last_entry)
        return found

    def _handed_to(self, segment: str) -> Row:
        """Return the end of the last row of a segment that this consumer has delivered. FIRST if it has delivered none."""
        return max(self._given.get(segment, FIRST), self._given_before.get(segment, FIRST))

    def lag(self) -> Lag:
        """Return the lag of the subscription: its unacknowledged committed rows, their bytes and age. Also sets the lag metrics."""
        found: dict[str, Lag] = {}
        for feed in self._feeds:
            reading = feed.look()
            done = feed.done(reading)
            lags = {s.name: backlog.lag(reading, s, done[s.name], reading.cut) for s in reading.segments}
            for topic in reading.topics:
                whole = backlog.total({name: lag for name, lag in lags.items() if topic_of(name) == topic.name})
                backlog.measure(str(topic.name), self._subscription, whole)
            found |= lags
        whole = backlog.total(found)
        self._client.cluster.figures.lagging(self._named, self._subscription, whole.rows, more=False)
        return whole

    def close(self) -> None:
        self._feeds.close()
        self._client.cluster.figures.unread(self._named, self._subscription)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _higher(one: Mapping[str, Row], other: Mapping[str, Row]) -> dict[str, Row]:
    return {segment: max(one.get(segment, FIRST), other.get(segment, FIRST)) for segment in one.keys() | other.keys()}


def _begin(done: Rows) -> Row:
    """Return the end of the rows that are acknowledged without a gap from the beginning of the segment."""
    return done[0][1] if done and done[0][0] == FIRST else FIRST


def _flat(given: Iterable[Message | Batch | Iterable[Message | Batch]]) -> Iterator[Message | Batch]:
    for one in given:
        if isinstance(one, Message | Batch):
            yield one
        else:
            yield from one
