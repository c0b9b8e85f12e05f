"""What all value formats share: the interface `Values`, and the format of plain bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa

from ledgers.arrow import conform
from ledgers.errors import SchemaError

VALUE: Final = "value"
"""The column of a topic whose values are not records."""

Bytes = Sequence[bytes | None]
"""The values or the keys of messages. None: a null value, or no key."""
NameRow = Callable[[int], str]
"""Returns the name of a row for errors, by its index."""


def numbered(row: int) -> str:
    """Return the name of a row about which only its index is known."""
    return f"The message {row} (from 0)"


class Values(ABC):
    """The value format of one topic. It converts Arrow columns into the bytes of values, and back.

    `columns`: the columns, as Spark expects them. `schema`: the `Schema` that a producer registers; None: no schema. `takes_keys`:
    whether a part of each row is the key of its message. `decode` then needs the keys as well, and `keys_of` returns them.

    A `Values` cannot be sent to another process. Send `schema.SerializeToString()`, and call `codec` there.
    """

    columns: pa.Schema
    schema: Any | None
    takes_keys: bool = False

    @abstractmethod
    def decode(self, values: Bytes, keys: Bytes | None = None, where: NameRow = numbered) -> pa.RecordBatch:
        """Return the rows. A null value gives a row of nulls. Raises ValueFormatError, which names the row (by `where`) and the
        field, for a value that does not fit.
        """

    @abstractmethod
    def encode(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None]:
        """Return the value of each row. Raises SchemaError for columns that do not fit, ValueFormatError for a value that does not
        fit.
        """

    def keys_of(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None] | None:
        """Return the key that is in each row, or None if the rows of this format have no keys (`takes_keys`)."""
        return None

    @abstractmethod
    def of_version(self, written: Any | None, name: str) -> Values:
        """Return the format that reads values of another version of the schema into these columns. `written`: the schema of that
        version. `name`: the name of that version in errors. Raises SchemaError if its values cannot be read into these columns.
        """


def conformed(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly these columns. Raises SchemaError."""
    return conform(batch, columns)


def refuse_version(name: str, problem: str) -> SchemaError:
    return SchemaError(f"{name} cannot be read: {problem}.", advice="Read the topic with valueFormat=binary.")


class BytesValues(Values):
    """Values as they are, in one binary column."""

    schema = None
    columns = pa.schema([(VALUE, pa.binary())])

    def decode(self, values: Bytes, keys: Bytes | None = None, where: NameRow = numbered) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=self.columns)

    def encode(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None]:
        found: list[bytes | None] = conformed(batch, self.columns).column(0).to_pylist()
        return found

    def of_version(self, written: Any | None, name: str) -> Values:
        return self
