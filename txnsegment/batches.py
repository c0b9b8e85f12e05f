"""The rows that a program gives to `append` and `Producer.write`, as Arrow batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias, cast

import pyarrow as pa

from ledgers.arrow import conform
from metadata.common.errors import SchemaError

Batches: TypeAlias = object
"""Rows: Arrow batches, a table or a reader; an iterable of batches and tables; a DataFrame of pandas or Polars, a relation of
DuckDB, or any other object with the Arrow C interface; or a list of dicts.
"""


class Given(NamedTuple):
    """Rows that a program gave. `columns`: the columns of the first batch, also if it has no rows; None: there is no batch.
    `batches`: the batches that have rows. They are read once, and one after the other. `python`: whether the rows are dicts, whose
    numbers do not say which type they are meant for (`of_python`).
    """

    columns: pa.Schema | None
    batches: Iterator[pa.RecordBatch]
    python: bool


def rows_given(given: Batches) -> Given:
    """Return the rows that a program gave. Raises SchemaError for anything that has no rows, and for rows that are not a table."""
    found = _batches(given)
    first = next(found, None)
    return Given(None if first is None else first.schema, (one for one in _then(first, found) if one.num_rows), _are_dicts(given))


def _are_dicts(given: Batches) -> bool:
    return isinstance(given, list | tuple) and bool(given) and all(isinstance(row, Mapping) for row in given)


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
    elif _are_dicts(given):
        yield from _batches(table_of_rows(cast("Sequence[Mapping[str, Any]]", given)))
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping):
        for one in given:
            if isinstance(one, Mapping) or not (isinstance(one, pa.RecordBatch | pa.Table) or _has_arrow(one)):
                raise _no_batches(one, " in an iterable")
            yield from _batches(one)
    else:
        raise _no_batches(given)


def typed(columns: pa.Schema) -> pa.Schema:
    """Return the columns that have a type; all columns if none has one. A column has no type if all of its values are null."""
    return pa.schema([field for field in columns if not pa.types.is_null(field.type)] or columns)


def with_types(batch: pa.RecordBatch, known: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the topic's type for each column that has no type (`typed`). Such a column that the topic does not have
    is left out, unless no column would be left. `known`: the columns of the topic.
    """
    if not any(pa.types.is_null(field.type) for field in batch.schema):
        return batch
    found = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not pa.types.is_null(field.type):
            found.append((field, column))
        elif field.name in known.names:
            kind = known.field(field.name).type
            found.append((pa.field(field.name, kind), pa.nulls(batch.num_rows, kind)))
    if not found:
        return batch
    return pa.RecordBatch.from_arrays([column for _, column in found], schema=pa.schema([field for field, _ in found]))


def of_python(batch: pa.RecordBatch, known: pa.Schema) -> pa.RecordBatch:
    """Return a batch of Python's values with the topic's type for each column whose values fit this type. Another column keeps the
    type that Arrow found for its values, so the caller refuses it, or widens the topic. `known`: the columns of the topic.
    """
    for index, field in enumerate(batch.schema):
        if field.name in known.names:
            wanted = pa.schema([known.field(field.name)])
            try:
                batch = batch.set_column(index, wanted.field(0), conform(batch.select([field.name]), wanted, "python").column(0))
            except SchemaError:
                continue
    return batch


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
            _refuse_changed_times(values, columns[name].type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise SchemaError(
                f"The rows cannot be written: the values of the column {name!r} are not of one type: {error}",
                advice="None of the rows was written. Give each column values of one type.",
            ) from error
    return pa.table(columns)


def _refuse_changed_times(values: Sequence[Any], kind: pa.DataType) -> None:
    """Raise ValueError for dates together with times, for times with a zone together with times without one, and for times and
    durations with nanoseconds, also inside lists and structs. Arrow would take the hours or the nanoseconds from a time, or shift
    it to UTC, and say nothing.
    """
    if not _has_times(kind):
        return
    if pa.types.is_list(kind):
        _refuse_changed_times([inner for value in values if value is not None for inner in value], kind.value_type)
        return
    if pa.types.is_struct(kind):
        for field in kind:
            _refuse_changed_times([value.get(field.name) for value in values if value is not None], field.type)
        return
    for value in values:  # NaT of pandas differs from itself
        if (getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0)) and value == value:
            raise ValueError(f"{value} has nanoseconds, and topics keep microseconds ({type(value).__name__}.floor('us'))")
    times = [value for value in values if isinstance(value, date) and value == value]
    found = {value.tzinfo is not None if isinstance(value, datetime) else None for value in times}
    if len(found) > 1:
        raise ValueError("dates and times, or times with and without a zone, are mixed")


def _has_times(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or any(_has_times(kind.field(i).type) for i in range(kind.num_fields))


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
