"""`Consumer`: the committed rows of topics in a plain Python program, in order, acknowledged on a subscription."""

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
from metadata.records.names import is_persistent, segment_name, topic_of
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, Span, before, end_of, minus, rows, union
from metadata.rules.acks import Ack, up_to
from metadata.topics.subscriptions import checked
from spark_txn_source.entries import EntryRows, in_order
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.losses import check_deletions, check_trims
from spark_txn_source.pieces import pieces
from spark_txn_source.topics import full_schema
from txnsegment.feeds import Feed, Feeds, full_name
from txnsegment.messages import Ahead, Batch, Message
from txnsegment.transaction import Transaction
from txnsegment.values import as_values, values_of

_DELETED_ADVICE = (
    "If the topic was made again, make the subscription of the new one (cluster.subscriptions.create), then call rewind(): the "
    "consumer goes on without these rows."
)
IDLE_SECONDS = 1.0
"""Wake-ups may be lost: an idle consumer looks again after so long, and sooner while something is undecided."""
UNDECIDED_SECONDS = 0.05

T = TypeVar("T")


class Consumer:
    """Made by `cluster.consumer(topics, subscription)`; for one thread; several loops share its position.

        with cluster.consumer("orders", "billing", start="earliest") as consumer:
            for message in consumer.messages():
                ...
                consumer.ack(message)

    Rows come in the order of their transactions, over all segments and topics, so parents before children, each committed row as
    long as it is not acknowledged. A row counts as delivered once it was handed out, and not because it was read ahead: after a
    loop that was left (`next`, `break`, an error) another one, by row or by batch, begins with the next row.

    A `persistent://` topic has an order of its own: its rows come in the order of its log, up to its maxReadPosition, and stand in
    no order to those of other topics. Once it is migrated, what is left of it and all that goes on come in the one order with all
    `topic://` topics. It sleeps until a commit wakes it. Several consumers of one subscription
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
        self._given: dict[str, Row] = {}
        """By segment, the end of the last row that was handed out since the last rewind."""
        self._given_before: dict[str, Row] = {}
        """The same of all the time before."""
        self._floor: dict[str, Row] = {}
        """By segment, up to where cumulative acks were given that count."""
        self._floors: dict[Transaction, dict[str, Row]] = {}
        """The same of acks that count once their transaction has committed."""
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
        """Deliver again what is not acknowledged. It happens by itself, at the next delivery, when a transaction that acknowledges
        ends without a commit, or its commit is skipped. Called by the program, it also goes on without the rows of topics that
        were deleted.

        Raises SubscriptionNotFound, TopicNotFound, DataLoss (retention has taken rows of it). Then the next delivery tries again.
        """
        self._begin_anew(lambda feed: None)

    def _begin_anew(self, check: Callable[[Feed], None]) -> None:
        """Go back to where the subscription stands, if each feed passes the check. After an error the next delivery tries again."""
        self._rewind_due = True
        self._next.clear()
        self._current = self._ahead = None
        before_it = self._feeds.done
        self._feeds.begin(check)
        self._given_before |= {s: end for s, end in self._given.items() if end > self._given_before.get(s, FIRST)}
        for segment, acked in self._feeds.done.items():
            if minus(before_it.get(segment, NONE), acked):  # a seek went back: rows before these were never handed out
                self._given_before.pop(segment, None)
        self._floor, self._floors, self._given = {}, {}, {}
        self._rewind_due = self._skipped = False

    def _drop(self, skipped: bool) -> None:
        """A transaction with acks of this consumer ended without a commit, or its commit was skipped. It does not read: the caller
        of `abort` is not to fail for it.
        """
        self._rewind_due = True
        self._skipped = self._skipped or skipped

    # --- delivering -----------------------------------------------------------------------------------------------

    def messages(self, *, timeout: float | None = None) -> Iterator[Message]:
        """Row by row. `timeout`: stop after so many SECONDS without a new row; None: never. Raises as `batches` does, and
        ValueFormatError for a row with a value that Python cannot hold (a date before the year 1, say): `batches` gives it.
        """
        return self._handed_out(self._message, timeout)

    __iter__ = messages

    def batches(self, *, timeout: float | None = None) -> Iterator[Batch]:
        """Batch by batch; of one that `messages` has begun, the rest. Raises TopicNotFound, DataLoss, CorruptPart; after an error
        the next call goes on with the row that comes next.
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
        """The batch with the row that comes next; None: there is nothing new."""
        if self._rewind_due:  # what went with a topic is told of all the same: nothing that was given back is done
            self._begin_anew(lambda feed: self._check_deletions(feed, feed.reading, 0, {}))
        while self._ahead is None or not self._ahead.left:
            if self._current is None:
                self._woken.clear()  # before looking: a wake-up in between is not lost
                self._current = self._more()
                if self._current is None:
                    return None
            batch = next(self._current, None)  # also after it raised: then it has ended, and what it has not given is read anew
            if batch is None:
                self._current = None
            else:
                self._ahead = Ahead(batch)
        return self._ahead

    def _more(self) -> Iterator[Batch] | None:
        """What is new in the next feed that has something. All were looked at when it was seen, and each has its turn before they
        are looked at again.
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
            # No loss is what the subscription has acknowledged, by another consumer, since this one began.
            now = feed.done(reading)
            done = {s.name: union(done.get(s.name, NONE), now.get(s.name, NONE)) for s in reading.segments}
            check_trims(LogRange(reading, feed.after, reading.cut, done), known)
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
                yield self._made(rows if codec is None else rows._replace(batch=as_values(codec, rows)))
        feed.after = reading.cut

    def _check_deletions(self, feed: Feed, reading: Reading, after: int, done: Mapping[str, Rows]) -> None:
        """Raise DataLoss if rows above `after` that are not done went with a topic that was deleted since this began. What the
        subscription had acknowledged is no loss, whoever acknowledged it.
        """
        try:
            check_deletions(LogRange(reading, after, reading.cut, done), feed.deleted_to, feed.known, _DELETED_ADVICE)
        except DataLoss:
            acked = feed.done_of_deleted(reading)
            done = {s.name: union(done.get(s.name, NONE), acked.get(s.name, NONE)) for s in reading.gone}
            check_deletions(LogRange(reading, after, reading.cut, done), feed.deleted_to, feed.known, _DELETED_ADVICE)

    def _not_again(self, reading: Reading) -> dict[str, Rows]:
        """By segment, what is not to be delivered: what was acknowledged when it began, and what was handed out since. The latter
        stands above `Feed.after` once reading ended with an error.
        """
        found = dict(self._feeds.done)
        for segment in (*reading.segments, *reading.gone):
            if (end := self._given.get(segment.name)) is not None:
                found[segment.name] = union(found.get(segment.name, NONE), before(end))
        return found

    def _wanted(self) -> pa.Schema | None:
        """The columns of today: a topic that grows one shows it from the next batch on. None: nothing was ever written."""
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
        spans = bisect_right(done, (row, row))
        acked = min(done[spans - 1][1], row) if spans else FIRST
        return max(acked, self._given.get(segment, FIRST))

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
            txn.acknowledge(acks, dropped=self._drop)
        else:
            Providers(self._client).acknowledge(acks)

    def ack_cumulative(self, given: Message | Batch, *, txn: Transaction | None = None) -> None:
        """Acknowledge every row that was handed out up to and with it, and no other, in all segments that one log orders: of a
        `persistent://` topic in that topic alone (also if it was migrated since), else in all `topic://` topics. What was read
        ahead, and the rows behind it in its own transaction and batch, are not acknowledged.

        Raises as `ack` does, NotDelivered (this consumer has not handed it out, or a transaction that was skipped gave rows back
        which come with the next delivery), and DataLoss if the segment has gone since: it
        does not say any more what came before.
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
                f"{given.segment} of {given.topic} has gone since {last} was delivered: its topic was deleted, or retention took "
                "all of it. Nothing was acknowledged: acknowledge a later row."
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
        by_itself = number <= feed.known.get(given.segment, 0)  # it came before its topic was joined to the others
        floor = self._floor_of(txn)
        handed_out = self._given.keys() | self._given_before.keys()
        for segment in set() if by_itself else (handed_out & views.keys()) - {given.segment}:
            through = number if _order(segment) < _order(given.segment) else number - 1
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
        """Up to where an ack in `txn`, or at once, finds cumulative acks that it need not repeat: those that count, and its own.
        What another transaction acknowledges does not count before its commit.
        """
        for one in [one for one in self._floors if one.counts]:
            self._floor = _higher(self._floor, self._floors.pop(one))
        return self._floor if txn is None else _higher(self._floor, self._floors.get(txn, {}))

    def _row_end(self, view: SegmentView, through: int, floor: Mapping[str, Row]) -> Row:
        """The end of a segment's last row at or below a number, if rows above it were handed out: those begin right there, and
        their acks cover the empty space in between. An ack that ended within that space would be in conflict with them.
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
        """Up to where this consumer has handed out a segment's rows, or found them acknowledged."""
        return max(self._given.get(segment, FIRST), self._given_before.get(segment, FIRST))

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


def _higher(one: Mapping[str, Row], other: Mapping[str, Row]) -> dict[str, Row]:
    return {segment: max(one.get(segment, FIRST), other.get(segment, FIRST)) for segment in one.keys() | other.keys()}


def _begin(done: Rows) -> Row:
    """The boundary up to which all is acknowledged."""
    return done[0][1] if done and done[0][0] == FIRST else FIRST


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
