"""The filter of `cluster.topics.read`: conditions on columns, which leave out rows, and parts that cannot hold such a row."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from math import isinf
from typing import Any, Final, NamedTuple, SupportsIndex

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from ledgers.arrow import arrow_schema
from metadata.common.errors import OptionError
from spark_txn_source import skipping
from spark_txn_source.skipping import Condition, kind_of_column

Filter = Sequence[tuple[str, str, object]]
"""Conditions as (column, operator, value), all of which a row must meet, as pyarrow and pandas take them for Parquet files."""

_FORM: Final = 'Give a list such as [("amount", ">", 100), ("customer", "in", ["ann", "bob"])].'
_OPERATORS: Final = {
    "=": (skipping.EQUAL, pc.equal),
    "==": (skipping.EQUAL, pc.equal),
    "!=": (skipping.DIFFERS, pc.not_equal),
    "<": (skipping.LESS, pc.less),
    "<=": (skipping.LESS_OR_EQUAL, pc.less_equal),
    ">": (skipping.GREATER, pc.greater),
    ">=": (skipping.GREATER_OR_EQUAL, pc.greater_equal),
}
_SETS: Final = ("in", "not in")


class RowTest(NamedTuple):
    """A condition on a column: a function that gives the mask of a batch's column, and the condition that leaves out parts."""

    column: str
    mask: Callable[[pa.Array], pa.Array]
    condition: Condition | None


def names_of(given: Filter) -> list[str]:
    """Return the columns that the conditions name. Raises OptionError for anything that is no list of conditions."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise OptionError(f"filter={given!r} is no list of conditions.", advice=_FORM)
    for one in given:
        if not isinstance(one, tuple | list) or len(one) != 3 or not isinstance(one[0], str) or not isinstance(one[1], str):
            raise OptionError(f"filter has {one!r}, which is no condition.", advice=_FORM)
    return list(dict.fromkeys(column for column, _, _ in given))


def tests(given: Filter, columns: T.StructType) -> list[RowTest]:
    """Return the conditions for the columns of a read. Raises OptionError: there is no such operator, the column's values have no
    order, or the value is not of the column's type.
    """
    return [_test(column, operation, value, columns[column].dataType) for column, operation, value in given]


def selected(batch: pa.RecordBatch, wanted: Sequence[RowTest]) -> pa.RecordBatch:
    """Return the rows of a batch that meet all conditions. A null meets a condition only if the condition asks for nulls."""
    for one in wanted:
        batch = batch.filter(one.mask(batch.column(one.column)))
    return batch


def _test(column: str, operation: str, value: object, kind: T.DataType) -> RowTest:
    if operation not in _OPERATORS and operation not in _SETS:
        known = ", ".join([*_OPERATORS, *_SETS])
        raise OptionError(
            f"filter has the operator {operation!r}, which there is not.",
            advice=f'There are {known}; (column, "=", None) asks for null.',
        )
    if value is None and operation in ("=", "==", "!="):
        if operation == "!=":
            return RowTest(column, pc.is_valid, Condition(column, skipping.NOT_NULL))
        return RowTest(column, pc.is_null, Condition(column, skipping.NULL))
    raw_kind = kind_of_column(kind)
    if not raw_kind:
        raise OptionError(
            f"filter has the column {column} of the type {kind.simpleString()}, whose values are not compared.",
            advice="Give a condition on a column of numbers, text, bytes, booleans, dates or times.",
        )
    if operation in _SETS:
        if isinstance(value, str | bytes) or not isinstance(value, list | tuple | set | frozenset):
            raise OptionError(f"filter asks for {column} {operation} {value!r}, which is no list.", advice=_FORM)
        scalars = [_scalar(column, one, kind) for one in value]
        zeros = [0.0, -0.0] if pa.types.is_floating(_arrow_type(kind)) and any(one.as_py() == 0 for one in scalars) else []
        among = pa.array([*scalars, *zeros], _arrow_type(kind))  # 0.0 = -0.0, but for Arrow one is not among the other
        if operation == "in":
            return RowTest(column, lambda found: pc.is_in(found, among), _condition(column, skipping.EQUAL, raw_kind, scalars))
        return RowTest(column, lambda found: pc.and_(pc.is_valid(found), pc.invert(pc.is_in(found, among))), None)
    name, compare = _OPERATORS[operation]
    scalar = _scalar(column, value, kind)
    return RowTest(column, lambda found: compare(found, scalar), _condition(column, name, raw_kind, [scalar]))


def _condition(column: str, name: str, kind: str, scalars: Sequence[pa.Scalar]) -> Condition | None:
    values = [_raw(one) for one in scalars]
    if not values or any(operator.ne(value, value) for value in values):  # NaN
        return None
    return Condition(column, name, kind, tuple(values))


def _scalar(column: str, value: object, kind: T.DataType) -> pa.Scalar:
    """Return a value in the type of its column. Raises OptionError."""
    try:
        if value is None:
            raise TypeError('null is compared by ("column", "=", None) alone')
        if isinstance(value, bool) != isinstance(kind, T.BooleanType):
            raise TypeError("only booleans are compared with booleans")
        if isinstance(kind, T.IntegralType) and not isinstance(value, SupportsIndex):
            raise TypeError("a whole number is compared with a whole number")  # Arrow would cut the fraction off
        if isinstance(kind, T.TimestampType | T.TimestampNTZType) and (
            not isinstance(value, datetime) or (value.tzinfo is not None) != isinstance(kind, T.TimestampType)
        ):
            raise TypeError("a timestamp is compared with a datetime with a time zone, a timestamp_ntz with one without")
        if isinstance(kind, T.DateType) and isinstance(value, datetime):
            raise TypeError("a date is compared with a date")
        if getattr(value, "nanosecond", 0):  # of a Timestamp of pandas
            raise ValueError("a topic keeps microseconds, and this time has nanoseconds")
        scalar = pa.scalar(value, _arrow_type(kind))
        if isinstance(kind, T.FloatType) and isinf(scalar.as_py()) and not isinf(value):  # type: ignore[arg-type]
            raise OverflowError("a float cannot hold this number")
        return scalar
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise OptionError(
            f"filter compares the column {column}, of the type {kind.simpleString()}, with {value!r}: {error}.",
            advice="Give a value of the column's type.",
        ) from error


def _arrow_type(kind: T.DataType) -> pa.DataType:
    return arrow_schema(T.StructType([T.StructField("value", kind)])).field(0).type


def _raw(scalar: pa.Scalar) -> Any:
    """Return the raw value of a scalar, as the bounds of parts have it (`ledgers.part_statistics`)."""
    if pa.types.is_date(scalar.type):
        return scalar.cast(pa.int32()).as_py()
    if pa.types.is_timestamp(scalar.type):
        return scalar.cast(pa.int64()).as_py()
    value = scalar.as_py()
    return value.encode() if isinstance(value, str) else int(value) if isinstance(value, bool) else value
