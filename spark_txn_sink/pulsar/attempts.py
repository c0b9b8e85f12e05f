"""Which attempt of a Spark task may send its rows.

Pulsar cannot take back a part of a transaction. So the rows of a failed attempt would be committed together with those of its
retry. Spark's attempt numbers do not help, for two reasons. A speculative attempt runs beside the first one. And a stage that runs
again (after a lost shuffle file) counts its attempts from 0, while tasks of its earlier run may still send.

Each attempt therefore writes a record into the writers' log of the topic before it sends its first row. Then it reads the
records from the opening of the transaction up to its own record. The attempt whose record is the first one of its partition sends
its rows. All other attempts of the partition are refused. If the first attempt fails, its retries are refused, too. Then the job
fails, the transaction is aborted, and the batch runs again as a whole. An attempt whose input fails before the attempt writes its
record leaves no record, so its retry may send.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from ledgers.errors import TxnSegmentError
from pulsar_protocol import log_holding
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import ConnectionLost, TimedOut, TopicMissing, TopicTerminated
from pulsar_protocol.layout import Position
from pulsar_protocol.producers import lend
from pulsar_protocol.reader import entries
from pulsar_protocol.sent_log import damaged, log_name
from spark_txn_sink.pulsar.admin import found_or_created, when_created

TRIES = 3


class AttemptRefused(TxnSegmentError):
    """Another attempt of the same task may have sent rows in the transaction, so this attempt must not send its rows."""


@dataclass(frozen=True)
class Opened:
    """The opening of a transaction. `place`: the position of its record in a segment of the writers' log."""

    txn: TxnId
    segment: str
    place: Position


@dataclass(frozen=True)
class Attempt:
    """A record of the writers' log: an attempt of a task, or the opening of a transaction (`partition` is None). `app`: the
    application, or None if it is not known. `write`: the id of the write, if the transaction has several; otherwise None.
    """

    txn: str
    id: str
    partition: int | None = None
    app: str | None = None
    write: str | None = None

    def encoded(self) -> bytes:
        fields = {"txn": self.txn, "id": self.id, "partition": self.partition, "app": self.app}
        return json.dumps(fields if self.write is None else {**fields, "write": self.write}).encode()

    @staticmethod
    def decoded(data: bytes, log: str = "a writers' log") -> Attempt:
        """Return the record from its bytes. `log`: the topic or segment that has the record, for errors. Raises LogDamaged."""
        try:
            fields = json.loads(data)
            return Attempt(fields["txn"], fields["id"], fields["partition"], fields["app"], fields.get("write"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(log, data, error) from error


def first_of(records: Iterable[Attempt], txn: str, partition: int, write: str | None = None) -> str | None:
    """Return the id of the first attempt of a write's partition in the order of the records, or None if there is none."""
    wanted = txn, partition, write
    return next((one.id for one in records if (one.txn, one.partition, one.write) == wanted), None)


class _Logs:
    """Remembers, for the writers' log of each topic, the segment to which records are written, so that not every batch asks the
    broker for the layout of the log. If the log was split or deleted, this segment refuses a record. The caller then calls
    `forget`, and the layout is asked for again.
    """

    def __init__(self, client: PulsarClient) -> None:
        self._client = client
        self._segments: dict[str, str] = {}

    def segment(self, topic: str, admin_url: str | None) -> str:
        """Return a segment of the writers' log of a topic. Raises TopicMissing."""
        if topic not in self._segments:
            self._segments[topic] = found_or_created(self._client, log_name(topic), admin_url, 1).active[0].name
        return self._segments[topic]

    def forget(self, topic: str) -> None:
        self._segments.pop(topic, None)
        log_holding.forget(self._client, topic)


def make_log(client: PulsarClient, topic: str, admin_url: str | None) -> None:
    """Create the writers' log of a topic, if this process knows of none. Raises TopicMissing if there is none and `admin_url` is
    None.
    """
    client.kept(_Logs, _Logs).segment(topic, admin_url)


def opened(client: PulsarClient, topic: str, admin_url: str | None, txn: TxnId, unique: str, app: str | None = None) -> Opened:
    """Write the record of the opening of a transaction into the writers' log of the topic, and return where it is. Raises the
    errors of the broker.
    """
    logs, record = client.kept(_Logs, _Logs), Attempt(txn.text, unique, app=app).encoded()
    segment = logs.segment(topic, admin_url)
    try:
        return Opened(txn, segment, _write(client, segment, record))
    except (TopicTerminated, TopicMissing):
        logs.forget(topic)
    segment = logs.segment(topic, admin_url)
    return Opened(txn, segment, when_created(lambda: _write(client, segment, record)))


def claim(client: PulsarClient, opening: Opened, attempt: Attempt) -> None:
    """Write the record of an attempt, and check that the attempt may send the rows of its partition. Raises AttemptRefused if it
    may not, or an error of the broker.
    """
    assert attempt.partition is not None
    mine = written(client, opening.segment, attempt.encoded())
    if mine == Position(opening.place.ledger, opening.place.entry + 1):
        return  # no other attempt can be between the opening and this record
    found: list[Attempt] = []
    for place, entry in entries(client, opening.segment, opening.place, mine, inclusive=True):
        records = [Attempt.decoded(message.value or b"", opening.segment) for message in entry.messages()]
        if not found and place != opening.place:
            break
        found += records
    if not found or found[0].txn != attempt.txn:
        raise AttemptRefused(
            f"The record of the opening of the transaction {attempt.txn} is not in {opening.segment} any more, so it is unknown "
            f"whether another attempt of task {attempt.partition} has sent rows.",
            advice="The retention of the namespace is shorter than a batch: raise it. The batch runs again after a restart.",
        )
    first = first_of(found, attempt.txn, attempt.partition, attempt.write)
    if first != attempt.id:
        raise AttemptRefused(
            f"Another attempt of task {attempt.partition} may have sent rows in the transaction {attempt.txn}, and Pulsar cannot "
            "take back a part of a transaction.",
            advice="The batch fails and its transaction is aborted. It runs again as a whole when the query or the write "
            "is started again. Find out why the first attempt failed; if it did not, switch spark.speculation off.",
        )


def written(client: PulsarClient, segment: str, record: bytes) -> Position:
    """Write a record into a log and return its position. If the receipt of the record is lost, write the record again. The log may
    then have the record twice, and the first one counts.
    """
    for _ in range(TRIES - 1):
        try:
            return _write(client, segment, record)
        except (ConnectionLost, TimedOut):
            continue
    return _write(client, segment, record)


def _write(client: PulsarClient, segment: str, record: bytes) -> Position:
    with lend(client, segment) as producer:
        return producer.send([Message(record)])
