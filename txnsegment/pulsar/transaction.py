"""`PulsarTransaction`: rows for several topics of a Pulsar cluster, committed together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from metadata.common.errors import OptionError, OutcomeUnknown, SchemaError, TopicSealed, TxnConflict
from metadata.records.names import topic_name
from metadata.write.write_set import Committed
from pulsar_protocol.client import PulsarClient, TxnId
from pulsar_protocol.entries import Rows
from pulsar_protocol.errors import (
    TRANSACTION_NOT_FOUND,
    ConnectionLost,
    PulsarError,
    TimedOut,
    TopicMissing,
    TopicTerminated,
    TransactionEnded,
)
from pulsar_protocol.layout import Bits, Layout, Position
from pulsar_protocol.producer import Producer
from pulsar_protocol.sent_log import Sent, log_segment, record_sent
from pulsar_protocol.values import Values, codec
from spark_txn_sink.pulsar.routing import Router
from spark_txn_sink.pulsar.rows import messages_of
from txnsegment.transaction import Batches, batches_of

ENTRY_ROWS = 1_000
"""How many rows an entry has at most."""
ENTRY_BYTES = 512 * 1024
"""The size in bytes of an entry's values and keys at which the entry is sent."""


class PulsarTransaction:
    """One transaction of a Pulsar cluster. Made by `cluster.begin()`; for one thread.

        with cluster.begin() as txn:
            txn.append("orders", table, key="customer")
            txn.append("payments", other)
            txn.commit()

    `append` sends the rows at once, and nobody reads them before the commit. If `append` raises, the transaction is aborted. The
    end of the block aborts a transaction that is not committed. If the transaction is still open after its timeout, the broker
    aborts it.
    """

    def __init__(self, client: PulsarClient, timeout_ms: int, bits: Callable[[], Bits]) -> None:
        """`bits`: a function that returns which bits of a key's hash choose its segment, by the version of the broker."""
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

    @property
    def id(self) -> str | None:
        """The id of the transaction, as the broker shows it. None: nothing was appended yet."""
        return None if self._id is None else self._id.text

    def append(self, topic: str, batches: Batches, *, key: str | None = None) -> None:
        """Send rows to a topic, within this transaction. The rows are encoded by the topic's schema.

        `key`: the column with the keys of the messages (text, bytes or integers). The key of a row decides its segment, and rows of
        a key keep their order. The column stays in the rows. None: the messages have no keys, unless the topic's schema has keys
        (KEY_VALUE). Messages without keys, and rows with a null key, go to the segments in turn, an entry at a time.

        Raises TopicMissing, SchemaError, MessageTooLarge (a row is larger than the broker takes), UnknownVersion (if there are keys
        and the routing of the broker's version is not known), TopicSealed (a segment was split or merged meanwhile: run the
        transaction again), TxnConflict (the transaction has timed out), OptionError (the transaction has ended).
        """
        self._check_open("append")
        name = str(topic_name(topic))
        layout, values = self._client.layout(name), codec(self._client.schema(name), name)
        try:
            bits: Bits = self._bits() if key is not None or values.takes_keys else "high"  # rows without keys need neither
            router = Router(layout, bits, ENTRY_BYTES, ENTRY_ROWS, self._turn)
            self._turn += 1
            for batch in batches_of(batches):
                for start in range(0, batch.num_rows, ENTRY_ROWS):
                    rows = batch.slice(start, ENTRY_ROWS)
                    router.route(messages_of(rows, values, None if key is None else _key_column(rows, key)))
                    self._send(layout.topic, values, router.full())
            self._send(layout.topic, values, router.rest())
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
        """Return whether the topic has another layout now. This may explain an error, because a broker that seals a segment closes
        the producers of the segment.
        """
        try:
            return self._client.layout(layout.topic).epoch != layout.epoch
        except PulsarError:
            return False  # the caller raises the first error

    def _send(self, topic: str, values: Values, entries: Iterable[tuple[str, Rows]]) -> None:
        """Send entries, each to its segment. Begin the transaction if it has not begun."""
        for segment, entry in entries:
            if self._id is None:
                self._id = self._client.begin(self._timeout_ms)
            place = self._producer(segment, values.schema).send(entry, self._id)
            places = self._places.setdefault(topic, {})
            first, _ = places.get(segment, (place, place))
            places[segment] = first, place
            self._rows += len(entry)
            self._bytes += sum(len(value or b"") for value in entry.values)

    def _producer(self, segment: str, schema: Any | None) -> Producer:
        if segment not in self._producers:
            self._producers[segment] = Producer(self._client, segment, schema=schema)
        return self._producers[segment]

    def commit(self) -> Committed:
        """Make all rows visible. A second call returns the result of the first.

        Raises TxnConflict if the transaction has timed out, or if the connection was lost before the commit was sent. Then nothing
        is visible. Raises OutcomeUnknown if the connection was lost after the commit was sent. Then call `commit` again.
        """
        if self._committed is not None:
            return self._committed
        self._check_open("commit")
        if self._id is not None:
            try:
                self._record(self._id)
            except BaseException as error:
                self._abort_after(error)
                if isinstance(error, ConnectionLost | TimedOut) and not self._outcome_unknown:
                    raise TxnConflict(
                        f"The Pulsar transaction {self._id.text} was not committed, because the broker was lost before: "
                        f"{error.message}",
                        advice="Nothing of it is visible, and it ends at the latest by its timeout. Run it again.",
                    ) from error
                raise
            try:
                self._client.end(self._id, commit=True)
            except TransactionEnded as error:
                self._ended = True
                self._close()
                if self._outcome_unknown and error.code == TRANSACTION_NOT_FOUND:
                    raise OutcomeUnknown(
                        f"It is unknown whether the Pulsar transaction {self._id.text} is committed: the broker has forgotten it.",
                        advice="Look for its rows before you run it again.",
                    ) from error
                raise TxnConflict(
                    f"The Pulsar transaction {self._id.text} was aborted, by its timeout of {self._timeout_ms} ms: {error.message}",
                    advice="Nothing of it is visible. Run it again, with a longer timeout.",
                ) from error
            except (ConnectionLost, TimedOut) as error:
                self._outcome_unknown = True
                raise OutcomeUnknown(
                    f"It is unknown whether the Pulsar transaction {self._id.text} is committed: {error.message}",
                    advice="Call commit() again: it asks the broker, and commits at most once.",
                ) from error
        self._ended = True
        self._committed = Committed(self.id, None, self._rows, self._bytes)
        self._close()
        return self._committed

    def _record(self, txn: TxnId) -> None:
        """Record where the rows are, so that Spark's reads see all of a topic's rows or none. A topic to which Spark has never
        written has no log for such records. In this case the transaction's rows become visible in each segment by itself, and a
        read may return a part of them.
        """
        for topic, places in self._places.items():
            try:
                log = log_segment(self._client, topic)
            except TopicMissing:
                continue
            record_sent(self._client, log, Sent(txn, places))

    def abort(self) -> None:
        """Abort the transaction. If the transaction has ended, this call changes nothing. If it raises an error of the broker, the
        transaction ends by its timeout.
        """
        if self._ended:
            return
        self._ended = True
        self._close()
        if self._id is not None:
            self._client.end(self._id, commit=False)

    def _abort_after(self, error: BaseException) -> None:
        """Abort the transaction, unless it has ended. If the abort shows how the transaction has ended, add this to `error` as a
        note.
        """
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


def _key_column(batch: pa.RecordBatch, column: str) -> pa.Array:
    """Return the column with the key of each row. Raises SchemaError."""
    if column not in batch.schema.names:
        raise SchemaError(
            f"There is no column {column!r} for the key.", advice=f"The columns are: {', '.join(batch.schema.names)}."
        )
    found = batch.column(column)
    kind = found.type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)):
        raise SchemaError(f"The column {column!r} has the type {kind}, which is no key.", advice="Give text, bytes or integers.")
    return found
