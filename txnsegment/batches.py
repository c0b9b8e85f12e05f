"""The rows that a program gives to `append` and `Producer.write`, as Arrow batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from metadata.common.errors import SchemaError

Batches: TypeAlias = object
"""Rows: Arrow batches, a table or a reader; an iterable of batches and tables; a DataFrame of pandas or Polars, a relation of
DuckDB, or any other object with the Arrow C interface; or a list of dicts.
"""


class Given(NamedTuple):
    """Rows that a program gave. `columns`: the columns of the first batch, also if it has no rows; None: there is no batch.
    `batches`: the batches that have rows. They are read once, and one after the other.
    """

    columns: pa.Schema | None
    batches: Iterator[pa.RecordBatch]


def rows_given(given: Batches) -> Given:
    """Return the rows that a program gave. Raises SchemaError for anything that has no rows, and for rows that are not a table."""
    found = _batches(given)
    first = next(found, None)
    return Given(None if first is None else first.schema, (one for one in _then(first, found) if one.num_rows))


def _batches(given: Batches) -> Iterator[pa.RecordBatch]:
    """Yield all batches. A table without rows has one batch, which shows its columns."""
    if isinstance(given, pa.RecordBatch):
        yield given
    elif isinstance(given, pa.Table):
        yield from given.to_batches() or [
            pa.RecordBatch.from_arrays([pa.array([], f.type) for f in given.schema], schema=given.schema)
        ]
    elif _is_pandas(given):
        yield from _batches(_of_pandas(given))
    elif hasattr(given, "__arrow_c_stream__"):
        yield from _streamed(given)
    elif hasattr(given, "__arrow_c_array__"):
        yield pa.record_batch(given)
    elif isinstance(given, list | tuple) and given and all(isinstance(row, Mapping) for row in given):
        yield from _batches(table_of_rows(given))
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        for one in given:
            if isinstance(one, Mapping) or not (isinstance(one, pa.RecordBatch | pa.Table) or _has_arrow(one)):
                raise _no_batches(one, " in an iterable")
            yield from _batches(one)
    else:
        raise _no_batches(given)


def with_types(given: Given) -> Given:
    """Return the rows without the columns that have no type in the first batch, because all of their values are null. A reader
    finds nulls in a column of the topic that a part does not have. If no column has a type, the rows are returned as they are. A
    later batch in which such a column has a type keeps the column.
    """
    if given.columns is None:
        return given
    untyped = {field.name for field in given.columns if pa.types.is_null(field.type)}
    if not untyped or len(untyped) == len(given.columns):
        return given

    def kept(columns: pa.Schema) -> list[int]:
        return [i for i, field in enumerate(columns) if field.name not in untyped or not pa.types.is_null(field.type)]

    columns = pa.schema([given.columns.field(i) for i in kept(given.columns)])
    return Given(columns, (one.select(kept(one.schema)) for one in given.batches))


def _empty(columns: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in columns], schema=columns)


def _has_arrow(given: object) -> bool:
    return _is_pandas(given) or hasattr(given, "__arrow_c_stream__") or hasattr(given, "__arrow_c_array__")


def _streamed(given: object) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a stream, one at a time. An empty stream has one batch without rows, which shows its columns. Raises
    SchemaError for a stream whose elements are not rows, such as one column of a DataFrame.
    """
    try:
        reader = pa.RecordBatchReader.from_stream(given)
    except (pa.ArrowException, ValueError) as error:
        raise SchemaError(
            f"The {type(given).__name__} is no table: {error}", advice="Give rows with named columns, such as a DataFrame."
        ) from error
    with reader:
        yield _empty(reader.schema)
        yield from reader


def _is_pandas(given: object) -> bool:
    """Return whether this is a DataFrame of pandas. A program that has one has imported pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(given, pandas.DataFrame)


def _of_pandas(given: Any) -> pa.Table:
    """Return a DataFrame of pandas as a table. An index of whole numbers without a name only numbers the rows, and is left out.
    Raises SchemaError for another index, because its values would be lost, and for a column whose values have no common type.
    """
    named = [str(name) for name in given.index.names if name is not None]
    if named or (len(given) and given.index.inferred_type != "integer"):
        raise SchemaError(
            f"The DataFrame has the index {', '.join(named)}, which is not a column."
            if named
            else f"The DataFrame has an index with values such as {given.index[0]!r}, which is not a column.",
            advice="df.reset_index() makes the index a column, df.reset_index(drop=True) drops it.",
        )
    if given.columns.nlevels > 1:
        raise SchemaError("The DataFrame has columns of several levels.", advice="Give each column one name.")
    names = [str(name) for name in given.columns]
    columns = [_of_series(name, given.iloc[:, i]) for i, name in enumerate(names)]
    return pa.Table.from_arrays(columns, names=names)


def _of_series(name: str, series: Any) -> pa.Array:
    try:
        return pa.Array.from_pandas(series)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise SchemaError(
            f"The values of the column {name} of the DataFrame are not of one type: {error}",
            advice="Convert the column, e.g. df.astype({...}), or give a pyarrow Table with a schema.",
        ) from error


def table_of_rows(given: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table with every column that any row has, in the order of first appearance. Raises SchemaError."""
    names = dict.fromkeys(name for row in given for name in row)
    if given and not names:
        raise SchemaError("Rows without columns cannot be written.", advice="Give at least one column; its value may be None.")
    if strange := [name for name in names if not isinstance(name, str)]:
        raise SchemaError(
            f"The rows cannot be written: the name of the column {strange[0]!r} is no text.",
            advice="Give each column a text as its name.",
        )
    columns = {}
    for name in names:
        values = [row.get(name) for row in given]
        try:
            columns[name] = pa.array(values)
            _refuse_mixed_times(values, columns[name].type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise SchemaError(
                f"The rows cannot be written: the values of the column {name!r} are not of one type: {error}",
                advice="None of the rows was written. Give each column values of one type.",
            ) from error
    return pa.table(columns)


def _refuse_mixed_times(values: Sequence[Any], kind: pa.DataType) -> None:
    """Raise ValueError for dates together with times, and for times with a zone together with times without one. Arrow would take
    the hours from a time, or shift it to UTC, and say nothing.
    """
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return
    times = [value for value in values if isinstance(value, date) and value == value]  # NaT of pandas differs from itself
    found = {value.tzinfo is not None if isinstance(value, datetime) else None for value in times}
    if len(found) > 1:
        raise ValueError("dates and times, or times with and without a zone, are mixed")


def _no_batches(given: object, where: str = "") -> SchemaError:
    return SchemaError(
        f"append() takes rows, not {type(given).__name__}{where}.",
        advice="Give Arrow batches, tables or a reader, a DataFrame of pandas or Polars, a relation of DuckDB, or a list of dicts "
        "(of a generator of dicts, lists of some thousands).",
    )


def _then(first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
        yield from rest
