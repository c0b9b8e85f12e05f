"""What a `Consumer` hands out: rows one by one, or batches of them; and the batch that it has read ahead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from metadata.common.errors import ValueFormatError
from metadata.records.row_ranges import Row, Span


@dataclass(frozen=True)
class Message:
    """One committed row. `id`: `ledger:entry:index`, unique within its segment; `value`: by column; `txn`: who wrote it."""

    topic: str
    segment: str
    id: str
    value: dict[str, Any]
    publish_ms: int
    txn: str | None
    span: Span = field(repr=False)
    """What acknowledging it covers: the row, and the empty space behind the row before."""


@dataclass(frozen=True)
class Batch:
    """Committed rows of one entry as Arrow, in order. `rows` has no metadata columns; `ids` gives their message ids."""

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
        """Raises ValueFormatError for a row with a value that Python cannot hold."""
        values = self.values()
        for i in range(self.rows.num_rows):
            yield self.message(i, self.value(i) if values is None else values[i])

    def values(self) -> list[dict[str, Any]] | None:
        """Of all rows; None: Python cannot hold one of them."""
        try:
            found: list[dict[str, Any]] = self.rows.to_pylist()
        except (ValueError, OverflowError):
            return None
        return found

    def value(self, i: int) -> dict[str, Any]:
        """Of row `i`. Raises ValueFormatError."""
        try:
            found: dict[str, Any] = self.rows.slice(i, 1).to_pylist()[0]
        except (ValueError, OverflowError) as error:
            raise ValueFormatError(
                f"The row {self.ids[i]} of {self.segment} has a value that Python cannot hold: {error}.",
                advice="Consumer.batches() gives it as Arrow, with the rows behind it; columns= leaves its column out.",
            ) from error
        return found

    def message(self, i: int, value: dict[str, Any]) -> Message:
        """Its row `i` (from 0), whose value is given."""
        first = self.span[0] if i == 0 else Row(self.ledger, self.entry, self.index + i)
        end = self.span[1] if i == self.rows.num_rows - 1 else Row(self.ledger, self.entry, self.index + i + 1)
        name = f"{self.ledger}:{self.entry}:{self.index + i}"
        return Message(self.topic, self.segment, name, value, self.publish_ms, self.txn, (first, end))

    def after(self, count: int) -> Batch:
        """Its rows but for the first `count`."""
        if count == 0:
            return self
        first = Row(self.ledger, self.entry, self.index + count)
        return replace(self, index=self.index + count, rows=self.rows.slice(count), span=(first, self.span[1]))


class Ahead:
    """A batch that was read ahead. Of its rows the first `given` were handed out."""

    def __init__(self, batch: Batch) -> None:
        self.batch, self.given = batch, 0
        self._values: list[dict[str, Any]] | None = None
        self._by_row = False
        """Whether Python cannot hold one of its rows."""

    @property
    def left(self) -> bool:
        return bool(self.given < self.batch.rows.num_rows)

    def message(self) -> Message:
        """The row that comes next. Raises ValueFormatError: then it comes next still, by `rest`."""
        if self._values is None and not self._by_row:
            self._values = self.batch.values()
            self._by_row = self._values is None
        value = self.batch.value(self.given) if self._values is None else self._values[self.given]
        self.given += 1
        return self.batch.message(self.given - 1, value)

    def rest(self) -> Batch:
        found = self.batch.after(self.given)
        self.given = self.batch.rows.num_rows
        return found
