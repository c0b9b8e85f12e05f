"""The writers' log of a topic: what txnsegment's writers have sent to it. Readers use it to read each transaction as a whole.

Pulsar does not tell which entries a transaction has; a reader learns it only from the entries that it reads. So a writer records
the entries: before it commits a transaction, it writes a `Sent` with the first and last position of its rows in each segment. The
records are plain messages in the topic's writers' log (`log_name`), so that no transaction holds them back. Tasks write their
attempts into the same log (`spark_txn_sink.pulsar.attempts`). The log is made with one segment. If somebody splits this segment,
writers go on in one of the new segments, and readers read all segments of the log.

If rows of a transaction are visible, the transaction is committed, so its `Sent` was written before. A reader therefore finds the
cuts first, and then reads the log to its end. The log may also name open and aborted transactions. If the cuts split a transaction,
then its first entry is at or below the cut in some segment, so this entry is decided. The reader asks the broker for this entry.
If the broker delivers it, the transaction is committed.

Some writers also write a `Settled`. It tells which earlier records a reader of the newest rows does not need. Such a reader reads
only the end of the log, however long the log is (`sent_reader`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import LogDamaged
from pulsar_protocol.layout import Position
from pulsar_protocol.producers import lend


@dataclass(frozen=True)
class Sent:
    """The rows of a transaction that is about to be committed. `segments`: the positions of its first and last entry in each
    segment.
    """

    txn: TxnId
    segments: Mapping[str, tuple[Position, Position]]


@dataclass(frozen=True)
class Settled:
    """Which records readers of the newest rows do not need. `after`: for each segment of the log, the position of the last of these
    records.
    """

    after: Mapping[str, Position]


def log_name(topic: str) -> str:
    """Return the name of the writers' log of a topic (`topic://tenant/namespace/name`, or `persistent://..`)."""
    tenant, namespace, _ = topic.partition("://")[2].split("/", 2)
    return f"topic://{tenant}/{namespace}/__txnsegment_attempts_{hashlib.sha256(topic.encode()).hexdigest()[:32]}"


def encode(record: Sent | Settled) -> bytes:
    """Return the JSON text of a record. The text also has the fields of an attempt, because attempts are in the same log."""
    fields: dict[str, object] = {"kind": "sent", "txn": "", "segments": {}, "id": "", "partition": None, "app": None}
    match record:
        case Sent(txn, segments):
            fields["txn"] = txn.text
            fields["segments"] = {name: [first.text, last.text] for name, (first, last) in segments.items()}
        case Settled(after):
            fields["kind"] = "settled"
            fields["segments"] = {name: place.text for name, place in after.items()}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes, log: str = "a writers' log") -> Sent | Settled | None:
    """Return the record that these bytes encode, or None for the record of an attempt. `log`: the topic that has the record, for
    errors. Raises LogDamaged for damaged bytes.
    """
    try:
        fields = json.loads(data)
        match fields.get("kind"):
            case "sent":
                places = {name: (Position.parse(first), Position.parse(last)) for name, (first, last) in fields["segments"].items()}
                return Sent(TxnId.parse(fields["txn"]), places)
            case "settled":
                return Settled({name: Position.parse(place) for name, place in fields["segments"].items()})
            case None:
                TxnId.parse(fields["txn"])
                return None
        raise ValueError(f"the kind {fields['kind']!r} is not known")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(log, data, error) from error


def damaged(log: str, data: bytes, error: Exception) -> LogDamaged:
    """Return the error for a record that cannot be read. `log`: the topic that has the record."""
    return LogDamaged(
        f"{log}: a record of what writers have sent cannot be read: {data[:200]!r} ({type(error).__name__}: {error}).",
        advice="Only txnsegment may write to topics whose names begin with __txnsegment. Find out who wrote the record. Then end "
        "the programs that write the data topic, wait until no transaction is open in it, and delete this log (txnsegment topics "
        "delete). The next write creates it again.",
    )


def log_segment(client: PulsarClient, topic: str) -> str:
    """Return a segment of a topic's writers' log to which records can be written. Raises TopicMissing."""
    return client.layout(log_name(topic)).active[0].name


def record_sent(client: PulsarClient, segment: str, sent: Sent | Settled) -> Position:
    """Write a record into the segment of a log, and return its position. After a `Sent` the caller commits the transaction. Raises
    the error that the broker reports.
    """
    with lend(client, segment) as producer:
        return producer.send([Message(encode(sent))])
