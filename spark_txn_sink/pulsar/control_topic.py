"""Reads and writes the control topic of one application and one data topic.

A durable subscription protects the last checkpoint, and the records after this checkpoint, from retention. A reader begins at the
position of the subscription. So a recovery reads only the records from the last checkpoint on, however long the history is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import ConnectionLost
from pulsar_protocol.layout import Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.reader import entries
from spark_txn_sink.pulsar.admin import found_or_created
from spark_txn_sink.pulsar.attempts import Attempt, Opened
from spark_txn_sink.pulsar.control import ControlDamaged, Record, Take, decode, encode

SUBSCRIPTION: Final = "txnsegment-control"
WAIT_SECONDS: Final = 1.0
"""How long a read waits for the next record. If an open transaction holds the record back, the caller aborts it and reads on."""


def control_name(app: str, topic: str) -> str:
    """Return the name of the control topic of an application and a data topic (`topic://tenant/namespace/name`)."""
    tenant, namespace, _ = topic.removeprefix("topic://").split("/", 2)
    digest = hashlib.sha256(f"{app}\n{topic}".encode()).hexdigest()[:32]
    return f"topic://{tenant}/{namespace}/__txnsegment_control_{digest}"


class ControlTopic:
    """The control topic. It has a connection of its own, because a broker ends the connection of a producer that was fenced.

    Implements `committing.Control`. Raises the errors of `pulsar_protocol`.
    """

    def __init__(self, connect: Callable[[], PulsarClient], app: str, topic: str, admin_url: str | None) -> None:
        self.name = control_name(app, topic)
        self._connect, self._app, self._admin_url = connect, app, admin_url
        self._reader = f"{SUBSCRIPTION}-{self.name.rpartition('_')[2]}"
        """The subscription of this application on the attempts topic."""
        self._client: PulsarClient | None = None
        self._producer: Producer | None = None
        self._segment: str | None = None

    def take(self, run: str) -> Position:
        self.drop()
        segment = self._where()
        with self._cursor(segment):  # makes the subscription before the first record, so that retention keeps this record
            self._producer = Producer(self._opened(), segment, access="fencing")
        return self.append(Take(run))

    def read(self, to: Position) -> Iterator[tuple[Position, Record]]:
        segment = self._where()
        with self._cursor(segment) as cursor:
            start = cursor.position
        for position, entry in entries(self._opened(), segment, start, to, idle_seconds=WAIT_SECONDS):
            for message in entry.messages():
                yield position, decode(message.value or b"")

    def append(self, record: Record, txn: TxnId | None = None) -> Position:
        if self._producer is None:
            raise ConnectionLost("The producer of the control topic was closed.", advice="Take over again.")
        return self._producer.send([Message(encode(record))], txn)

    def end(self, txn: TxnId, *, commit: bool) -> None:
        self._opened().end(txn, commit=commit)

    def keep_from(self, position: Position) -> None:
        with self._cursor(self._where()) as cursor:
            cursor.acknowledge(position)

    def strays(self, opened: Opened) -> list[TxnId]:
        with self._cursor(opened.segment, self._reader) as cursor:
            start = cursor.position
        found: dict[str, None] = {}
        for _, entry in entries(self._opened(), opened.segment, start, opened.place, idle_seconds=WAIT_SECONDS):
            records = [Attempt.decoded(message.value or b"") for message in entry.messages()]
            found.update((one.txn, None) for one in records if one.app == self._app and one.txn != opened.txn.text)
        return [TxnId.parse(text) for text in found]

    def passed(self, opened: Opened) -> None:
        with self._cursor(opened.segment, self._reader) as cursor:
            cursor.acknowledge(opened.place)

    def drop(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._producer = None

    def _opened(self) -> PulsarClient:
        if self._client is None:
            self._client = self._connect()
        return self._client

    def _cursor(self, segment: str, subscription: str = SUBSCRIPTION) -> Consumer:
        """Return a consumer of a durable subscription of a segment. It gets no messages. The caller must close it."""
        return Consumer.durable(self._opened().broker_of(segment), segment, subscription)

    def _where(self) -> str:
        """Return the segment of the control topic. Raises ControlDamaged if the topic was split."""
        if self._segment is None:
            layout = found_or_created(self._opened(), self.name, self._admin_url, 1)
            if len(layout.segments) != 1:
                raise ControlDamaged(
                    f"The control topic {self.name} was split or merged: it has {len(layout.segments)} segments.",
                    advice="Switch automatic splits off for its namespace, and go on with a new txnAppId or a new checkpoint.",
                )
            (only,) = layout.segments.values()
            self._segment = only.name
        return self._segment
