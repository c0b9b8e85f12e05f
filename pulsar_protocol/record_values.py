"""Values of record schemas (AVRO and JSON): the fields of the record are the columns. Pure.

Values of an older version of an AVRO schema are read by Avro's schema resolution: fields that are gone are dropped, new fields get
their defaults, and narrower types become wider ones. JSON values name their fields, so the reader's schema reads all versions.
"""

from __future__ import annotations

import contextlib
import json
from abc import abstractmethod
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa

from ledgers.arrow import conform
from ledgers.avro.arrays import Unfit, array, logical, stored, values
from ledgers.avro.compatibility import problems
from ledgers.avro.parsing import parse
from ledgers.avro.rows import Codec
from ledgers.avro.schema import Record, dump
from ledgers.errors import SchemaError, ValueFormatError
from ledgers.json_text import read_json
from pulsar_protocol import avro_columns
from pulsar_protocol.json_text import Fraction, needs_fractions, reader, writer
from pulsar_protocol.messages import KeyValue, Schema
from pulsar_protocol.value_types import Bytes, NameRow, Values, conformed, numbered, refuse_version

AVRO: Final = 4
JSON: Final = 2
_JAVA: Final = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
"""The properties that Pulsar's Java client gives to a schema that it makes from a class."""
_BYTES: Final = "Read the topic with valueFormat=binary to see the bytes."


def record_of(schema: Any, topic: str) -> Record:
    """Return the record of an AVRO or JSON schema. Raises SchemaError for a schema whose values cannot be columns."""
    try:
        return parse(schema.schema_data.decode())
    except UnicodeDecodeError as error:
        raise SchemaError(f"The schema of {topic} is no text: {error}.", advice=_BYTES) from error
    except SchemaError as error:
        raise SchemaError(f"The schema of {topic} cannot be columns: {error.message}", advice=_BYTES) from error


def schema_of(record: Record, kind: int) -> Any:
    """Return the schema of a record as Pulsar's Java client registers it."""
    data = json.dumps(dump(record), separators=(",", ":")).encode()
    properties = [KeyValue(key=key, value=value) for key, value in _JAVA.items()]
    return Schema(name="", type=kind, schema_data=data, properties=properties)


class RecordValues(Values):
    """The code that AVRO and JSON values share. A null value is read as a row of nulls. A row of nulls is written as a record, not
    as a null value.
    """

    kind: int

    def __init__(self, record: Record, schema: Any | None = None) -> None:
        self.record, self._codec = record, Codec(record)
        self.schema = schema_of(record, self.kind) if schema is None else schema
        self.columns = self._codec.arrow

    def decode(self, values: Bytes, keys: Bytes | None = None, where: NameRow = numbered) -> pa.RecordBatch:
        if None not in values:
            return self._decode(values, where)
        there = [row for row, value in enumerate(values) if value is not None]
        found = self._decode([value for value in values if value is not None], lambda row: where(there[row]))
        places: list[int | None] = [None] * len(values)
        for place, row in enumerate(there):
            places[row] = place
        return found.take(pa.array(places, pa.int64()))

    @abstractmethod
    def _decode(self, values: Bytes, where: NameRow) -> pa.RecordBatch:
        """Return the rows of these values, none of which is null."""


class AvroValues(RecordValues):
    """Values in Avro binary, each a record without a header. `written`: the schema by which the values were written. None means the
    schema `record`, which has the columns.
    """

    kind = AVRO

    def __init__(self, record: Record, schema: Any | None = None, written: Record | None = None) -> None:
        super().__init__(record, schema)
        self._written = written
        self._resolving = None if written is None else _Resolving(written, record, self.columns)
        self._at_once = avro_columns.supported(record)

    def _decode(self, values: Bytes, where: NameRow) -> pa.RecordBatch:
        if self._resolving is not None:
            return self._resolving.decode(values, where)
        if self._at_once:
            with contextlib.suppress(avro_columns.Unusual):  # the code below then reads value by value, and names a wrong value
                return avro_columns.decode([value or b"" for value in values], self.record, self.columns)
        try:
            return self._codec.decode(pa.array(values, pa.binary()), where)
        except ValueFormatError as error:
            raise ValueFormatError(error.message, advice=_BYTES) from error

    def encode(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None]:
        try:
            found: list[bytes | None] = self._codec.encode(conformed(batch, self.columns), where).to_pylist()
        except ValueFormatError as error:
            raise ValueFormatError(error.message, advice="Give values that the schema of the topic allows.") from error
        return found

    def of_version(self, written: Any | None, name: str) -> Values:
        if written is None or written.type != self.kind:
            raise refuse_version(name, "it is not of the type AVRO")
        older = record_of(written, name)
        if older == self.record:
            return self
        found = problems(self.record, older)
        if found:
            raise refuse_version(name, "; ".join(found[:20]))
        return AvroValues(self.record, self.schema, older)


class _Resolving:
    """Reads values of an older version of a schema into the columns of a newer one, by Avro's schema resolution. If the versions
    share fields, and each shared field has the same type in both, only whole columns are dropped and added. Otherwise fastavro
    resolves value by value.
    """

    def __init__(self, written: Record, read: Record, columns: pa.Schema) -> None:
        self._written, self._codec = AvroValues(written), Codec(read)
        self._record, self._columns = read, columns
        older = {field.name: field.type for field in written.fields}
        self._equal = all(older.get(field.name, field.type) == field.type for field in read.fields)
        self._shared = [field.name for field in read.fields if field.name in older]
        self._schemas = [fastavro.parse_schema(_without_logical_types(dump(one))) for one in (written, read)]

    def decode(self, values: Bytes, where: NameRow) -> pa.RecordBatch:
        rows = self._written.decode(values, None, where)  # raises for a value that is not one of the older schema
        if self._equal and self._shared:
            return conform(self._codec.filled(rows.select(self._shared)), self._columns)
        older, newer = self._schemas
        found: list[Any] = []
        for row, value in enumerate(values):
            try:
                found.append(fastavro.schemaless_reader(BytesIO(value or b""), older, newer))
            except ValueError as error:  # such as bytes that the newer schema reads as text
                raise ValueFormatError(
                    f"{where(row)} cannot be read by the newer schema {self._record.name}: {error}.", advice=_BYTES
                ) from error
        return rows_of(found, self._record, self._columns, where)


def _without_logical_types(found: Any) -> Any:
    """Return a schema in JSON form without logical types. fastavro then returns plain values."""
    if isinstance(found, dict):
        return {key: _without_logical_types(one) if key != "default" else one for key, one in found.items() if key != "logicalType"}
    return [_without_logical_types(one) for one in found] if isinstance(found, list) else found


class JsonValues(RecordValues):
    """Values that are JSON objects. Fields that the schema does not have are ignored. Missing ones get their defaults, or null."""

    kind = JSON

    def __init__(self, record: Record, schema: Any | None = None) -> None:
        super().__init__(record, schema)
        self._read, self._write = reader(record, ""), writer(record)
        self._fraction = Fraction if needs_fractions(record) else None

    def _decode(self, values: Bytes, where: NameRow) -> pa.RecordBatch:
        found = []
        for row, value in enumerate(values):
            try:
                one = self._read(read_json(value or b"", fraction=self._fraction))
                if one is None:
                    raise Unfit("it is null")
            except (Unfit, ValueError, RecursionError) as error:
                raise ValueFormatError(
                    f"{where(row)} is not JSON of the schema {self.record.name}: {error}.", advice=_BYTES
                ) from error
            found.append(one)
        return rows_of(found, self.record, self.columns, where)

    def encode(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None]:
        whole, fields = conformed(batch, self.columns), self.record.fields
        names = [field.name for field in fields]
        try:
            columns = [values(stored(whole.column(f.name), f.type, f.name), f.type, f.name) for f in fields]
            return [self._write(dict(zip(names, row, strict=True))).encode() for row in zip(*columns, strict=True)]
        except (Unfit, pa.ArrowException) as error:
            if whole.num_rows > 1:
                for row in range(whole.num_rows):
                    self.encode(whole.slice(row, 1), _at(where, row))
            raise ValueFormatError(
                f"{where(0)} cannot be written as JSON of the schema {self.record.name}: {error}.",
                advice="Give values that the schema of the topic allows.",
            ) from error

    def of_version(self, written: Any | None, name: str) -> Values:
        if written is None or written.type != self.kind:
            raise refuse_version(name, "it is not of the type JSON")
        return self


def rows_of(found: Sequence[dict[str, Any]], record: Record, columns: pa.Schema, where: NameRow) -> pa.RecordBatch:
    """Return rows from records of plain Avro values. Raises a ValueFormatError that names the row."""
    try:
        made = [logical(array([one[f.name] for one in found], f.type), f.type, f.name) for f in record.fields]
        return conform(pa.RecordBatch.from_arrays(made, [f.name for f in record.fields]), columns)
    except (Unfit, pa.ArrowException) as error:
        if len(found) > 1:
            for row in range(len(found)):
                rows_of(found[row : row + 1], record, columns, _at(where, row))
        raise ValueFormatError(f"{where(0)} has a value that its column cannot hold: {error}.", advice=_BYTES) from error


def _at(where: NameRow, row: int) -> Callable[[int], str]:
    return lambda _: where(row)
