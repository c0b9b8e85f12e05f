"""Sends entries to one segment. One entry is in flight at a time. A broker can reorder the entries of a transaction if an entry is
sent before the receipt of the previous entry has come (seen with 5.0.0-M1).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Final, Literal, NoReturn, Self, TypedDict

from pulsar_protocol.channel import ANSWER_SECONDS
from pulsar_protocol.chunks import encode_chunks
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.connection import Delivery
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import MAX_BYTES, Compression, Message, Rows, encode_batch
from pulsar_protocol.errors import (
    ConnectionLost,
    MessageTooLarge,
    PulsarError,
    Retriable,
    TimedOut,
    TopicTerminated,
    broker_error,
    late_send,
)
from pulsar_protocol.layout import Position
from pulsar_protocol.messages import Schema
from pulsar_protocol.retries import Pauses, growing, passes, repeat

Access = Literal["shared", "exclusive", "fencing"]
_ACCESS: Final[dict[Access, int]] = {"shared": 0, "exclusive": 1, "fencing": 3}
Extent = tuple[Position, Position]
"""The positions of the first and the last entry."""
ROOM: Final = 16 * 1024
"""The bytes by which an entry stays below the broker's `maxMessageSize`. A bookie with the default `nettyMaxFrameSizeBytes` takes
no entry of that size: it closes the connection, and the broker 5.0.0-M1 then repeats the entry for ever.
"""
SIZES: Final = 64
"""The bytes by which the metadata of a chunk may be longer than that of an empty message: its numbers and sizes."""
CLOSED_SECONDS: Final = 2.0
"""The longest wait for the answer to an entry, after the broker has closed the producer."""


def now_ms() -> int:
    """Return the time in ms since 1970, by this machine's clock."""
    return int(time.time() * 1000)


class _Metadata(TypedDict):
    """The fields that every entry of a producer has in its metadata."""

    producer: str
    sequence: int
    publish_ms: int
    schema_version: bytes


class Producer:
    """A producer of one segment or topic. `access`: `shared`; `exclusive`, which fails if there is another producer; `fencing`,
    which ends all other producers. `schema`: the broker registers it, if the topic does not have it. `now_ms`: the clock of the
    publish times, which clients set in Pulsar. `seconds`: how long an entry waits for its receipt. `open_seconds`: how long the
    broker is asked for the producer, over a connection that is open; None: as the client asks.

    Raises SchemaRefused, Fenced, or TopicTerminated if the segment is sealed.
    """

    def __init__(
        self,
        client: PulsarClient,
        topic: str,
        *,
        access: Access = "shared",
        schema: Schema | None = None,
        seconds: float = ANSWER_SECONDS,
        open_seconds: float | None = None,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.topic, self._client, self._access, self._seconds = topic, client, access, seconds
        self._now_ms = now_ms
        self._events: queue.Queue[Delivery | PulsarError] = queue.Queue()
        until = None if open_seconds is None else time.monotonic() + open_seconds
        self._channel = client.broker_of(topic, open_seconds)
        self._over = False
        self._id = self._channel.add("producer", self._take)
        try:
            opened = self._channel.ask(
                "producer",
                seconds=None if until is None else max(0.0, until - time.monotonic()),
                topic=topic,
                producer_id=self._id,
                epoch=0,
                user_provided_producer_name=False,
                producer_access_mode=_ACCESS[access],
                txn_enabled=True,
                schema=schema,
            )
        except BaseException:
            self._channel.remove("producer", self._id)
            raise
        self.name: str = opened.producer_name
        self.schema_version: bytes = opened.schema_version
        self._sequence = opened.last_sequence_id + 1
        self._last: Position | None = None
        """The position of the last entry that was written."""
        self._closed = False
        """Whether the broker has closed the producer."""

    def send(self, messages: Sequence[Message] | Rows, txn: TxnId | None = None, compression: Compression = "none") -> Position:
        """Send messages as one entry and wait for its receipt. Return its position. Raises MessageTooLarge (nothing was sent),
        TransactionEnded, Fenced, TopicTerminated (the segment is sealed, and the entry was not written), and ConnectionLost or
        TimedOut, after which it is unknown whether the entry was written.
        """
        sequence, self._sequence = self._sequence, self._sequence + len(messages)
        entry = encode_batch(messages, **self._metadata(sequence), txn=txn, compression=compression)
        return self._sent(entry, sequence, txn, num_messages=len(messages), highest_sequence_id=sequence + len(messages) - 1)

    def send_chunks(self, message: Message, size: int, txn: TxnId | None = None, compression: Compression = "none") -> Position:
        """Send a message that is too large for one entry, in chunks of at most `size` bytes. Return the position of the last chunk.
        Raises as `send`. If not all chunks were written, no consumer reads the message.
        """
        return self._chunks(message, size, txn, compression)[1]

    def send_large(self, message: Message, txn: TxnId | None = None, compression: Compression = "none") -> Extent:
        """Send a message that is too large for one entry, in chunks that are as large as the broker takes. Return the positions of
        the first and the last one. Raises as `send_chunks`, and MessageTooLarge for a value that readers would refuse, and for a
        key or properties that leave no room for a value.
        """
        limit = self._limit
        metadata = self._metadata(self._sequence)
        (empty,) = encode_chunks(replace(message, value=b""), 1, **metadata, txn=txn, compression=compression)
        size, length = limit - len(empty) - SIZES, len(message.value or b"")
        if size < 1 or length > MAX_BYTES:
            raise MessageTooLarge(
                f"A row for {self.topic} has {length:,} bytes and {len(empty):,} bytes of key, properties and metadata. A row has "
                f"at most {MAX_BYTES:,} bytes, and the latter must fit into one entry of {limit:,} bytes, by maxMessageSize.",
                advice="Make the row smaller. Nothing of it was sent.",
            )
        return self._chunks(message, size, txn, compression)

    def _chunks(self, message: Message, size: int, txn: TxnId | None, compression: Compression) -> Extent:
        sequence, self._sequence = self._sequence, self._sequence + 1
        chunks = encode_chunks(message, size, **self._metadata(sequence), txn=txn, compression=compression)
        places = [self._sent(chunk, sequence, txn, num_messages=1, is_chunk=True) for chunk in chunks]
        return places[0], places[-1]

    def _metadata(self, sequence: int) -> _Metadata:
        return {
            "producer": self.name,
            "sequence": sequence,
            "publish_ms": self._now_ms(),
            "schema_version": self.schema_version,
        }

    @property
    def _limit(self) -> int:
        """The greatest size of an entry."""
        most = self._channel.ready.max_message_size
        return most - min(ROOM, most // 10)

    def _sent(self, entry: bytes, sequence: int, txn: TxnId | None, **fields: object) -> Position:
        """Send an entry, wait for its receipt, and return its position. Raises as `send`."""
        self._check_open()
        limit = self._limit
        if len(entry) > limit:  # the broker would close the connection without a reason
            raise MessageTooLarge(
                f"An entry for {self.topic} has {len(entry):,} bytes, and at most {limit:,} can be sent by maxMessageSize. "
                f"It has {fields.get('num_messages')} rows.",
                advice="Send one row in chunks (send_large), and of several rows fewer at a time.",
            )
        ids = {} if txn is None else {"txnid_most_bits": txn.most, "txnid_least_bits": txn.least}
        self._channel.send(entry, producer_id=self._id, sequence_id=sequence, **fields, **ids)
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                found = self._next(deadline)
            except TimedOut:
                if self._closed:
                    self._unanswered()
                raise
            if found.name == "close_producer":
                self._closed = True
                if self._access != "shared":
                    raise self._gone()
                deadline = time.monotonic() + CLOSED_SECONDS
            elif found.name == "send_error":
                code, message, what = found.body.error, found.body.message, f"Sending to {self.topic}"
                raise (late_send(code, message, what) if txn is not None else None) or broker_error(code, message, what)
            elif found.body.sequence_id == sequence:
                self._last = Position.of(found.body.message_id)
                return self._last

    def _check_open(self) -> None:
        """Raise TopicTerminated or ConnectionLost if the broker has closed the producer. Called before each entry is sent."""
        while not self._closed and not self._events.empty():
            found = self._events.get()
            if isinstance(found, PulsarError):
                raise found.again()
            self._closed = found.name == "close_producer"
        if self._closed:
            self._check_not_sealed()
            raise self._gone()

    def _gone(self) -> ConnectionLost:
        return ConnectionLost(f"The broker closed the producer of {self.topic}.", advice="Open it again; the topic moves.")

    def _unanswered(self) -> NoReturn:
        """Raise the error of an entry that was in flight when the broker closed the producer, and that has no answer.

        A broker does not answer an entry that comes after it has closed the producer. A sealed segment takes no more entries. So if
        the segment ends with the entry that this producer sent before, the entry in flight was not written.
        """
        try:
            self._check_not_sealed()
        except TopicTerminated as error:
            try:
                segment = Segment(self._client, self.topic)
                last = segment.last()
                written = last != self._last and not segment.is_empty(last)
            except PulsarError as second:
                raise ConnectionLost(
                    f"{self.topic} was split or merged while an entry was sent, and the broker said neither whether it has the "
                    f"entry nor where the segment ends: {second.message}",
                    advice="Write the transaction again.",
                ) from error
            if not written:
                raise
            raise ConnectionLost(
                f"{self.topic} was split or merged while an entry was sent, and the broker did not say whether it has the entry. "
                f"The segment ends at {last.text}; the last known entry is at {self._last.text if self._last else 'no position'}.",
                advice="Write the transaction again.",
            ) from error
        raise self._gone()

    def _check_not_sealed(self) -> None:
        """Raise TopicTerminated if the segment is sealed. A broker that seals a segment first closes its producers, and does not
        say why. An attempt to open another producer shows whether the segment is sealed. A producer without shared access makes no
        such attempt, because the attempt could end another producer.
        """
        if self._access == "shared":
            open_shared(self._client, self.topic, seconds=self._seconds).close()

    def _next(self, deadline: float) -> Delivery:
        try:
            found = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimedOut(
                f"{self.topic}: no receipt within {self._seconds:g} s.", advice="The entry may have been written."
            ) from None
        if isinstance(found, PulsarError):
            raise found.again()
        return found

    @property
    def alive(self) -> bool:
        """Whether the producer is open. `close`, the broker, or the end of the connection closes it."""
        return self._channel.alive and not self._over

    def _take(self, event: Delivery | PulsarError) -> None:
        if isinstance(event, PulsarError) or event.name == "close_producer":
            self._over = True
        self._events.put(event)

    def close(self) -> None:
        """Close the producer. Idempotent. The broker or the end of the connection may have closed it already. An error of the
        broker is only logged.
        """
        was_alive, self._over = self.alive, True
        if was_alive:
            self._channel.close_one("producer", self._id, self.topic)
        else:
            self._channel.remove("producer", self._id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def open_shared(
    client: PulsarClient, topic: str, schema: Schema | None = None, *, seconds: float = ANSWER_SECONDS, pauses: Pauses = growing
) -> Producer:
    """Return a producer with shared access. While a broker seals or moves a segment, it refuses every producer as Retriable. So the
    producer is asked for again, for at most `seconds`, until the broker says what the segment is, or the layout has the segment as
    a sealed one. (A broker 5.0.0-M1 may go on refusing after the layout names the children.) Raises as `Producer`.
    """

    def opened(left: float) -> Producer:
        until = time.monotonic() + left
        try:
            return Producer(client, topic, schema=schema, open_seconds=left)
        except Retriable as error:
            if not _is_sealed(client, topic, max(0.0, until - time.monotonic())):
                raise
            raise TopicTerminated(
                f"{topic} is sealed: {error.message}", advice="Read the layout of the topic again and write to the successors."
            ) from error

    return repeat(
        opened,
        seconds,
        pauses=pauses,
        stop=threading.Event(),
        when=lambda error: passes(error) and not client.closed,
    )


def _is_sealed(client: PulsarClient, name: str, seconds: float) -> bool:
    """Return whether the layout of a topic has this segment as a sealed one, or not any more. If the layout cannot be read in
    `seconds`, return False.
    """
    if not name.startswith("segment://"):
        return False
    topic = "topic://" + name.removeprefix("segment://").rpartition("/")[0]
    try:
        return name not in {one.name for one in client.layout(topic, seconds).active}
    except PulsarError:
        return False  # the caller raises the error of the producer
