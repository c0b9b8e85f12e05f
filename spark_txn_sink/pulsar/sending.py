"""The work of a write's tasks: they route rows to segments, send them in the transaction, and report where the rows are.

A segment may be split or merged during the write. It then refuses entries. The task reads the layout again and sends the refused
rows, and all later ones, to the successors of the segment. The rows of a key keep their order: a refused entry is not in the
segment, it is sent before all later rows, and readers read a segment after its parents. The transaction then has rows in parents
and children. If it is unknown whether a sealed segment has an entry, the task fails.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Protocol

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Compression, Message
from pulsar_protocol.errors import MessageTooLarge, TopicTerminated
from pulsar_protocol.layout import RING, Bits, Layout, Position
from pulsar_protocol.producer import Extent
from pulsar_protocol.producers import lend
from spark_txn_sink.local_properties import execution_of
from spark_txn_sink.pulsar.attempts import Attempt, Opened, claim
from spark_txn_sink.pulsar.plan import PulsarPlan

THREADS: Final = 8
"""The greatest number of segments to which a task sends at a time."""
LAYOUT_SECONDS: Final = 30.0
LAYOUT_PAUSE: Final = 0.05


class Sender(Protocol):
    """A producer of one segment."""

    def send(self, messages: Sequence[Message], txn: TxnId | None = None, compression: Compression = "none") -> Position: ...

    def send_large(self, message: Message, txn: TxnId | None = None, compression: Compression = "none") -> Extent: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Receipt:
    """What became of messages for one segment. `places`: the first and last position of those that were sent; None: none was.
    `refused`: those that the segment has refused, because it is sealed.
    """

    places: Extent | None
    refused: Sequence[Message] = ()


@dataclass
class Sent(WriterCommitMessage):
    """The report of one task. `segments`: the first and the last position of its rows in each segment. `query`: the id of the
    streaming query, `run`: the id of its start; both are None for a batch write outside of `foreachBatch`.
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
    does not name its successors), and the broker's error. Spark then gives up the batch.
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
            for segment, entry in router.route(plan.rows.messages(batch, values)):
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


@dataclass
class _Waiting:
    messages: list[Message] = field(default_factory=list)
    size: int = 0


class Router:
    """Collects messages into entries for each active segment. The order of the messages of a segment is kept. Messages without a
    key fill one entry, and the next entry goes to the next segment.
    """

    def __init__(self, layout: Layout, bits: Bits, entry_bytes: int, entry_rows: int, start: int) -> None:
        self._shift = 0 if bits == "low" else 16
        self._entry_bytes, self._entry_rows = entry_bytes, entry_rows
        self._keyless = start
        self._use(layout)
        self._waiting = [_Waiting() for _ in self._segments]
        self.rows = 0

    def _use(self, layout: Layout) -> None:
        self._segments = [one.name for one in layout.active]
        if not self._segments:
            raise TopicTerminated(f"The topic {layout.topic} has no active segment.", advice="It was deleted; create it again.")
        self._place = _ring(layout)
        self._keyless %= len(self._segments)

    def route(self, messages: Iterable[Message]) -> Iterator[tuple[str, list[Message]]]:
        """Take messages, and yield the entries that are full: the segment and the messages of each."""
        for message in messages:
            self.rows += 1
            if message.key is None:
                index = self._keyless
            else:
                index = int(self._place[(mmh3.mmh3_32_uintdigest(message.key) >> self._shift) & 0xFFFF])
            waiting = self._waiting[index]
            waiting.messages.append(message)
            waiting.size += len(message.value or b"") + len(message.key or b"")
            if waiting.size >= self._entry_bytes or len(waiting.messages) >= self._entry_rows:
                self._waiting[index] = _Waiting()
                if index == self._keyless:
                    self._keyless = (self._keyless + 1) % len(self._segments)
                yield self._segments[index], waiting.messages

    def rest(self) -> list[tuple[str, list[Message]]]:
        """Return the entries that are not full, and forget them."""
        waiting, self._waiting = self._waiting, [_Waiting() for _ in self._segments]
        return [(segment, one.messages) for segment, one in zip(self._segments, waiting, strict=True) if one.messages]

    def gone(self, layout: Layout) -> list[str]:
        """Return the segments to which messages are routed, and which the layout has sealed."""
        names = {one.name for one in layout.active}
        return [name for name in self._segments if name not in names]

    def adopt(self, layout: Layout, refused: Mapping[str, Sequence[Message]]) -> list[tuple[str, list[Message]]]:
        """Route by another layout from now on. Return the entries that became full. `refused`: for each sealed segment
        the messages that it has refused. They are routed before the messages that wait here for this segment.
        """
        waiting = dict(zip(self._segments, self._waiting, strict=True))
        moved = [one for name in self.gone(layout) for one in (*refused.get(name, ()), *waiting[name].messages)]
        self._use(layout)
        self._waiting = [waiting.get(name, _Waiting()) for name in self._segments]
        self.rows -= len(moved)
        return [*self.route(moved)]


def _ring(layout: Layout) -> npt.NDArray[np.uint16]:
    """Return for each hash value of the ring the index of the active segment that has it."""
    place = np.zeros(RING, np.uint16)
    for number, one in enumerate(layout.active):
        place[one.start : one.end + 1] = number
    return place


class Outgoing:
    """Sends the entries of one task. At most one entry of each segment is in flight, because a broker may change the order of
    entries of a transaction that are in flight together.

    `refused`: for each sealed segment the messages that it has refused, and all later messages for it, in their order.
    """

    def __init__(self, open_sender: _Open, txn: TxnId, compression: Compression, topic: str) -> None:
        self._open, self._txn, self._compression, self._topic = open_sender, txn, compression, topic
        self._senders: dict[str, Sender] = {}
        self._flying: dict[str, Future[Receipt]] = {}
        self._found: dict[str, tuple[Position, Position]] = {}
        self.refused: dict[str, list[Message]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="txnsegment-pulsar-send")

    def send(self, segment: str, messages: Sequence[Message]) -> None:
        """Send an entry after the receipt of the previous one of its segment. Raises the broker's error."""
        self.settle(segment)
        if segment in self.refused:
            self.refused[segment] += messages
        else:
            self._flying[segment] = self._pool.submit(self._sent, segment, messages)

    def settle(self, segment: str) -> None:
        """Wait until no entry of a segment is in flight. Raises the broker's error."""
        future = self._flying.pop(segment, None)
        if future is None:
            return
        receipt = future.result()
        if receipt.places is not None:
            first, last = receipt.places
            self._found[segment] = self._found.get(segment, (first, last))[0], last
        if receipt.refused:
            self.refused[segment] = [*receipt.refused]

    def finish(self) -> dict[str, tuple[Position, Position]]:
        """Wait for all receipts. Return the first and the last position of the entries in each segment. They are incomplete while
        there are `refused` messages.
        """
        for segment in [*self._flying]:
            self.settle(segment)
        return self._found

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for sender in self._senders.values():
            sender.close()
        self._senders = {}

    def _sent(self, segment: str, messages: Sequence[Message]) -> Receipt:
        """Send messages, in order. An entry that is larger than the broker takes is divided, and a single message that is too large
        is sent in chunks. Raises the broker's error.
        """
        places: Extent | None = None
        left = [messages]
        while left:
            part = left.pop()
            try:
                found = self._placed(segment, part)
            except TopicTerminated:
                # Of a message in chunks the segment may have the first ones. Readers take no message without its last chunk.
                return Receipt(places, [*part, *(one for rest in reversed(left) for one in rest)])
            if found is None:
                middle = len(part) // 2
                left += [part[middle:], part[:middle]]
                continue
            places = (places or found)[0], found[1]
        return Receipt(places)

    def _placed(self, segment: str, messages: Sequence[Message]) -> Extent | None:
        """Send messages as one entry, or one message in chunks. Return None if they are several, and too large for one entry."""
        if segment not in self._senders:
            self._senders[segment] = self._open(segment)
        sender = self._senders[segment]
        try:
            place = sender.send(messages, self._txn, self._compression)
        except MessageTooLarge:
            if len(messages) > 1:
                return None
            return sender.send_large(messages[0], self._txn, self._compression)
        return place, place


def follow(
    router: Router,
    outgoing: Outgoing,
    layout: Callable[[], Layout],
    *,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Send again the messages that sealed segments have refused, to the successors of these segments. `layout`: reads the layout of
    the topic. A broker seals a segment a moment before the layout names its successors. Until then the layout is read again, for
    `LAYOUT_SECONDS`.

    Raises TopicTerminated, the broker's error.
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
        for segment, entry in router.adopt(found, refused):
            outgoing.send(segment, entry)


def finish(router: Router, outgoing: Outgoing, layout: Callable[[], Layout]) -> dict[str, tuple[Position, Position]]:
    """Send all remaining messages, also those that sealed segments refuse. Return the first and the last position of the rows in
    each segment. Raises TopicTerminated, the broker's error.
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
