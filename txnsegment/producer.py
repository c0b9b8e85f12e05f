"""`Producer`: writes rows of a plain Python program into one topic, transaction by transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, TracebackType
from typing import Any, Self

from metadata.common.errors import (
    OptionError,
    OutcomeUnknown,
    ProducerFull,
    SchemaError,
    StoreError,
    TransactionUnfinished,
    TxnSegmentError,
)
from metadata.write.write_set import Committed
from txnsegment.batches import Batches, rows_given
from txnsegment.transaction import Transaction, TransactionAborted
from txnsegment.values import WrittenValues

MAX_WAITING = 1_000_000
"""Default limit for the number of rows that wait in a producer."""


class Producer:
    """Writes rows into one topic. Made by `cluster.producer(topic)`; for one thread.

        with cluster.producer("orders") as producer:
            producer.send({"id": 1, "price": 9.5})
            producer.send({"id": 2, "price": 3.0})
            producer.flush()

    Rows wait in memory, at most `max_waiting` of them, until `flush` commits them as one transaction. The end of the `with` block
    flushes. If the block raises, the waiting rows are dropped. If a `flush` raises, its rows still wait. Then call `flush` to try
    again, or `discard` to drop the rows.

    To write several topics in one transaction, or to acknowledge with it, pass a transaction (`cluster.begin()`) to `write`.

    A `plain` producer writes to a marker-based topic (`persistent://`) without a transaction. Readers see the rows at once, and a
    `flush` after an OutcomeUnknown may write them twice.

    With `value_format="avro"` each row is Avro bytes, encoded by the topic's schema, and batches have the one column `value`.
    """

    def __init__(
        self,
        begin: Callable[[], Transaction],
        topic: str,
        values: WrittenValues | None = None,
        *,
        plain: bool = False,
        max_waiting: int = MAX_WAITING,
        options: Mapping[str, Any] = MappingProxyType({}),
        new: bool = False,
    ) -> None:
        """`options`: arguments of each `Transaction.append`. `new`:
        whether the topic did not exist when the producer was made. Then the first rows create it. After its first commit a producer
        does not create the topic again, if somebody deletes it.
        """
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 1:
            raise OptionError(
                f"max_waiting={max_waiting!r} is not a whole number from 1.", advice="Give a number of rows, or leave it out."
            )
        self._begin, self._topic, self._values, self._plain, self._most = begin, topic, values, plain, max_waiting
        self._options, self._new = options, new
        self._waiting: list[Any] = []
        self._tried: Transaction | None = None
        """The transaction of the first `_staged` waiting rows, if its commit raised and may be tried again."""
        self._staged = 0
        self._unknown = False
        """Whether `_tried` may have committed. If so, its rows are not staged again, because they could be written twice."""

    def send(self, row: Mapping[str, Any] | bytes) -> None:
        """Add a row to the next `flush`. If this raises, the row is not added.

        `row`: values by column name, or Avro bytes with `value_format="avro"`. Raises SchemaError (the row has no columns, or
        is of the wrong kind), ValueFormatError (the bytes are not Avro of the topic's schema), ProducerFull (`max_waiting`
        rows wait already).
        """
        if len(self._waiting) >= self._most:
            raise ProducerFull(
                f"{len(self._waiting)} rows wait in the producer of {self._topic}, which keeps no more: the new row was not taken.",
                advice="flush() commits the waiting rows; if that fails, discard() drops and returns them. "
                "(cluster.producer(max_waiting=) sets how many rows may wait.)",
            )
        if self._values is not None:
            if not isinstance(row, bytes):
                raise SchemaError(
                    f'With value_format="avro" a row is bytes, not {type(row).__name__}.',
                    advice="Give bytes, or leave value_format out.",
                )
            self._values.rows([row])
            self._waiting.append(row)
            return
        if isinstance(row, bytes):
            raise SchemaError(
                "A row is given by its columns, not as bytes.",
                advice='Give a dict, or make the producer with value_format="avro".',
            )
        if not row:
            raise SchemaError("A row without columns cannot be written.", advice="Give at least one column; its value may be None.")
        self._waiting.append(dict(row))

    def flush(self) -> Committed | None:
        """Commit all waiting rows, in order, and return the outcome; None if no row waits.

        If `flush` raises, the rows still wait. Another `flush` first finds out whether the failed commit took effect, so it writes
        no row twice (except in a plain producer). If that commit can never take effect, because the topic was deleted, sealed or
        changed, or because the transaction was aborted, the rows are staged again for the topic that has the name now. Rows that
        were sent after the failed flush are committed in a second transaction, whose outcome is returned.

        Raises the errors of `Transaction.append` and `Transaction.commit`. The advice of the error says how many rows wait.
        """
        committed = None
        with self._saying_what_is_kept():
            while self._tried is not None or self._waiting:
                committed = self._commit()
        return committed

    def _commit(self) -> Committed:
        """Commit one transaction. If an earlier commit raised, commit its transaction again. Otherwise commit a new transaction
        with all waiting rows.
        """
        if self._tried is None:
            txn, given = self._begin(), list(self._waiting)
            self._append(txn, given if self._values is None else self._values.rows(given))
            self._tried, self._staged, self._unknown = txn, len(given), False
        try:
            committed = self._tried.commit()
        except BaseException as error:
            if isinstance(error, OutcomeUnknown | TransactionUnfinished) or not isinstance(error, TxnSegmentError):
                self._unknown = True
            elif isinstance(error, TransactionAborted) or (not isinstance(error, StoreError) and not self._unknown):
                # the transaction can never commit, so the next flush stages the rows again, for the topic as it is then
                self._tried = None
            raise
        del self._waiting[: self._staged]
        self._tried, self._new = None, False
        return committed

    def _append(self, txn: Transaction, rows: Batches) -> None:
        txn.append(self._topic, rows, **self._options, auto_create=self._new)

    def discard(self) -> list[Any]:
        """Drop the waiting rows, and return them. After an OutcomeUnknown they may have been committed nevertheless."""
        given, self._waiting, self._tried = self._waiting, [], None
        return given

    @contextmanager
    def _saying_what_is_kept(self) -> Iterator[None]:
        try:
            yield
        except TxnSegmentError as error:
            error.advice = (
                f"{error.advice} The producer of {self._topic} keeps the {len(self._waiting)} rows that wait: flush() tries again, "
                "discard() drops and returns them."
            ).lstrip()
            raise

    def write(self, batches: Batches, *, txn: Transaction | None = None) -> Committed | None:
        """Without `txn`, flush the waiting rows, then commit the batches in a transaction of their own and return its outcome. With
        `txn`, only stage the batches in that transaction, flush nothing, and return None. The caller commits `txn` later.

        Raises the errors of `flush`, `Transaction.append` and `Transaction.commit`.
        """
        rows = batches if self._values is None else self._values.batches(rows_given(batches).batches)
        if txn is not None:
            if self._plain:
                raise OptionError("A plain producer cannot write in a transaction.", advice="Make the producer without plain=True.")
            self._append(txn, rows)
            return None
        self.flush()
        own = self._begin()
        self._append(own, rows)
        committed = own.commit()
        self._new = False
        return committed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.flush()
