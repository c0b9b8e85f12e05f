"""Conversion of rows in Avro binary, each without a header, to Arrow batches and back.

fastavro converts bytes and plain values. Arrow converts logical types (dates, timestamps, decimals) for whole columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema, conform
from ledgers.avro import strict
from ledgers.avro.arrays import Unfit, array, default, filled, logical, refuse_missing, refuse_nulls, stored, values
from ledgers.avro.columns import columns_of
from ledgers.avro.schema import Record, bare
from ledgers.errors import SchemaError, ValueFormatError

VALUE: Final = "value"
"""The only column of a batch whose rows are Avro binary."""

NameRow = Callable[[int], str]
"""Returns the name of a row for errors, by its index in the batch."""


class Codec:
    """An Avro schema prepared for encoding and decoding. It cannot be sent to another process: send the schema instead."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._bare = fastavro.parse_schema(bare(record, []))

    @cached_property
    def columns(self) -> StructType:
        return columns_of(self.record)

    @cached_property
    def arrow(self) -> pa.Schema:
        """Return the rows' Arrow schema, equal to that of a part with these columns."""
        return arrow_schema(self.columns)

    # --- bytes to rows --------------------------------------------------------------------------------------------

    def decode(self, given: pa.Array, name_row: NameRow) -> pa.RecordBatch:
        """Decode binary values into rows. Raises ValueFormatError that names the row: for a null, for bytes that are not exactly
        one value of the schema, and for values that a column cannot hold.
        """
        if given.null_count:
            row = pc.index(given.is_null(), True).as_py()
            raise ValueFormatError(
                f"{name_row(row)} has no value (null).", advice="Leave such rows out: each row must be a record."
            )
        given = given.cast(pa.binary())
        found = list(self._records(given, name_row))
        if not self._same(found, given):
            self._check(found, given, name_row)
        try:
            columns = [logical(array([row[f.name] for row in found], f.type), f.type, f.name) for f in self.record.fields]
            batch = pa.RecordBatch.from_arrays(columns, [f.name for f in self.record.fields])
            return conform(batch, self.arrow)
        except (Unfit, pa.ArrowException) as error:
            if len(given) == 1:
                raise ValueFormatError(f"{name_row(0)} has a value that its column cannot hold: {error}.") from error
            for row in range(len(given)):
                self.decode(given.slice(row, 1), lambda _, row=row: name_row(row))  # type: ignore[misc]
            raise ValueFormatError(f"{name_row(0)} and the {len(given) - 1} rows after it do not fit: {error}.") from error

    def _records(self, given: pa.Array, name_row: NameRow) -> Iterator[dict[str, Any]]:
        if not len(given):
            return
        lengths = pc.binary_length(given).to_pylist()
        data = _bytes_of(given)
        stream = BytesIO(data)
        read, schema, end = fastavro.schemaless_reader, self._bare, 0
        for row, length in enumerate(lengths):
            end += length
            record, problem = None, ""
            try:
                record = read(stream, schema, None)
            except Exception as error:  # fastavro raises many kinds of errors for invalid bytes
                problem = f"{type(error).__name__}: {error}"
            if not problem and stream.tell() != end:
                problem = f"by the schema the value ends {stream.tell() - end:+} bytes from its end"
            if record is None or problem:
                shown = bytes(data.slice(end - length, min(length, 32))) if length else b""
                raise self._not_avro(name_row(row), problem, length, shown)
            yield record

    def _same(self, records: Sequence[dict[str, Any]], given: pa.Array) -> bool:
        """Return whether encoding the records again gives the given bytes. If so, all values are valid. If not, they may still be
        valid, because Avro allows several encodings of a value. `_check` then decides.
        """
        write, schema, again = fastavro.schemaless_writer, self._bare, BytesIO()
        try:
            for record in records:
                write(again, schema, record)
        except Exception:  # fastavro decoded a value that it refuses to encode: the caller checks value by value
            return False
        return bool(pa.py_buffer(again.getvalue()).equals(_bytes_of(given)))

    def _check(self, records: Sequence[dict[str, Any]], given: pa.Array, name_row: NameRow) -> None:
        """Encode each record again. If the bytes differ from the given ones, check them value by value. Raises ValueFormatError."""
        for row, record in enumerate(records):
            one = given.slice(row, 1)
            if not self._same([record], one):
                data = one[0].as_py()
                try:
                    strict.check(self.record, data)
                except strict.NotAvro as error:
                    raise self._not_avro(name_row(row), str(error), len(data), data[:32]) from error

    def _not_avro(self, row: str, problem: str, length: int, begin: bytes) -> ValueFormatError:
        return ValueFormatError(
            f"{row} is not Avro of the schema {self.record.name}: {problem}. It has {length} bytes: "
            f"{begin.hex()}{'...' if length > 32 else ''}.",
            advice="If it was written with another version of the schema, set schemaVersion to it. A header of a schema "
            "registry (5 bytes for Confluent's) must be removed before.",
        )

    # --- rows to bytes --------------------------------------------------------------------------------------------

    def encode(self, batch: pa.RecordBatch, name_row: NameRow) -> pa.Array:
        """Encode each row as Avro binary. `batch` has the columns of `arrow`. Raises ValueFormatError that names row and column,
        for a null that the schema does not allow, for text that is not a symbol of an enum, and for binaries of another length than
        a fixed.

        Values of timestamp-millis are truncated to whole milliseconds.
        """
        try:
            columns = [values(stored(batch.column(f.name), f.type, f.name), f.type, f.name) for f in self.record.fields]
            names = [f.name for f in self.record.fields]
            stream, ends = BytesIO(), [0]
            write, schema = fastavro.schemaless_writer, self._bare
            for record in zip(*columns, strict=True):
                write(stream, schema, dict(zip(names, record, strict=True)))
                ends.append(stream.tell())
            offsets = pa.array(ends, pa.int32())
        except Exception as error:  # the errors that fastavro raises share no base class
            if batch.num_rows == 1:
                raise ValueFormatError(
                    f"{name_row(0)} cannot be written as Avro of the schema {self.record.name}: {error}.",
                    advice="Read it by its columns (without valueFormat), or with a schema version that allows it (schemaVersion).",
                ) from error
            for row in range(batch.num_rows):
                self.encode(batch.slice(row, 1), lambda _, row=row: name_row(row))  # type: ignore[misc]
            raise ValueFormatError(f"{name_row(0)} and the {batch.num_rows - 1} rows after it cannot be Avro: {error}.") from error
        return pa.Array.from_buffers(pa.binary(), batch.num_rows, [None, offsets.buffers()[1], pa.py_buffer(stream.getvalue())])

    def filled(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Add the default of every field that a part lacks, inside structs too. The rows of the part were written before the field
        existed, and Avro reads such rows with the default. `conform` fills fields without a default.
        """
        columns, names = list(batch.columns), list(batch.schema.names)
        for field in self.record.fields:
            if field.name in names:
                index = names.index(field.name)
                columns[index] = filled(columns[index], field.type, field.name)
            else:
                made = default(field, field.name, batch.num_rows)
                if made is not None:
                    columns.append(made)
                    names.append(field.name)
        return pa.RecordBatch.from_arrays(columns, names)

    def refuse_nulls(self, batch: pa.RecordBatch, topic: str) -> None:
        """Raise SchemaError for rows that could not be read as Avro later: the schema allows no null in a column, and the rows have
        a null there or lack the column.
        """
        advice = f"The Avro schema of {topic} requires a value: fill the column, or register a schema in which it may be null."
        for field in self.record.fields:
            try:
                if field.name in batch.schema.names:
                    refuse_nulls(batch.column(field.name), field.type, field.name)
                else:
                    refuse_missing(field, field.name, batch.num_rows)
            except Unfit as error:
                raise SchemaError(f"In a write to {topic} {error}.", advice=advice) from error


def _bytes_of(given: pa.BinaryArray) -> pa.Buffer:
    """Return the bytes of all values, concatenated, without a copy."""
    _, offsets, data = given.buffers()
    if not len(given) or data is None:
        return pa.py_buffer(b"")
    ends = pa.Array.from_buffers(pa.int32(), len(given) + 1, [None, offsets], offset=given.offset)
    return data.slice(ends[0].as_py(), ends[-1].as_py() - ends[0].as_py())
