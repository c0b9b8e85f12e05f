"""Takes the statistics of a part while it is written (see `ledgers.part_statistics`), and compares statistics with rows.

Bounds come from the footer, where Parquet's writer has them for nothing. The rows are looked at for two things only: floating-point
numbers and keys. The footer has no bounds of floating-point numbers, because Arrow leaves NaN out of them. Spark takes NaN for the
largest number, and its Parquet reader would skip row groups with NaN by such bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ledgers.leaves import leaves_of
from ledgers.part_statistics import BYTES, MOST_COLUMNS, MOST_KEYS, Bounds, KeyFilter, Statistics, encode

_SAMPLE: Final = 4 * MOST_KEYS


def kind_of(kind: pa.DataType) -> str:
    """Return the kind of a column's bounds. Return an empty text for a type whose order in Parquet is not surely that of Spark."""
    types = pa.types
    for name, fits in (
        ("i", types.is_signed_integer(kind)),
        ("b", types.is_boolean(kind)),
        ("d", types.is_date32(kind)),
        ("t", types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None),
        ("n", types.is_timestamp(kind) and kind.unit == "us" and kind.tz is None),
        ("m", types.is_decimal128(kind) and kind.scale >= 0),
        ("f", types.is_float32(kind) or types.is_float64(kind)),
        ("s", types.is_string(kind) or types.is_large_string(kind)),
        ("x", types.is_binary(kind) or types.is_large_binary(kind)),
    ):
        if fits:
            return name
    return ""


def key_bytes(value: object) -> bytes:
    """Return the bytes of a key, by which it is routed, too: UTF-8 of a text, the decimal digits of an integer."""
    return value if isinstance(value, bytes) else str(value).encode()


class Column(NamedTuple):
    """A column that can have bounds: name, kind, scale of a decimal, and index in the file."""

    name: str
    kind: str
    scale: int
    leaf: int


class Columns(NamedTuple):
    """What a writer needs to know of a schema. `found`: the columns that can have bounds, in the order in which they get bytes,
    except for the key. `in_footer`: see `with_footer_statistics`.
    """

    found: tuple[Column, ...]
    in_footer: tuple[str, ...] | bool


@lru_cache(maxsize=64)
def columns_of(schema: pa.Schema) -> Columns:
    """Return the columns of a schema. A task writes many parts of one schema, and asking Arrow for its types takes long."""
    found = [
        Column(field.name, kind, field.type.scale if kind == "m" else 0, leaf[0])
        for field, leaf in zip(schema, leaves_of(schema), strict=True)
        if (kind := kind_of(field.type))
    ]
    names = tuple(field.name for field in schema if not _has_floats(field.type) and "." not in field.name)
    return Columns(tuple(sorted(found, key=lambda one: one.kind not in "dtn")), len(names) == len(schema) or names or False)


class Gathering:
    """The statistics of one part. `schema`: that of its rows. `key`: the column by which they were routed, or None."""

    def __init__(self, schema: pa.Schema, key: str | None) -> None:
        self._columns = columns_of(schema).found
        self._key = key if key is not None and schema.get_field_index(key) >= 0 else None
        self._floats = {column.name: _Floats() for column in self._columns if column.kind == "f"}
        self._keys: set[bytes] | None = None if self._key is None else set()

    def unkeyed(self) -> None:
        """Forget the key: some rows were not routed by it."""
        self._key = self._keys = None

    def add(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Look at the rows of an entry."""
        for batch in batches:
            for name, found in self._floats.items():
                found.add(batch.column(name))
            if self._key is not None and self._keys is not None:
                self._add_keys(batch.column(self._key))

    def _add_keys(self, column: pa.Array) -> None:
        """Collect the keys. A part with many keys has no filter, so a few rows tell that the others need not be looked at."""
        for some in (column.slice(0, _SAMPLE), column.slice(_SAMPLE)):
            if self._keys is None or not len(some):
                return
            found = pc.unique(some)
            self._keys = (
                None if len(found) > MOST_KEYS + 1 else self._keys | {key_bytes(v) for v in found.to_pylist() if v is not None}
            )
            if self._keys is not None and len(self._keys) > MOST_KEYS:
                self._keys = None

    def encoded(self, metadata: pq.FileMetaData) -> str | None:
        """Return the statistics of the part with this footer, as a text. The key comes first, then times, then the other columns in
        their order.
        """
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        columns: dict[str, Bounds] = {}
        for column in sorted(self._columns, key=lambda one: one.name != self._key)[:MOST_COLUMNS]:
            if column.name in self._floats:
                found = self._floats[column.name].bounds()
            else:
                found = bounds_of((group.column(column.leaf).statistics for group in groups), column, metadata.num_rows)
            if found is not None:
                columns[column.name] = found
        keys = None if self._keys is None else KeyFilter.of(sorted(self._keys))
        return encode(Statistics(columns, self._key, keys))


class _Floats:
    """The bounds of a column of floating-point numbers."""

    def __init__(self) -> None:
        self.low, self.high = math.inf, -math.inf
        self.nan = self.nulls = self.values = False

    def add(self, column: pa.Array) -> None:
        self.nulls = self.nulls or column.null_count > 0
        if column.null_count == len(column):
            return
        self.values = True
        found = pc.min_max(column)  # NaN counts only where there is nothing else
        low, high = found["min"].as_py(), found["max"].as_py()
        self.nan = self.nan or low != low or bool(pc.any(pc.is_nan(column)).as_py())
        if low == low:
            self.low, self.high = min(self.low, low), max(self.high, high)

    def bounds(self) -> Bounds | None:
        if not self.values:
            return Bounds(nulls=True, only_nulls=True)
        if self.low > self.high:
            return None  # NaN alone
        return Bounds("f", self.low, None if self.nan else self.high, nulls=self.nulls)


def with_footer_statistics(schema: pa.Schema) -> list[str] | bool:
    """Return the columns of which the footer gets statistics; True: all. A name with a dot would also mean a field of a struct."""
    found = columns_of(schema).in_footer
    return found if isinstance(found, bool) else list(found)


def _has_floats(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _has_floats(kind.key_type) or _has_floats(kind.item_type)
    if pa.types.is_nested(kind):
        return any(_has_floats(kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_floating(kind))


def bounds_of(groups: Iterable[Any], of: Column, rows: int) -> Bounds | None:
    """Return the bounds of a column, or None if the bounds or the nulls of a row group are unknown.

    `groups`: the statistics of the row groups. `of`: the column.
    """
    kind = of.kind
    lows: list[Any] = []
    highs: list[Any] = []
    nulls = values = 0
    for found in groups:
        if found is None or not found.has_null_count:
            return None
        nulls += found.null_count
        values += found.num_values
        if found.has_min_max:
            lows.append(_raw(found.min_raw, kind))
            highs.append(_raw(found.max_raw, kind))
        elif found.num_values:
            return None
    if nulls + values != rows:
        return None
    if not lows:
        return Bounds(nulls=True, only_nulls=True)
    return Bounds(kind, min(lows), max(highs), of.scale, nulls=nulls > 0)


def _raw(value: Any, kind: str) -> Any:
    if kind == "m" and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    if kind in "ibdtnm":
        return int(value)
    return value


def outside(found: Statistics, batch: pa.RecordBatch) -> str | None:
    """Return how rows of a part contradict its statistics, or None."""
    for name, bounds in found.columns.items():
        index = batch.schema.get_field_index(name)
        if index < 0:
            return f"its statistics name the column {name}, which it does not have"
        column = batch.column(index)
        if column.null_count and not bounds.nulls:
            return f"the column {name} has nulls, against its statistics"
        if column.null_count < len(column) and not _within(bounds, column):
            return f"the column {name} has values outside of its statistics"
    if found.key is not None and found.keys is not None and batch.schema.get_field_index(found.key) >= 0:
        values = pc.unique(batch.column(found.key).drop_null()).to_pylist()
        if not all(found.keys.may_have(key_bytes(value)) for value in values):
            return f"the column {found.key} has a key that its statistics do not have"
    return None


def _within(bounds: Bounds, column: pa.Array) -> bool:
    if bounds.only_nulls:
        return False
    if not bounds.kind:
        return True
    if bounds.kind != kind_of(column.type) or (bounds.kind == "m" and bounds.scale != column.type.scale):
        return False
    low, high = _extremes(column, bounds.kind)
    if bounds.kind == "f" and pc.any(pc.is_nan(column)).as_py() and bounds.high is not None:
        return False
    if low is None:
        return True
    if bounds.low is None or low < bounds.low:
        return False
    return bounds.high is None or high <= bounds.high or (bounds.cut and high.startswith(bounds.high))


def _extremes(column: pa.Array, kind: str) -> tuple[Any, Any]:
    """Return the least and the greatest value, raw. Both are None if all values are null or NaN."""
    if kind == "f":
        column = column.filter(pc.invert(pc.is_nan(column)))
    elif kind == "d":
        column = column.view(pa.int32())
    elif kind in "tn":
        column = column.view(pa.int64())
    elif kind == "s":
        column = column.cast(pa.large_binary() if pa.types.is_large_string(column.type) else pa.binary())
    found = pc.min_max(column)
    low, high = found["min"].as_py(), found["max"].as_py()
    if kind == "m" and low is not None:
        return _unscaled(low), _unscaled(high)
    return (low, high) if kind in BYTES or kind == "f" or low is None else (int(low), int(high))


def _unscaled(value: Any) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number
