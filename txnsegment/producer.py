"""`Producer`: rows of a plain Python program into one topic, transaction by transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

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
from txnsegment.transaction import Batches, Transaction, batches_of
from txnsegment.values import WrittenValues

MAX_WAITING = 1_000_000
"""Rows that a producer keeps at most."""


class Producer:
    """Made by `cluster.producer(topic)`; for one thread.

        with cluster.producer("orders") as producer:
            producer.send({"id": 1, "price": 9.5})
            producer.send({"id": 2, "price": 3.0})
            producer.flush()

    Rows wait in memory, `max_waiting` at most, until `flush` commits them, as one transaction; leaving the block flushes, unless it
    raises: then they are forgotten. A flush that raises keeps the rows: `flush` tries them again, in the topic of this name as it
    is then, and `discard` gives them up.

    For several topics, or together with acknowledgements, give a transaction (`cluster.begin()`) to `write`.

    A `plain` one writes to a `persistent://` topic without a transaction: rows are seen at once, and after an OutcomeUnknown
    another `flush` may double them.

    With `value_format="avro"` rows are bytes (and batches have the one column `value`), by the schema of the topic.
    """

    def __init__(
        self,
        begin: Callable[[], Transaction],
        topic: str,
        values: WrittenValues | None = None,
        *,
        plain: bool = False,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        if isinstance(max_waiting, bool) or not isinstance(max_waiting, int) or max_waiting < 1:
            raise OptionError(f"max_waiting={max_waiting!r} is not a number of rows from 1.", advice="Leave it out, or give one.")
        self._begin, self._topic, self._values, self._plain, self._most = begin, topic, values, plain, max_waiting
        self._waiting: list[Any] = []
        self._tried: Transaction | None = None
        """With the first `_staged` rows that wait; its commit raised, and may be tried again as it is."""
        self._staged = 0
        self._unknown = False
        """Whether it may have committed. Then the rows are never staged anew: they would be there twice."""

    def send(self, row: Mapping[str, Any] | bytes) -> None:
        """Keep a row for the next `flush`. It is not kept if this raises: SchemaError (no columns), ValueFormatError (bytes that
        are not Avro of the schema), ProducerFull (as many rows wait as may).
        """
        if len(self._waiting) >= self._most:
            raise ProducerFull(
                f"{len(self._waiting)} rows wait in the producer of {self._topic}, which keeps no more: this one was not taken.",
                advice="flush() commits them; if that fails, discard() gives them up and returns them. "
                "(cluster.producer(max_waiting=) sets how many may wait.)",
            )
        if self._values is not None:
            if not isinstance(row, bytes):
                raise SchemaError(f"A value is bytes, not {type(row).__name__}.", advice="Or leave value_format out.")
            self._values.rows([row])
            self._waiting.append(row)
            return
        if isinstance(row, bytes):
            raise SchemaError("A row is given by its columns, not bytes.", advice='Or make the producer with value_format="avro".')
        if not row:
            raise SchemaError("A row without columns cannot be written.", advice="Give at least one column; its value may be None.")
        self._waiting.append(dict(row))

    def flush(self) -> Committed | None:
        """Commit all that waits, in order; None if nothing does. Calling `flush` again after an error is safe and never doubles a
        row (but for a plain one): nothing was committed, or (OutcomeUnknown) it is asked what became of the first try. What was
        staged for a topic that was deleted, sealed or changed since is staged anew for the topic of this name as it is then. Rows
        that were sent after a flush that raised follow in a transaction of their own; then what it returns is of that one.

        Raises what `Transaction.append` and `Transaction.commit` do, and says how many rows are kept.
        """
        committed = None
        with self._saying_what_is_kept():
            while self._tried is not None or self._waiting:
                committed = self._commit()
        return committed

    def _commit(self) -> Committed:
        """One transaction: what was tried before, as it was staged then; else all that waits."""
        if self._tried is None:
            txn, given = self._begin(), list(self._waiting)
            txn.append(self._topic, _table(given) if self._values is None else self._values.rows(given))
            self._tried, self._staged, self._unknown = txn, len(given), False
        try:
            committed = self._tried.commit()
        except BaseException as error:
            if isinstance(error, OutcomeUnknown | TransactionUnfinished) or not isinstance(error, TxnSegmentError):
                self._unknown = True
            elif not isinstance(error, StoreError) and not self._unknown:
                self._tried = None  # it can never commit: the next flush looks at the topic as it is then
            raise
        del self._waiting[: self._staged]
        self._tried = None
        return committed

    def discard(self) -> list[Any]:
        """Give up the rows that wait, and return them. After an OutcomeUnknown those of that flush may be committed."""
        given, self._waiting, self._tried = self._waiting, [], None
        return given

    @contextmanager
    def _saying_what_is_kept(self) -> Iterator[None]:
        try:
            yield
        except TxnSegmentError as error:
            error.advice = (
                f"{error.advice} The producer of {self._topic} keeps the {len(self._waiting)} rows that wait: flush() tries them "
                "again, discard() gives them up and returns them."
            ).lstrip()
            raise

    def write(self, batches: Batches, *, txn: Transaction | None = None) -> Committed | None:
        """Write Arrow batches at once, as a transaction of their own; or stage them in `txn`, which commits them (then None)."""
        rows = batches if self._values is None else self._values.batches(batches_of(batches))
        if txn is not None:
            if self._plain:
                raise OptionError("A plain producer writes in no transaction.", advice="Make one without plain=True.")
            txn.append(self._topic, rows)
            return None
        self.flush()
        own = self._begin()
        own.append(self._topic, rows)
        return own.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.flush()


def _table(given: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows as columns: all that any row has, in the order in which they come. Raises SchemaError."""
    names = dict.fromkeys(name for row in given for name in row)
    columns = {}
    for name in names:
        try:
            columns[name] = pa.array([row.get(name) for row in given])
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise SchemaError(
                f"The values of the column {name!r} that wait in a producer are not of one type: {error}",
                advice="Nothing of them was written.",
            ) from error
    return pa.table(columns)
