"""The work of a write's tasks: they route rows to segments, send the rows in the transaction, and report where the rows are.

A segment may be split or merged during the write. The old segment then refuses entries. The task reads the layout again and sends
the refused rows, and all later rows, to the segment's children. The rows of a key keep their order for three reasons: a refused
entry is not in the old segment, the task sends its rows before all later rows, and readers read a segment after its parents. The
transaction then has rows in parents and children. If it is unknown whether a sealed segment has an entry, the task fails.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Compression, Message, Rows
from pulsar_protocol.errors import MessageTooLarge, TopicTerminated
from pulsar_protocol.layout import Layout, Position
from pulsar_protocol.producer import Extent
from pulsar_protocol.producers import lend
from spark_txn_sink.local_properties import execution_of
from spark_txn_sink.pulsar.attempts import Attempt, Opened, claim
from spark_txn_sink.pulsar.plan import PulsarPlan
from spark_txn_sink.pulsar.routing import Router

THREADS: Final = 8
"""To how many segments a task sends at the same time, at most."""
LAYOUT_SECONDS: Final = 30.0
LAYOUT_PAUSE: Final = 0.05


class Sender(Protocol):
    """A producer of one segment."""

    def send(self, messages: Rows, txn: TxnId | None = None, compression: Compression = "none") -> Position: ...

    def send_large(self, message: Message, txn: TxnId | None = None, compression: Compression = "none") -> Extent: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Receipt:
    """What became of rows for one segment. `places`: the first and the last position of the rows that were sent; None: none was.
    `refused`: the rows that the segment has refused, because it is sealed; None: none was.
    """

    places: Extent | None
    refused: Rows | None = None


@dataclass
class Sent(WriterCommitMessage):
    """The report of one task. `segments`: the first and the last position of the task's rows in each segment. `query`: the id of
    the streaming query. `run`: the id of this start of the query. Both are None for a batch write outside of `foreachBatch`.
    """

    txn: TxnId
    attempt: str
    partition: int
    segments: dict[str, tuple[Position, Position]]
    rows: int
    query: str | None
    run: str | None
    opened: Opened
    execution: tuple[str, int] | None = None
    """See `local_properties.execution_of`."""


@dataclass(frozen=True)
class Task:
    """A Spark task. `start`: a number that decides which segment gets the first rows without a key. `execution`: see
    `local_properties.execution_of`.
    """

    partition: int = 0
    start: int = 0
    query: str | None = None
    run: str | None = None
    execution: tuple[str, int] | None = None

    @staticmethod
    def now() -> Task:
        """Return the current Spark task. Outside of Spark (in tests) return the first task of a batch."""
        context = TaskContext.get()
        if context is None:
            return Task()
        given, partition = context.getLocalProperty, context.partitionId()
        query, batch = given("sql.streaming.queryId"), given("streaming.sql.batchId")
        run = given("spark.jobGroup.id") if query is not None else None
        return Task(partition, partition + int(batch or 0), query, run, execution_of(given))


def send_rows(
    client: PulsarClient, plan: PulsarPlan, batches: Iterable[pa.RecordBatch], task: Task, app: str | None = None
) -> Sent:
    """Send the rows of one task and return the report. Raises AttemptRefused, TopicTerminated (a segment was sealed, and the layout
    does not name its children), or another error of the broker.
    """
    attempt, txn = uuid.uuid4().hex, plan.opened.txn
    router = Router(plan.layout, plan.bits, plan.entry_bytes, plan.entry_rows, task.start)
    named = None if plan.write is not None else app or task.query  # the journal has the application of a write that is a part
    claimed = Attempt(txn.text, attempt, task.partition, named, plan.write)
    values = plan.rows.values()
    outgoing = Outgoing(lambda segment: lend(client, segment, values.schema), txn, plan.compression, plan.topic)
    ready = False

    def layout() -> Layout:
        return client.layout(plan.topic)

    try:
        for batch in batches:
            router.route(plan.rows.rows(batch, values))
            for segment, entry in router.full():
                if not ready:
                    claim(client, plan.opened, claimed)
                    ready = True
                outgoing.send(segment, entry)
                if outgoing.refused:
                    follow(router, outgoing, layout)
        if not ready:
            claim(client, plan.opened, claimed)
        segments = finish(router, outgoing, layout)
    finally:
        outgoing.close()
    return Sent(txn, attempt, task.partition, segments, router.rows, task.query, task.run, plan.opened, task.execution)


class Outgoing:
    """Sends the entries of one task. At most one entry of each segment is in flight, because a broker may change the order of
    entries of a transaction that are in flight together.

    `refused`: for each sealed segment the entry that it has refused, and all later entries for it, in their order.
    """

    def __init__(self, open_sender: _Open, txn: TxnId, compression: Compression, topic: str) -> None:
        self._open, self._txn, self._compression, self._topic = open_sender, txn, compression, topic
        self._senders: dict[str, Sender] = {}
        self._flying: dict[str, Future[Receipt]] = {}
        self._found: dict[str, tuple[Position, Position]] = {}
        self.refused: dict[str, list[Rows]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="txnsegment-pulsar-send")

    def send(self, segment: str, entry: Rows) -> None:
        """Wait for the receipt of the previous entry of the segment, and then send this entry. Raises the errors of the broker."""
        self.settle(segment)
        if segment in self.refused:
            self.refused[segment].append(entry)
        else:
            self._flying[segment] = self._pool.submit(self._sent, segment, entry)

    def settle(self, segment: str) -> None:
        """Wait until no entry of a segment is in flight. Raises the errors of the broker."""
        future = self._flying.pop(segment, None)
        if future is None:
            return
        receipt = future.result()
        if receipt.places is not None:
            first, last = receipt.places
            self._found[segment] = self._found.get(segment, (first, last))[0], last
        if receipt.refused is not None:
            self.refused[segment] = [receipt.refused]

    def finish(self) -> dict[str, tuple[Position, Position]]:
        """Wait for all receipts. Return the first and the last position of the entries in each segment. If there are `refused`
        entries, these positions are not final.
        """
        for segment in [*self._flying]:
            self.settle(segment)
        return self._found

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for sender in self._senders.values():
            sender.close()
        self._senders = {}

    def _sent(self, segment: str, entry: Rows) -> Receipt:
        """Send rows, in order. An entry that is larger than the broker takes is divided, and a single row that is too large is sent
        in chunks. Raises the errors of the broker.
        """
        places: Extent | None = None
        left = [entry]
        while left:
            part = left.pop()
            try:
                found = self._placed(segment, part)
            except TopicTerminated:
                # The segment may have the first chunks of a row. Readers take no row without its last chunk.
                return Receipt(places, Rows.joined([part, *reversed(left)]))
            if found is None:
                middle = len(part) // 2
                left += [part.take(range(middle, len(part))), part.take(range(middle))]
                continue
            places = (places or found)[0], found[1]
        return Receipt(places)

    def _placed(self, segment: str, rows: Rows) -> Extent | None:
        """Send rows as one entry, or one row in chunks. Return None if they are several, and too large for one entry."""
        if segment not in self._senders:
            self._senders[segment] = self._open(segment)
        sender = self._senders[segment]
        try:
            place = sender.send(rows, self._txn, self._compression)
        except MessageTooLarge:
            if len(rows) > 1:
                return None
            (message,) = rows.messages()
            return sender.send_large(message, self._txn, self._compression)
        return place, place


def follow(
    router: Router,
    outgoing: Outgoing,
    layout: Callable[[], Layout],
    *,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Give the rows that sealed segments have refused back to the router, which routes them to the children of these segments.
    `layout`: reads the layout of the topic. A broker seals a segment a moment before the layout names the children. So the layout
    is read again and again until it names them, for at most `LAYOUT_SECONDS`.

    Raises TopicTerminated, or another error of the broker.
    """
    deadline = now() + LAYOUT_SECONDS
    while outgoing.refused:
        found = layout()
        late = sorted(outgoing.refused.keys() & {one.name for one in found.active})
        if late and now() > deadline:
            raise TopicTerminated(
                f"The segment {late[0]} is sealed, but the layout of {found.topic} (epoch {found.epoch}) has it as an active one "
                f"after {LAYOUT_SECONDS:g} s.",
                advice="A split or merge may have stopped half-way: run it again. Then start the query or the write again.",
            )
        if late:
            pause(LAYOUT_PAUSE)
            continue
        for segment in router.gone(found):
            outgoing.settle(segment)
        refused, outgoing.refused = outgoing.refused, {}
        router.adopt(found, {segment: Rows.joined(parts) for segment, parts in refused.items()})


def finish(router: Router, outgoing: Outgoing, layout: Callable[[], Layout]) -> dict[str, tuple[Position, Position]]:
    """Send all remaining rows, also those that sealed segments refuse. Return the first and the last position of the rows in
    each segment. Raises TopicTerminated, or another error of the broker.
    """
    while True:
        for segment, entry in router.rest():
            outgoing.send(segment, entry)
        found = outgoing.finish()
        if not outgoing.refused:
            return found
        follow(router, outgoing, layout)


class _Open(Protocol):
    def __call__(self, segment: str) -> Sender: ...
