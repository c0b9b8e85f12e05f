"""Rows as text, JSON lines or CSV, for a topic: `txnsegment topics write`. They get the types of the topic's columns. The first
rows decide the types of a topic that has none.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as T

from ledgers.arrow import arrow_schema
from ledgers.json_text import MAX_BYTES, read_json
from metadata.common.errors import SchemaError
from txnsegment.batches import table_of_rows
from txnsegment.json_values import Fraction, parsed


class Line(NamedTuple):
    """A row, and the number of its line in the input."""

    number: int
    row: Mapping[str, Any]


def json_lines(lines: Iterable[bytes]) -> Iterator[Line]:
    """Yield the rows of JSON lines. Empty lines are left out. Raises SchemaError, which names the line."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = read_json(line.decode("utf-8"), fraction=Fraction)
        except ValueError as error:
            raise _bad(number, f"it is no JSON ({error})") from error
        if not isinstance(row, dict):
            raise _bad(number, f"it is no JSON object but {type(row).__name__}")
        yield Line(number, row)


def csv_lines(lines: Iterable[bytes]) -> Iterator[Line]:
    """Yield the rows of CSV. The first line has the names of the columns. An empty field is null. Raises SchemaError, which names
    the line.
    """
    csv.field_size_limit(MAX_BYTES)  # as large as a row of JSON; by default a field has at most 128 KiB
    reader = csv.reader(_text(lines), strict=True)
    try:
        names = next(reader, [])
        if len(set(names)) != len(names):
            raise _bad(1, "it names a column twice")
        for fields in reader:
            if len(fields) != len(names):
                raise _bad(reader.line_num, f"it has {len(fields)} fields, and the first line names {len(names)} columns")
            yield Line(reader.line_num, {name: field or None for name, field in zip(names, fields, strict=True)})
    except csv.Error as error:
        raise _bad(reader.line_num, f"it is no CSV ({error})") from error


def _text(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except ValueError as error:
            raise _bad(number, f"it is not UTF-8 ({error})") from error


def batches(lines: Iterator[Line], schema: T.StructType | None, size: int, *, text: bool) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of `size` rows. `schema`: the columns of the topic; None: the first batch decides them. `text`:
    whether all values are texts, as in CSV. Raises SchemaError, which names the line and the column.
    """
    while found := list(islice(lines, size)):
        if schema is None:
            schema, batch = _first(found, text=text)
        else:
            batch = _batch(found, schema, text=text)
        yield batch


def _first(found: list[Line], *, text: bool) -> tuple[T.StructType, pa.RecordBatch]:
    """Return the columns of the first rows of a topic, and these rows."""
    from txnsegment.schemas import from_arrow

    rows = [line.row for line in found]
    if text:
        kinds = {name: _kind([row[name] for row in rows if row[name] is not None]) for name in rows[0]}
        rows = [{name: _converted(value, kinds[name]) for name, value in row.items()} for row in rows]
    try:
        table = table_of_rows(rows).combine_chunks()
    except SchemaError as error:
        raise SchemaError(f"{_where(found)} {error.message}", advice=error.advice) from error
    schema = from_arrow(table.schema)
    if void := [field.name for field in schema if isinstance(field.dataType, T.NullType)]:
        raise SchemaError(
            f"{_where(found)} The column {void[0]} has no value, so its type is not known.",
            advice="Create the topic with a schema: txnsegment topics create TOPIC --schema DDL.",
        )
    return schema, table.to_batches()[0]


def _kind(values: list[str]) -> Callable[[str], Any]:
    """Return the function that converts the texts of a column of a new topic: to whole numbers, numbers or truth values, or not."""
    kinds: tuple[Callable[[str], Any], ...] = (_whole, _number, _truth)
    for convert in kinds if values else ():
        with suppress(ValueError):
            for value in values:
                convert(value)
            return convert
    return str


def _converted(value: str | None, convert: Callable[[str], Any]) -> Any:
    return None if value is None else convert(value)


def _whole(text: str) -> int:
    found = int(text)
    if str(found) != text:  # 007 and 1_000 are texts
        raise ValueError(f"{text!r} is no whole number")
    return found


_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|nan|-?inf", re.ASCII)


def _number(text: str) -> float:
    if not _NUMBER.fullmatch(text):  # 007 and 1_000.5 are texts
        raise ValueError(f"{text!r:.100} is no number")
    return float(text)


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r:.100} is neither true nor false")
    return text == "true"


def _batch(found: list[Line], schema: T.StructType, *, text: bool) -> pa.RecordBatch:
    known = set(schema.fieldNames())
    for line in found:
        if strange := [name for name in line.row if name not in known]:
            raise _bad(
                line.number,
                f"the topic has no column {strange[0]}",
                "Leave it out, or give the topic the column first (txnsegment topics schema TOPIC --set FILE).",
            )
    types = arrow_schema(schema)
    columns = [_column(found, field, types.field(field.name).type, text=text) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=types)


def _column(found: list[Line], field: T.StructField, kind: pa.DataType, *, text: bool) -> pa.Array:
    values = []
    for line in found:
        value = line.row.get(field.name)
        try:
            values.append(parsed(_untexted(value, field.dataType) if text and value is not None else value, field.dataType))
            if isinstance(field.dataType, T.IntegralType | T.DecimalType | T.TimestampType | T.TimestampNTZType):
                pa.scalar(values[-1], kind)  # whether the value fits
        except (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException) as error:
            problem = f"the value of the column {field.name} is no {field.dataType.simpleString()} ({error})"
            raise _bad(line.number, problem) from error
    return pa.array(values, kind)


def _untexted(value: str, kind: T.DataType) -> Any:
    """Return the JSON form of a field of CSV."""
    match kind:
        case T.BooleanType():
            return _truth(value)
        case T.FloatType() | T.DoubleType():
            return float(value)
        case T.StructType() | T.ArrayType() | T.MapType() | T.VariantType():
            return json.loads(value)
    return int(value) if isinstance(kind, T.IntegralType) else value


def _where(found: list[Line]) -> str:
    return f"Lines {found[0].number} to {found[-1].number}:"


def _bad(number: int, problem: str, advice: str = "Correct the line. No row of its transaction was written.") -> SchemaError:
    return SchemaError(f"Line {number} cannot be written: {problem}.", advice=advice)
