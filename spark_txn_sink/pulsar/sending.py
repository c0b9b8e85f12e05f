"""The work of a write's tasks: they route rows to segments, send them in the transaction, and report where the rows are."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
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
from pulsar_protocol.errors import TopicTerminated
from pulsar_protocol.layout import RING, Bits, Layout, Position
from pulsar_protocol.producer import Producer
from spark_txn_sink.pulsar.attempts import Attempt, Opened, claim
from spark_txn_sink.pulsar.plan import PulsarPlan

THREADS: Final = 8
"""The greatest number of segments to which a task sends at a time."""


class Sender(Protocol):
    """A producer of one segment."""

    def send(self, messages: Sequence[Message], txn: TxnId | None = None, compression: Compression = "none") -> Position: ...

    def close(self) -> None: ...


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


@dataclass(frozen=True)
class Task:
    """A Spark task. `start`: a number that decides which segment gets the first rows without a key."""

    partition: int = 0
    start: int = 0
    query: str | None = None
    run: str | None = None

    @staticmethod
    def now() -> Task:
        """Return the current Spark task. Outside of Spark (in tests) return the first task of a batch."""
        context = TaskContext.get()
        if context is None:
            return Task()
        given, partition = context.getLocalProperty, context.partitionId()
        query, batch = given("sql.streaming.queryId"), given("streaming.sql.batchId")
        run = given("spark.jobGroup.id") if query is not None else None
        return Task(partition, partition + int(batch or 0), query, run)


def send_rows(
    client: PulsarClient, plan: PulsarPlan, batches: Iterable[pa.RecordBatch], task: Task, app: str | None = None
) -> Sent:
    """Send the rows of one task and return the report. Raises AttemptRefused, TopicTerminated (the segment was sealed), and the
    broker's error. Spark then gives up the batch.
    """
    attempt, txn = uuid.uuid4().hex, plan.opened.txn
    router = Router(plan.layout, plan.bits, plan.entry_bytes, plan.entry_rows, task.start)
    claimed = Attempt(txn.text, attempt, task.partition, app or task.query)
    values = plan.rows.values()
    outgoing = Outgoing(lambda segment: Producer(client, segment, schema=values.schema), txn, plan.compression, plan.topic)
    ready = False
    try:
        for batch in batches:
            for segment, entry in router.route(plan.rows.messages(batch, values)):
                if not ready:
                    claim(client, plan.opened, claimed)
                    ready = True
                outgoing.send(segment, entry)
        if not ready:
            claim(client, plan.opened, claimed)
        for segment, entry in router.rest():
            outgoing.send(segment, entry)
        segments = outgoing.finish()
    finally:
        outgoing.close()
    return Sent(txn, attempt, task.partition, segments, router.rows, task.query, task.run, plan.opened)


@dataclass
class _Waiting:
    messages: list[Message] = field(default_factory=list)
    size: int = 0


class Router:
    """Collects messages into entries for each active segment. The order of the messages of a segment is kept. Messages without a
    key fill one entry, and the next entry goes to the next segment.
    """

    def __init__(self, layout: Layout, bits: Bits, entry_bytes: int, entry_rows: int, start: int) -> None:
        self._segments = [one.name for one in layout.active]
        if not self._segments:
            raise TopicTerminated(f"The topic {layout.topic} has no active segment.", advice="It was deleted; create it again.")
        self._place = _ring(layout)
        self._shift = 0 if bits == "low" else 16
        self._entry_bytes, self._entry_rows = entry_bytes, entry_rows
        self._keyless = start % len(self._segments)
        self._waiting = [_Waiting() for _ in self._segments]
        self.rows = 0

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

    def rest(self) -> Iterator[tuple[str, list[Message]]]:
        """Yield the entries that are not full."""
        for segment, waiting in zip(self._segments, self._waiting, strict=True):
            if waiting.messages:
                yield segment, waiting.messages


def _ring(layout: Layout) -> npt.NDArray[np.uint16]:
    """Return for each place of the ring the number of its active segment."""
    place = np.zeros(RING, np.uint16)
    for number, one in enumerate(layout.active):
        place[one.start : one.end + 1] = number
    return place


class Outgoing:
    """Sends the entries of one task. Each segment has one entry in flight: a broker may change the order of entries of a
    transaction that are in flight together.
    """

    def __init__(self, open_sender: _Open, txn: TxnId, compression: Compression, topic: str) -> None:
        self._open, self._txn, self._compression, self._topic = open_sender, txn, compression, topic
        self._senders: dict[str, Sender] = {}
        self._flying: dict[str, Future[Position]] = {}
        self._found: dict[str, tuple[Position, Position]] = {}
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="txnsegment-pulsar-send")

    def send(self, segment: str, messages: Sequence[Message]) -> None:
        """Send an entry after the receipt of the previous one of its segment. Raises TopicTerminated, the broker's error."""
        self._received(segment)
        self._flying[segment] = self._pool.submit(self._sent, segment, messages)

    def finish(self) -> dict[str, tuple[Position, Position]]:
        """Wait for all receipts. Return the first and the last position of the entries in each segment."""
        for segment in [*self._flying]:
            self._received(segment)
        return self._found

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for sender in self._senders.values():
            sender.close()
        self._senders = {}

    def _sent(self, segment: str, messages: Sequence[Message]) -> Position:
        if segment not in self._senders:
            self._senders[segment] = self._open(segment)
        return self._senders[segment].send(messages, self._txn, self._compression)

    def _received(self, segment: str) -> None:
        flying = self._flying.pop(segment, None)
        if flying is None:
            return
        try:
            place = flying.result()
        except TopicTerminated as error:
            raise TopicTerminated(
                f"The segment {segment} was split or merged while {self._topic} was written: {error.message}",
                advice=f"The transaction {self._txn.text} is aborted. Start the query or the write again, for the new layout.",
            ) from error
        self._found[segment] = (self._found.get(segment, (place, place))[0], place)


class _Open(Protocol):
    def __call__(self, segment: str) -> Sender: ...
