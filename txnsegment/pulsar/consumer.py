"""`PulsarConsumer` delivers the committed rows of a topic of a Pulsar cluster, in order, and acknowledges them."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Final, NoReturn, Self, TypeVar

from ledgers.errors import TxnSegmentError
from metadata.common.errors import AckConflict, NotDelivered, OptionError
from metadata.records.row_ranges import FIRST, NONE, Row, Rows, before, common, minus, rows, union
from pulsar_protocol.client import TxnId
from pulsar_protocol.layout import EARLIEST, Position
from spark_txn_sink.pulsar.log_records import Outcome
from txnsegment.messages import Ahead, Batch, Message
from txnsegment.pulsar.ack_log import AckLog, Clock
from txnsegment.pulsar.ack_records import WHOLE, RowsBySegment, beginning, joined
from txnsegment.pulsar.delivered import Delivered
from txnsegment.pulsar.ending import Owner
from txnsegment.pulsar.feeding import Feeding, Planned, origin, values_of
from txnsegment.pulsar.refused import refusal
from txnsegment.pulsar.transaction import PulsarTransaction

log = logging.getLogger("txnsegment.consumer.pulsar")

POLL_SECONDS: Final = 0.2
"""How often an idle consumer looks for new rows."""
_WHY: Final = {
    "lag": "Brokers do not tell clients how many rows lie between two positions. `pulsar-admin topics stats segment://..` shows "
    "the backlog of a segment, in entries.",
}
T = TypeVar("T")


class PulsarConsumer:
    """Delivers committed rows to one subscription. Made by `cluster.consumer(topic, subscription)`, for one thread.

        with cluster.consumer("orders", "billing", start="earliest") as consumer:
            for message in consumer.messages():
                ...
                consumer.ack(message)

    It delivers every committed row that is not acknowledged. Rows of a segment come in order, and after those of its parents, so
    rows of a key are in order. A transaction of txnsegment's writers is delivered as a whole, or not yet. All loops over a consumer
    share one position. If a program leaves a loop (`next`, `break`, an error), the next loop starts with the next row.

    A subscription has one consumer. Its acknowledgements are records in a log of the subscription (`ack_records`). They are durable
    when `ack` returns, and those in a transaction count if and only if its rows do. The cursors that Pulsar's own tools show follow
    them.
    """

    def __init__(self, feeding: Feeding, acks: AckLog, topic: str, subscription: str, clock: Clock) -> None:
        """`acks`: the log of the subscription, which exists in it."""
        self.service_url = feeding.service_url
        self._feeding, self._acks, self._clock = feeding, acks, clock
        self._topic, self._subscription = topic, subscription
        self._claims: dict[Owner, dict[str, Rows]] = {}
        """The rows that open transactions acknowledge."""
        self._given = Delivered()
        self._seen: dict[str, Row] = {}
        """The end of the last row of each segment that was read since the last rewind."""
        self._planned: Planned | None = None
        self._current: Iterator[Batch] | None = None
        self._ahead: Ahead | None = None
        self._rewind_due = self._moved = True
        self._closed = False
        self.rewind()

    def rewind(self) -> None:
        """Go back to the first row that is not acknowledged, so that all unacknowledged rows are delivered again, but for those
        that an open transaction acknowledges.

        The consumer rewinds by itself, at the next delivery, if a transaction that acknowledges rows of this consumer ends without
        a commit. Raises TakenOver, the errors of the broker. After an error the next delivery tries again.
        """
        self._check_open()
        self._rewind_due = True
        self._leave()
        self._ahead, self._planned = None, None
        self._given, self._seen = Delivered(), {}
        state = self._acks.state()
        self._feeding.begin(state.rows, state.sent)
        self._rewind_due, self._moved = False, True

    # --- delivering ---

    def messages(self, *, timeout: float | None = None) -> Iterator[Message]:
        """Deliver row by row. `timeout`: stop after this many SECONDS without a new row; None: never stop.

        Raises the errors of `batches`. Raises ValueFormatError for a row with a value that Python cannot represent. `batches` still
        delivers such a row.
        """
        return self._handed_out(self._message, timeout)

    __iter__ = messages

    def batches(self, *, timeout: float | None = None) -> Iterator[Batch]:
        """Deliver batch by batch, as Arrow. Raises DataLoss, SchemaError, TakenOver, and the errors of the broker. After an error
        the next call continues with the next row.
        """
        return self._handed_out(self._batch, timeout)

    def _handed_out(self, take: Callable[[Ahead], T], timeout: float | None) -> Iterator[T]:
        idle = self._clock.now()
        while True:
            if (ahead := self._read_ahead()) is not None:
                yield take(ahead)
                idle = self._clock.now()
                continue
            left = POLL_SECONDS if timeout is None else timeout - (self._clock.now() - idle)
            if left <= 0:
                return
            self._clock.pause(min(left, POLL_SECONDS))

    def _message(self, ahead: Ahead) -> Message:
        message = ahead.message()
        self._given.add(message.segment, message.span)
        return message

    def _batch(self, ahead: Ahead) -> Batch:
        batch = ahead.rest()
        self._given.add(batch.segment, batch.span)
        return batch

    def _read_ahead(self) -> Ahead | None:
        """Return the batch with the next row; None if there is no new row."""
        self._check_open()
        if self._rewind_due:
            self.rewind()
        while self._ahead is None or not self._ahead.left:
            if self._current is None:
                self._settle()
                ended = self._feeding.offset.ended
                self._planned = self._feeding.plan()
                if self._planned is None:
                    self._moved = self._feeding.offset.ended != ended
                    self._settle()
                    return None
                self._current = self._unread(self._planned)
            try:
                batch = next(self._current, None)
            except BaseException:
                self._leave()  # a generator that raised has ended, so the rest of the micro-batch is planned again
                raise
            if batch is not None:
                self._ahead = Ahead(batch)
                continue
            assert self._planned is not None
            self._feeding.offset, self._current = self._planned.end, None
            self._moved = True
        return self._ahead

    def _leave(self) -> None:
        """Give up the current micro-batch. Its undelivered rows come with the next plan."""
        if self._current is not None:
            self._current.close()  # type: ignore[attr-defined]
            self._current = None

    def _unread(self, planned: Planned) -> Iterator[Batch]:
        """Yield the rows of a micro-batch that were not delivered since the last rewind, and that are not acknowledged."""
        for found in self._feeding.read(planned):
            segment, places, published, txns = origin(found)
            values = values_of(found)
            hidden = union(self._hidden(segment), before(self._seen.get(segment, FIRST)))
            for start, stop in _entries(places):
                ledger, entry, index = places[start]
                whole = Row(ledger, entry, index), Row(ledger, entry, index + stop - start)
                for first, end in minus((whole,), hidden):
                    at = start + first.batch_index - index
                    part = values.slice(at, end.batch_index - first.batch_index)
                    span = self._behind(segment, hidden, first), end
                    self._seen[segment] = end
                    yield Batch(self._topic, segment, ledger, entry, first.batch_index, part, published[start], txns[start], span)
                self._seen[segment] = max(whole[1], self._seen.get(segment, FIRST))

    def _hidden(self, segment: str) -> Rows:
        """Return the rows that are acknowledged, or that open transactions acknowledge."""
        return union(self._acks.state().rows.get(segment, NONE), *(one.get(segment, NONE) for one in self._claims.values()))

    def _behind(self, segment: str, hidden: Rows, row: Row) -> Row:
        """Return the beginning of the range that an acknowledgement of a row covers: the end of the row before it. So it also
        covers the positions between the two rows, which have no row. The acks of consecutive rows join to one range.
        """
        spans = bisect_right(hidden, (row, row))
        acked = min(hidden[spans - 1][1], row) if spans else FIRST
        return max(acked, self._seen.get(segment, FIRST))

    # --- acknowledging ---

    def ack(self, *given: Message | Batch | Iterable[Message | Batch], txn: PulsarTransaction | None = None) -> None:
        """Acknowledge these rows, at once or with the commit of `txn`. Several rows cost no more round trips than one.

        Raises AckConflict (one of the rows is acknowledged already, or a transaction claims it), OptionError (`txn` has ended),
        TakenOver (another consumer has taken over the subscription), and the errors of the broker.
        """
        spans: dict[str, list[tuple[Row, Row]]] = {}
        for one in _flat(given):
            self._check_own(one)
            spans.setdefault(one.segment, []).append(one.span)
        wanted = {segment: rows(found) for segment, found in spans.items()}
        self._check_free(wanted, self._acks.state().rows, "is acknowledged already")
        for other in self._claims:
            self._check_free(wanted, self._claims[other], f"is acknowledged by the transaction {other.id or ''}, which is open")
        self._acknowledge(wanted, txn)

    def ack_cumulative(self, given: Message | Batch, *, txn: PulsarTransaction | None = None) -> None:
        """Acknowledge every row that was delivered up to `given`, inclusive, in all segments.

        Raises the errors of `ack`. Raises NotDelivered if this consumer has not delivered the row since the last rewind.
        """
        self._check_own(given)
        ends, acked = self._given.up_to(given.segment, given.span), self._acks.state().rows
        if ends is None and beginning(acked.get(given.segment, NONE)) >= given.span[1]:
            return
        if ends is None or self._rewind_due:
            last = given.id if isinstance(given, Message) else given.ids[-1]
            raise NotDelivered(
                f"{last} of {given.segment} was not delivered by this consumer of {self._subscription!r} since its last rewind. "
                "(It also rewinds when a transaction with acknowledgements ends without a commit.)",
                advice="Nothing was acknowledged. Acknowledge cumulatively what this consumer delivers; single rows (ack) may come "
                "from any.",
            )
        done = joined(acked, {} if txn is None else self._claims.get(txn, {}))
        left = {segment: minus(before(end), done.get(segment, NONE)) for segment, end in ends.items()}
        wanted = {segment: found for segment, found in left.items() if found}
        for other, claimed in self._claims.items():
            if other is not txn:
                self._check_free(wanted, claimed, f"is acknowledged by the transaction {other.id or ''}, which is open")
        self._acknowledge(wanted, txn)

    def _acknowledge(self, wanted: RowsBySegment, txn: PulsarTransaction | None) -> None:
        if not wanted:
            return
        if txn is None:
            self._acks.acknowledge(wanted)
        else:
            if not isinstance(txn, PulsarTransaction):
                raise OptionError(
                    f"A {type(txn).__name__} cannot acknowledge rows of {self._topic}, which is a topic of the Pulsar cluster "
                    f"{self.service_url}.",
                    advice="Give a transaction of the consumer's cluster: cluster.begin() or cluster.transaction().",
                )
            txn.join(self)
            self._claims[txn] = joined(self._claims.get(txn, {}), wanted)
        self._moved = True

    def _check_own(self, one: Message | Batch) -> None:
        self._check_open()
        if one.topic != self._topic:
            raise OptionError(
                f"A row of {one.topic} cannot be acknowledged by a consumer of {self._topic}.",
                advice="Use the consumer of its topic.",
            )

    def _check_free(self, wanted: RowsBySegment, taken: RowsBySegment, why: str) -> None:
        for segment, found in wanted.items():
            for row, _ in common(found, taken.get(segment, NONE))[:1]:
                raise AckConflict(
                    f"A row of {segment} at or after {':'.join(map(str, row))} {why}, for the subscription "
                    f"{self._subscription!r} of {self._topic}.",
                    advice="Nothing was acknowledged. Acknowledge each row once.",
                )

    # --- transactions ---

    def begun(self, txn: TxnId) -> None:
        """Record that a transaction may have acknowledgements. The transaction calls this."""
        self._acks.begin(txn)

    def prepare(self, owner: Owner, txn: TxnId) -> None:
        """Write the acknowledgements of a transaction, which is about to be committed. The transaction calls this."""
        self._check_open()
        self._acks.prepare(txn, self._claims[owner])

    def ended(self, owner: Owner, txn: TxnId | None, outcome: Outcome | None) -> None:
        """Take note of how a transaction ended. None: not known. The transaction calls this. It does no I/O that could fail."""
        claimed = self._claims.pop(owner, {})
        if txn is not None:
            self._acks.ended(txn, claimed, outcome)
        if outcome != "committed":
            self._rewind_due = True
        self._moved = True

    # --- the cursors of the broker ---

    def _settle(self) -> None:
        """Let the cursors of the broker follow the acknowledgements. Before a cursor passes the end of a sealed segment, which the
        broker may then delete, the log gets a record that the segment is acknowledged as a whole.
        """
        if not self._moved:
            return
        offset, acked = self._feeding.offset, self._acks.state().rows
        places: dict[str, Position] = {}
        complete = set()
        for segment in offset.segments.keys() | acked.keys() | offset.ended:
            through = beginning(acked.get(segment, NONE))
            if through >= max(self._seen.get(segment, FIRST), FIRST):
                complete.add(segment)
                places[segment] = offset.segments.get(segment, EARLIEST)
            if FIRST < through < WHOLE:
                places[segment] = max(places.get(segment, EARLIEST), Position(through.ledger_id, through.entry_id - 1))
        ended = complete & offset.ended
        if new := {name: before(WHOLE) for name in ended if beginning(acked.get(name, NONE)) < WHOLE}:
            self._acks.acknowledge(new)
        self._feeding.passed({name: place for name, place in places.items() if place.entry >= 0}, frozenset(ended))
        self._given.forget({name: beginning(found) for name, found in acked.items()})
        kept = self._acks.state().rows
        kept = {name: found for name, found in kept.items() if beginning(found) < WHOLE or name in offset.ended}
        whole = offset.sent if complete >= offset.segments.keys() and offset.sent else self._acks.state().sent
        self._acks.checkpoint(kept, whole)
        self._moved = False

    def close(self) -> None:
        """End the consumer. The subscription stays. Idempotent. Rows that open transactions acknowledge are not acknowledged."""
        if self._closed:
            return
        try:
            if not self._rewind_due:
                self._settle()
        except TxnSegmentError as error:  # the log has all acknowledgements, and the next consumer moves the cursors
            log.warning("the cursors of %s of %s were not moved: %s", self._subscription, self._topic, error.message)
        finally:
            self._closed = True
            with ExitStack() as all_of_them:  # closes each of them, although one may raise
                all_of_them.callback(self._acks.close)
                all_of_them.callback(self._feeding.close)
                all_of_them.callback(self._leave)

    def _check_open(self) -> None:
        if self._closed:
            raise OptionError(
                f"The consumer of {self._subscription!r} of {self._topic} is closed.", advice="Make another one (cluster.consumer)."
            )

    def __getattr__(self, name: str) -> NoReturn:
        raise refusal(self, "consumer", _WHY, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _entries(places: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each run of rows with consecutive places in one entry."""
    start = 0
    for at in range(1, len(places) + 1):
        if at == len(places) or places[at] != (*places[at - 1][:2], places[at - 1][2] + 1):
            yield start, at
            start = at


def _flat(given: Iterable[Message | Batch | Iterable[Message | Batch]]) -> Iterator[Message | Batch]:
    for one in given:
        if isinstance(one, Message | Batch):
            yield one
        else:
            yield from one
