"""A log of one owner: a topic of one segment that only one producer writes.

A durable subscription protects the last checkpoint and the records after it from retention. A reader begins at the position of the
subscription. So a recovery reads only the records from the last checkpoint on, however long the history is.

Others may move the subscription: message expiry (TTL) of the namespace, or an administrator who skips or deletes it. Then no
checkpoint follows its position, and a reader begins with the first record that is kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import ConnectionLost, LogDamaged
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.producer import Access, Producer
from pulsar_protocol.reader import entries
from spark_txn_sink.pulsar.admin import found_or_created, when_created
from spark_txn_sink.pulsar.log_records import naming

log = logging.getLogger("txnsegment.sink.pulsar")
R = TypeVar("R")
SUBSCRIPTION: Final = "txnsegment-control"
WAIT_SECONDS: Final = 1.0
"""How long a read waits for the next record. If an open transaction holds the record back, the caller aborts it and reads on."""


@dataclass(frozen=True)
class Codec(Generic[R]):
    """The bytes of records. `decode` raises LogDamaged. `take`: the class of the first record of a log. `checkpoint`: the class of
    the first record that is kept later.
    """

    encode: Callable[[R], bytes]
    decode: Callable[[bytes], R]
    take: type[R]
    checkpoint: type[R]


class OwnedLog(Generic[R]):
    """The log. It has a connection of its own, because a broker ends the connection of a producer that was fenced. `access`:
    `fencing` ends the producer of the owner before; `exclusive` fails while there is one.

    Raises the errors of `pulsar_protocol`.
    """

    def __init__(
        self, connect: Callable[[], PulsarClient], name: str, admin_url: str | None, codec: Codec[R], access: Access
    ) -> None:
        self.name = name
        self._connect, self._admin_url, self._codec, self._access = connect, admin_url, codec, access
        self._guard = threading.Lock()
        """Held while the connection is made or given up, because threads that abort transactions use it, too."""
        self._closed = False
        self._client: PulsarClient | None = None
        self._producer: Producer | None = None
        self._segment: str | None = None

    def own(self, first: R) -> Position:
        """Become the only producer, write a first record, and return its position. Raises Fenced if the access is `exclusive` and
        another producer exists.
        """
        self.drop()
        segment = self._where()
        with when_created(lambda: self._cursor(segment)):  # the subscription, so that retention keeps the first record
            self._producer = Producer(self._opened(), segment, access=self._access)
        return self.append(first)

    @property
    def owned(self) -> bool:
        """Whether neither the broker nor the end of the connection has closed the producer."""
        return self._producer is not None and self._producer.alive

    def read(self, to: Position | None = None) -> Iterator[tuple[Position, R]]:
        """Yield the readable records from the last checkpoint to a position (None: to the end). If no more records are readable,
        wait a moment for them, then end. Raises LogDamaged if records are gone.
        """
        segment = self._where()
        with self._cursor(segment) as cursor:
            start = cursor.position
        found = self._records(segment, start, to)
        first = next(found, None)
        moved = first is None or not isinstance(first[1], self._codec.checkpoint)
        if moved and Segment(self._opened(), segment).before_first() < start:
            log.warning(
                "%s: somebody else has moved the subscription %s, so all records are read. Switch message expiry (TTL) off.",
                self.name,
                SUBSCRIPTION,
            )
            found = self._records(segment, EARLIEST, to)
            first = next(found, None)
        if first is None:
            return
        if not isinstance(first[1], self._codec.take | self._codec.checkpoint):
            raise LogDamaged(
                f"{self.name}: the records before {first[0].text} are gone. Somebody else has moved the subscription "
                f"{SUBSCRIPTION}, which keeps them.",
                advice="Switch message expiry (TTL) off in the namespace. Find out what is committed, then go on with another "
                "application, checkpoint or subscription.",
            )
        yield first
        yield from found

    def _records(self, segment: str, start: Position, to: Position | None) -> Iterator[tuple[Position, R]]:
        for position, entry in entries(self._opened(), segment, start, to, idle_seconds=WAIT_SECONDS):
            for message in entry.messages():
                with naming(self.name):
                    record = self._codec.decode(message.value or b"")
                yield position, record

    def append(self, record: R, txn: TxnId | None = None) -> Position:
        """Write a record and wait for its receipt."""
        if self._producer is None:
            raise ConnectionLost(f"The producer of {self.name} was closed.", advice="Take over again.")
        return self._producer.send([Message(self._codec.encode(record))], txn)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        """End a transaction. Raises TransactionEnded if it has ended in the other way, or is not known."""
        self._opened().end(txn, commit=commit)

    def keep_from(self, position: Position) -> None:
        """Let later reads begin after a position."""
        with self._cursor(self._where()) as cursor:
            cursor.acknowledge(position)

    def drop(self) -> None:
        """Close the producer and its connection, so that the next `own` makes new ones."""
        with self._guard:
            client, self._client, self._producer = self._client, None, None
        if client is not None:
            client.close()

    def close(self) -> None:
        """Do as `drop`, for good: later calls raise ConnectionLost. So an abort in another thread, for which nobody waits any more,
        makes no connection that nobody closes. Idempotent.
        """
        with self._guard:
            self._closed = True
        self.drop()

    def _opened(self) -> PulsarClient:
        with self._guard:
            if self._closed:
                raise ConnectionLost(f"The connection of {self.name} was closed.", advice="Its owner has ended. Make another one.")
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _cursor(self, segment: str, subscription: str = SUBSCRIPTION) -> Consumer:
        """Return a consumer of the durable subscription of a segment. It is open for a moment only, and receives no messages."""
        return Consumer.durable(self._opened().broker_of(segment), segment, subscription)

    def _where(self) -> str:
        """Return the segment of the log. Raises LogDamaged if the topic was split."""
        if self._segment is None:
            layout = found_or_created(self._opened(), self.name, self._admin_url, 1)
            if len(layout.segments) != 1:
                raise LogDamaged(
                    f"The topic {self.name} was split or merged: it has {len(layout.segments)} segments.",
                    advice="Switch automatic splits off for its namespace. Go on with another application, checkpoint or "
                    "subscription.",
                )
            (only,) = layout.segments.values()
            self._segment = only.name
        return self._segment
