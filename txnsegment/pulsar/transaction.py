"""`PulsarTransaction`: rows for several topics of a Pulsar cluster, and acknowledgements, committed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import pyarrow as pa

from metadata.common.errors import OptionError, OutcomeUnknown, SchemaError, TopicSealed, TxnConflict
from metadata.records.names import topic_name
from metadata.write.write_set import Committed
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Message
from pulsar_protocol.errors import (
    TRANSACTION_NOT_FOUND,
    ConnectionLost,
    PulsarError,
    Retriable,
    TimedOut,
    TopicMissing,
    TopicTerminated,
    TransactionEnded,
)
from pulsar_protocol.layout import Bits, Layout, Position, Segment
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import Sent, log_segment, record_sent
from pulsar_protocol.values import Values, codec
from spark_txn_sink.pulsar.control import Outcome
from txnsegment.transaction import Batches, batches_of

ENTRY_ROWS = 1_000
"""The greatest number of rows in an entry."""
ENTRY_BYTES = 512 * 1024
"""The size of the values at which an entry is sent."""


class Participant(Protocol):
    """A consumer whose acknowledgements are in a transaction."""

    def begun(self, txn: TxnId) -> None:
        """Record that the transaction may have acknowledgements."""

    def prepare(self, owner: PulsarTransaction, txn: TxnId) -> None:
        """Write the acknowledgements into the transaction. After an error the transaction is aborted."""

    def ended(self, owner: PulsarTransaction, txn: TxnId | None, outcome: Outcome | None) -> None:
        """Take note of how the transaction ended. `txn` None: it was never begun at the broker. `outcome` None: not known."""


class PulsarTransaction:
    """One transaction of a Pulsar cluster. Made by `cluster.begin()`; for one thread.

        with cluster.begin() as txn:
            txn.append("orders", table, key="customer")
            txn.append("payments", other)
            consumer.ack(message, txn=txn)
            txn.commit()

    `append` sends the rows at once, and nobody reads them before the commit. If `append` raises, the transaction is aborted. The
    end of the block aborts a transaction that is not committed. The broker aborts it after its timeout.
    """

    def __init__(self, client: PulsarClient, timeout_ms: int, bits: Callable[[], Bits]) -> None:
        """`bits`: asks the broker for its version, and returns the bits of a hash by which its clients route keys."""
        self._client, self._timeout_ms, self._bits = client, timeout_ms, bits
        self._id: TxnId | None = None
        self._producers: dict[str, Producer] = {}
        self._places: dict[str, dict[str, tuple[Position, Position]]] = {}
        """For each topic and segment, the first and last position of the rows."""
        self._rows = self._bytes = self._turn = 0
        self._committed: Committed | None = None
        self._ended = False
        self._outcome_unknown = False
        """Whether a commit was sent and not answered."""
        self._commit_sent = False
        """Whether a commit was sent."""
        self._participants: list[Participant] = []
        self._prepared = False

    @property
    def id(self) -> str | None:
        """The id of the transaction, as the broker shows it. None: nothing was appended yet."""
        return None if self._id is None else self._id.text

    def append(self, topic: str, batches: Batches, *, key: str | None = None) -> None:
        """Send rows to a topic, within this transaction. They are encoded by the topic's schema.

        `key`: the column whose text or bytes are the key of each message. It routes the row to a segment, and rows of a key keep
        their order. It stays in the row. None: the messages have no keys, unless the
        schema has them (KEY_VALUE). Messages without keys go to the segments in turn.

        Raises TopicMissing, SchemaError, MessageTooLarge (a row is larger than the broker takes), UnknownVersion (with keys),
        TopicSealed (a segment was split or merged meanwhile: run the transaction again), TxnConflict (the transaction has timed
        out), OptionError after the end.
        """
        self._check_open("append")
        name = str(topic_name(topic))
        layout, values = self._client.layout(name), codec(self._client.schema(name), name)
        try:
            for batch in batches_of(batches):
                for start in range(0, batch.num_rows, ENTRY_ROWS):
                    self._send(layout, values, batch.slice(start, ENTRY_ROWS), key)
        except BaseException as error:
            self._abort_after(error)
            if isinstance(error, TopicTerminated | ConnectionLost) and self._changed(layout):
                raise TopicSealed(
                    f"A segment of {name} was split or merged while rows were sent: {error.message}",
                    advice="Nothing of the transaction is visible. Run it again; it then writes to the new segments.",
                ) from error
            if isinstance(error, TransactionEnded):
                raise TxnConflict(
                    f"The Pulsar transaction {self.id} ended while rows were sent, by its timeout of {self._timeout_ms} ms.",
                    advice="Nothing of it is visible. Run it again, with a longer timeout.",
                ) from error
            raise

    def _changed(self, layout: Layout) -> bool:
        """Return whether the topic has another layout now. This may explain an error: a broker closes the producers of a segment
        that it seals.
        """
        try:
            return self._client.layout(layout.topic).epoch != layout.epoch
        except PulsarError:
            return False  # the caller raises the first error

    def _send(self, layout: Layout, values: Values, batch: pa.RecordBatch, key: str | None) -> None:
        keys = values.keys_of(batch) if key is None else _keys(batch, key)
        data = values.encode(batch)
        found: dict[str, list[Message]] = {}
        if keys is None:
            segment = layout.active[self._turn % len(layout.active)]
            self._turn += 1
            found[segment.name] = [Message(value) for value in data]
        else:
            routes: dict[bytes | None, Segment] = {}
            bits = self._bits()
            for value, one in zip(data, keys, strict=True):
                if one not in routes:
                    routes[one] = layout.active[0] if one is None else layout.segment_of(one, bits)
                found.setdefault(routes[one].name, []).append(Message(value, one))
        if self._id is None:
            self._id = self._client.begin(self._timeout_ms)
        for name, messages in found.items():
            for entry in _entries(messages):
                place = self._producer(name, values.schema).send(entry, self._id)
                places = self._places.setdefault(layout.topic, {})
                first, _ = places.get(name, (place, place))
                places[name] = first, place
        self._rows += batch.num_rows
        self._bytes += sum(len(value or b"") for value in data)

    def _producer(self, segment: str, schema: Any | None) -> Producer:
        if segment not in self._producers:
            self._producers[segment] = Producer(self._client, segment, schema=schema)
        return self._producers[segment]

    def join(self, participant: Participant) -> None:
        """Let a consumer take part, whose acknowledgements count with the commit. `consumer.ack(.., txn=..)` calls this. Raises
        OptionError after the end, or after a commit whose outcome is unknown.
        """
        self._check_open("take acknowledgements")
        if self._prepared:
            raise OptionError(
                f"The transaction {self.id} is being committed.", advice="Call commit() again, then begin another one."
            )
        if participant in self._participants:
            return
        if self._id is None:
            self._id = self._client.begin(self._timeout_ms)
        participant.begun(self._id)
        self._participants.append(participant)

    def commit(self) -> Committed:
        """Make all rows visible, and all acknowledgements count. A second call returns the result of the first. Raises TxnConflict
        if the transaction has timed out, or the broker was lost before the commit, so that nothing is visible; OutcomeUnknown if
        the broker was lost in the commit: call it again. Raises TakenOver if another consumer has taken over the subscription of
        an acknowledgement; then nothing is visible.
        """
        if self._committed is not None:
            return self._committed
        self._check_open("commit")
        if self._id is not None:
            try:
                self._prepare(self._id)
            except BaseException as error:
                self._abort_after(error)
                if isinstance(error, ConnectionLost | TimedOut) and not self._outcome_unknown:
                    raise TxnConflict(
                        f"The Pulsar transaction {self._id.text} was not committed, because the broker was lost before: "
                        f"{error.message}",
                        advice="Nothing of it is visible, and it ends at the latest by its timeout. Run it again.",
                    ) from error
                if isinstance(error, TransactionEnded):
                    raise self._timed_out(error) from error
                raise
            try:
                self._commit_sent = True
                self._client.end(self._id, commit=True)
            except TransactionEnded as error:
                self._finish(None if self._outcome_unknown and error.code == TRANSACTION_NOT_FOUND else "aborted")
                if self._outcome_unknown and error.code == TRANSACTION_NOT_FOUND:
                    raise OutcomeUnknown(
                        f"It is unknown whether the Pulsar transaction {self._id.text} is committed: the broker has forgotten it.",
                        advice="Look for its rows before you run it again.",
                    ) from error
                raise self._timed_out(error) from error
            except (ConnectionLost, TimedOut, Retriable) as error:
                self._outcome_unknown = True
                raise OutcomeUnknown(
                    f"It is unknown whether the Pulsar transaction {self._id.text} is committed: {error.message}",
                    advice="Call commit() again: it asks the broker, and commits at most once.",
                ) from error
        self._committed = Committed(self.id, None, self._rows, self._bytes)
        self._finish("committed")
        return self._committed

    def _timed_out(self, error: TransactionEnded) -> TxnConflict:
        return TxnConflict(
            f"The Pulsar transaction {self.id} was aborted, by its timeout of {self._timeout_ms} ms: {error.message}",
            advice="Nothing of it is visible. Run it again, with a longer timeout.",
        )

    def _prepare(self, txn: TxnId) -> None:
        """Do what must precede the commit, unless it is done."""
        if self._prepared:
            return
        self._record(txn)
        for one in self._participants:
            one.prepare(self, txn)
        self._prepared = True

    def _record(self, txn: TxnId) -> None:
        """Record where the rows are, so that Spark's reads see all of a topic's rows or none. A topic that Spark has never written
        has no log for such records. Each of its segments then shows the transaction's rows at a time of its own.
        """
        for topic, places in self._places.items():
            try:
                log = log_segment(self._client, topic)
            except TopicMissing:
                continue
            record_sent(self._client, log, Sent(txn, places))

    def abort(self) -> None:
        """Abort the transaction. A call after the end changes nothing. Raises the broker's error; then the timeout ends it."""
        if self._ended:
            return
        outcome: Outcome | None = None if self._commit_sent else "aborted"  # without a commit it can only be aborted
        try:
            self._ended = True
            self._close()
            if self._id is not None:
                self._client.end(self._id, commit=False)
            outcome = "aborted"
        except TransactionEnded as error:
            if self._commit_sent and error.code != TRANSACTION_NOT_FOUND:
                outcome = "committed"
            raise
        finally:
            self._finish(outcome)

    def _finish(self, outcome: Outcome | None) -> None:
        """Close what is open, and tell the consumers the outcome, once. None: not known."""
        self._ended = True
        self._close()
        participants, self._participants = self._participants, []
        for one in participants:
            one.ended(self, self._id, outcome)

    def _abort_after(self, error: BaseException) -> None:
        """Abort the transaction, unless it has ended. The error gets a note of what the abort has shown."""
        was_open = not self._ended and self._id is not None
        try:
            self.abort()
        except TransactionEnded as second:
            if self._outcome_unknown and second.code != TRANSACTION_NOT_FOUND:
                error.add_note(f"The Pulsar transaction {self.id} IS committed: its rows are visible. Do not run it again.")
            else:
                error.add_note(f"The broker has ended the Pulsar transaction {self.id} itself ({second}).")
        except PulsarError as second:
            error.add_note(
                f"The abort of the Pulsar transaction {self.id} is unknown ({second}). Its timeout ends it at the latest."
            )
        else:
            if was_open and self._outcome_unknown:
                error.add_note(f"The Pulsar transaction {self.id} is aborted: nothing of it is visible. It can be run again.")

    def _close(self) -> None:
        producers, self._producers = [*self._producers.values()], {}
        for one in producers:
            one.close()

    def _check_open(self, verb: str) -> None:
        if self._ended:
            raise OptionError(f"The transaction {self.id or ''} has ended: it cannot {verb}.", advice="Begin another one.")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.abort()
        else:
            self._abort_after(error)


def _entries(messages: list[Message]) -> Iterator[list[Message]]:
    """Yield the messages in entries of about `ENTRY_BYTES`, at least one in each."""
    entry: list[Message] = []
    size = 0
    for one in messages:
        entry.append(one)
        size += len(one.value or b"") + len(one.key or b"")
        if size >= ENTRY_BYTES:
            yield entry
            entry, size = [], 0
    if entry:
        yield entry


def _keys(batch: pa.RecordBatch, column: str) -> Sequence[bytes | None]:
    """Return the key of each row. Raises SchemaError."""
    if column not in batch.schema.names:
        raise SchemaError(
            f"There is no column {column!r} for the key.", advice=f"The columns are: {', '.join(batch.schema.names)}."
        )
    found = batch.column(column)
    if pa.types.is_integer(found.type):
        found = found.cast(pa.string())
    if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type) or pa.types.is_binary(found.type)):
        raise SchemaError(
            f"The column {column!r} has the type {found.type}, which is no key.", advice="Give text, bytes or integers."
        )
    return [one.encode() if isinstance(one, str) else one for one in found.to_pylist()]
