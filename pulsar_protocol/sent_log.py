"""The log of what txnsegment's writers have sent to a topic. Readers use it to read each transaction as a whole.

Pulsar does not tell which entries belong to a transaction before they are read. So a writer records them: before it commits a
transaction, it writes a `Sent` with the first and last position of its rows in each segment. The records are plain messages in the
topic's log (`log_name`), so that no transaction holds them back. Tasks write their attempts into the same log
(`spark_txn_sink.pulsar.attempts`). The log is made with one segment. If somebody splits it, writers go on in one of the new
segments, and readers read all of them.

A transaction with visible rows is committed, so its `Sent` was written before. A reader therefore finds the cuts first, and then
reads the log to its end. A transaction in the log may also be open or aborted. If it is split by the cuts, then its first entry is
decided in some segment, and the reader looks whether the broker delivers that entry.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import ProtocolError, TimedOut, TopicMissing
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.reader import entries
from pulsar_protocol.whole_transactions import NO_CHILDREN, Child, Extent, least_whole_cut, whole_cut

TRIES: Final = 3
_KIND: Final = "sent"
_NOTHING: Final[Mapping[str, Position]] = {}


@dataclass(frozen=True)
class Sent:
    """The rows of a transaction that is about to be committed. `segments`: the positions of its first and last entry in each
    segment.
    """

    txn: TxnId
    segments: Mapping[str, tuple[Position, Position]]


def log_name(topic: str) -> str:
    """Return the name of the log of a topic (`topic://tenant/namespace/name`, or `persistent://..`)."""
    tenant, namespace, _ = topic.partition("://")[2].split("/", 2)
    return f"topic://{tenant}/{namespace}/__txnsegment_attempts_{hashlib.sha256(topic.encode()).hexdigest()[:32]}"


def encode(record: Sent) -> bytes:
    """Return the JSON text of a record. It also has the fields that a record of an attempt has."""
    places = {name: [first.text, last.text] for name, (first, last) in record.segments.items()}
    fields = {"kind": _KIND, "txn": record.txn.text, "segments": places, "id": "", "partition": None, "app": None}
    return json.dumps(fields, separators=(",", ":")).encode()


def decode(data: bytes) -> Sent | None:
    """Return a record, or None for a record of an attempt. Raises ProtocolError for a damaged one."""
    try:
        fields = json.loads(data)
        if fields.get("kind") != _KIND:
            return None
        places = {name: (Position.parse(first), Position.parse(last)) for name, (first, last) in fields["segments"].items()}
        return Sent(TxnId.parse(fields["txn"]), places)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProtocolError(
            f"A record of what writers have sent cannot be read: {data[:200]!r} ({error}).",
            advice="Only txnsegment may write to topics whose names begin with __txnsegment. Find out who wrote it.",
        ) from error


def log_segment(client: PulsarClient, topic: str) -> str:
    """Return a segment of the log of a topic that takes records. Raises TopicMissing."""
    return client.layout(log_name(topic)).active[0].name


def record_sent(client: PulsarClient, segment: str, sent: Sent) -> None:
    """Write a record into the segment of a log. The caller then commits the transaction. Raises the broker's error."""
    with Producer(client, segment) as producer:
        producer.send([Message(encode(sent))])


class SentLog:
    """The transactions that writers of txnsegment have sent to one topic, as far as one reader needs them. Keeps what it has read,
    so that a stream reads each record once.

    `read`: for each segment of the log, the position up to which the reader needs no records (`needed_after`).
    """

    def __init__(self, client: PulsarClient, topic: str, read: Mapping[str, Position] = _NOTHING) -> None:
        self._client, self._topic = client, topic
        self._read = dict(read)
        self._ended: set[str] = set()
        """The sealed segments of the log that have been read to their end."""
        self._sent: dict[TxnId, Sent] = {}
        self._places: dict[TxnId, tuple[str, Position]] = {}
        """Where the record of each transaction is in the log."""
        self._committed: set[TxnId] = set()

    @property
    def segments(self) -> set[str]:
        """The segments of the topic that the records name."""
        return {name for one in self._sent.values() for name in one.segments}

    def catch_up(self) -> None:
        """Read the records up to the end of the log. A topic without a log has no such writer. Raises the broker's error,
        ProtocolError.
        """
        try:
            layout = self._client.layout(log_name(self._topic))
        except TopicMissing:
            return
        for one in layout.segments.values():
            if one.name not in self._ended:
                self._read_segment(one.name)
                if not one.active:
                    self._ended.add(one.name)

    def whole(self, cut: Mapping[str, Position], children: Mapping[str, Child] = NO_CHILDREN) -> dict[str, Position]:
        """Return the greatest cut at or below `cut` that splits no transaction, and has no child before its parents. `cut` must
        have been found before the last `catch_up`. Raises the broker's error.
        """
        self._drop_aborted(cut)
        return whole_cut(cut, self._extents(), children)

    def limited(
        self, ends: Mapping[str, Position], cut: Mapping[str, Position], children: Mapping[str, Child] = NO_CHILDREN
    ) -> dict[str, Position]:
        """Return the least such cut at or above `ends`. `cut`: the last result of `whole`."""
        return least_whole_cut(ends, cut, self._extents(), children)

    def forget_segments(self, names: AbstractSet[str]) -> None:
        """Forget what was sent to segments that were deleted."""
        for txn, sent in list(self._sent.items()):
            if not names.isdisjoint(sent.segments):
                left = {name: places for name, places in sent.segments.items() if name not in names}
                self._sent[txn] = Sent(txn, left)

    def forget_to(self, start: Mapping[str, Position]) -> None:
        """Forget the transactions that lie at or below `start` in all their segments. All later reads begin there."""
        for txn, sent in list(self._sent.items()):
            if _lies_within(sent, start):
                self._forget(txn)

    def needed_after(self, start: Mapping[str, Position]) -> dict[str, Position]:
        """Return for each segment of the log the position after which it has the records that a read from `start` on needs."""
        found = dict(self._read)
        for txn, sent in self._sent.items():
            segment, place = self._places[txn]
            if not _lies_within(sent, start):
                found[segment] = min(found[segment], Position(place.ledger, place.entry - 1))
        return found

    def _extents(self) -> list[Extent]:
        return [Extent(one.segments) for one in self._sent.values()]

    def _forget(self, txn: TxnId) -> None:
        del self._sent[txn]
        del self._places[txn]
        self._committed.discard(txn)

    def _read_segment(self, segment: str) -> None:
        start = self._read.get(segment, EARLIEST)
        end = self._end(segment, start)
        for place, entry in entries(self._client, segment, start, end):
            for message in entry.messages():
                sent = decode(message.value or b"")
                if sent is not None:
                    self._sent[sent.txn] = sent
                    self._places.setdefault(sent.txn, (segment, place))
        self._read[segment] = end

    def _end(self, segment: str, start: Position) -> Position:
        """Return the last entry of a segment of the log. Its entries have no transaction, so all of them are decided."""
        for _ in range(TRIES):
            cut = Segment(self._client, segment).cut(start)
            if cut.whole:
                return cut.position
        raise TimedOut(
            f"{segment}: the broker did not deliver the entries up to {cut.last.text}.",
            advice="Only txnsegment may write to this topic, without transactions. Try again if the broker was slow.",
        )

    def _drop_aborted(self, cut: Mapping[str, Position]) -> None:
        """Drop the aborted ones among the transactions that the cut splits. Their rows are in no segment, so they split nothing."""
        for txn, sent in list(self._sent.items()):
            begun = {name: first for name, (first, _) in sent.segments.items() if name in cut and first <= cut[name]}
            complete = all(last <= cut[name] for name, (_, last) in sent.segments.items() if name in cut)
            if not begun or complete or txn in self._committed:
                continue
            name, first = next(iter(begun.items()))
            found = Segment(self._client, name).first_after(Position(first.ledger, first.entry - 1))
            if found.position == first:
                self._committed.add(txn)
            else:
                self._forget(txn)


def _lies_within(sent: Sent, start: Mapping[str, Position]) -> bool:
    return all(name in start and last <= start[name] for name, (_, last) in sent.segments.items())
