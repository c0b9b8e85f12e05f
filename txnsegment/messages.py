"""The results of a `Consumer`: `Message` (one row), `Batch` (rows of one entry), and `Ahead` (a batch that was read ahead)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from metadata.common.errors import ValueFormatError
from metadata.records.row_ranges import Row, Span


@dataclass(frozen=True)
class Message:
    """One committed row.

    `id`: `ledger:entry:index`, unique within its segment. `value`: the row by column name. `publish_ms`: its publish time, in ms
    since 1970. `txn`: the id of the transaction that wrote it; None for a plain message.
    """

    topic: str
    segment: str
    id: str
    value: dict[str, Any]
    publish_ms: int
    txn: str | None
    span: Span = field(repr=False)
    """The range that an acknowledgement of the row covers: the row itself and the empty positions before it."""


@dataclass(frozen=True)
class Batch:
    """Committed rows of one entry as Arrow, in order. `rows` has no metadata columns. `index`: the index of the first row within
    the entry. `ids`: the message id of each row.
    """

    topic: str
    segment: str
    ledger: int
    entry: int
    index: int
    rows: pa.RecordBatch
    publish_ms: int
    txn: str | None
    span: Span = field(repr=False)

    @property
    def ids(self) -> list[str]:
        return [f"{self.ledger}:{self.entry}:{self.index + i}" for i in range(self.rows.num_rows)]

    def messages(self) -> Iterator[Message]:
        """Yield the rows one by one. Raises ValueFormatError at a row with a value that Python cannot represent."""
        values = self.values()
        for i in range(self.rows.num_rows):
            yield self.message(i, self.value(i) if values is None else values[i])

    def values(self) -> list[dict[str, Any]] | None:
        """Return all rows as Python values; None if Python cannot represent a value of one of them."""
        try:
            found: list[dict[str, Any]] = self.rows.to_pylist()
        except (ValueError, OverflowError):
            return None
        return found

    def value(self, i: int) -> dict[str, Any]:
        """Return row `i` (from 0) as Python values. Raises ValueFormatError if Python cannot represent one of them."""
        try:
            found: dict[str, Any] = self.rows.slice(i, 1).to_pylist()[0]
        except (ValueError, OverflowError) as error:
            raise ValueFormatError(
                f"The row {self.ids[i]} of {self.segment} has a value that Python cannot represent: {error}.",
                advice="Consumer.batches() gives the row as Arrow, with the rows after it; columns= can leave the column out.",
            ) from error
        return found

    def message(self, i: int, value: dict[str, Any]) -> Message:
        """Return the message of row `i` (from 0), with `value` as its value."""
        first = self.span[0] if i == 0 else Row(self.ledger, self.entry, self.index + i)
        end = self.span[1] if i == self.rows.num_rows - 1 else Row(self.ledger, self.entry, self.index + i + 1)
        name = f"{self.ledger}:{self.entry}:{self.index + i}"
        return Message(self.topic, self.segment, name, value, self.publish_ms, self.txn, (first, end))

    def after(self, count: int) -> Batch:
        """Return the batch without its first `count` rows."""
        if count == 0:
            return self
        first = Row(self.ledger, self.entry, self.index + count)
        return replace(self, index=self.index + count, rows=self.rows.slice(count), span=(first, self.span[1]))


class Ahead:
    """A batch that the consumer read ahead. `given`: the number of its rows that are delivered."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.given = batch, 0
        self._values: list[dict[str, Any]] | None = None
        self._by_row = False
        """Whether rows are converted one by one, because Python cannot represent one of them."""

    @property
    def left(self) -> bool:
        """Whether rows of the batch are not delivered yet."""
        return bool(self.given < self.batch.rows.num_rows)

    def message(self) -> Message:
        """Deliver the next row. Raises ValueFormatError if Python cannot represent one of its values. The row then counts as not
        delivered, and `rest` still returns it.
        """
        if self._values is None and not self._by_row:
            self._values = self.batch.values()
            self._by_row = self._values is None
        value = self.batch.value(self.given) if self._values is None else self._values[self.given]
        self.given += 1
        return self.batch.message(self.given - 1, value)

    def rest(self) -> Batch:
        """Deliver all remaining rows as one batch."""
        found = self.batch.after(self.given)
        self.given = self.batch.rows.num_rows
        return found
