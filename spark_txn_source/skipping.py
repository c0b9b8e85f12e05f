"""Skipping: a scan with a filter leaves out the parts that cannot hold a row of its result (`ledgers.part_statistics`).

A filter becomes conditions, all of which a row must meet. A piece is left out if one of them excludes every row of its part. Spark
evaluates the whole filter on the rows of the other pieces, so a condition that is not understood costs time and never rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pyspark.sql import types as T

from ledgers.model import CompactedPart
from ledgers.part_statistics import Bounds, Statistics, decode
from metadata.common import metrics
from metadata.common.errors import CorruptRecord
from metadata.records.names import is_persistent, key_hash, segment_name, topic_of
from spark_txn_source.planned import Piece

log = logging.getLogger("txnsegment.skipping")

EQUAL: Final = "="
DIFFERS: Final = "<>"
LESS: Final = "<"
LESS_OR_EQUAL: Final = "<="
GREATER: Final = ">"
GREATER_OR_EQUAL: Final = ">="
STARTS: Final = "starts with"
NULL: Final = "is null"
NOT_NULL: Final = "is not null"

_UNKNOWN = Bounds()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that every row of the result meets.

    `kind`: that of the column's bounds. `values`: raw, as bounds are. A row meets the condition with one of the values. NULL and
    NOT_NULL have none.
    """

    column: str
    operator: str
    kind: str = ""
    values: tuple[Any, ...] = ()

    def excludes(self, found: Bounds) -> bool:
        """Return whether no value within the bounds meets the condition."""
        if self.operator == NULL:
            return not found.nulls
        if found.only_nulls:
            return True
        if self.operator == NOT_NULL or not found.kind or found.kind != self.kind:
            return False
        return all(_excludes(self.operator, found, value) for value in self.values)


def _excludes(operator: str, found: Bounds, value: Any) -> bool:
    low: Any = found.low
    high: Any = found.high
    if found.kind == "m":
        low, high = _decimal(low, found.scale), _decimal(high, found.scale)
    if operator == LESS:
        return bool(value <= low)
    if operator == LESS_OR_EQUAL:
        return bool(value < low)
    if operator == STARTS:
        return bool(low[: len(value)] > value) or _beyond(value, high, cut=found.cut)
    if operator == EQUAL:
        return bool(value < low) or _beyond(value, high, cut=found.cut)
    if operator == GREATER_OR_EQUAL:
        return _beyond(value, high, cut=found.cut)
    if operator == GREATER:
        return _beyond(value, high, cut=found.cut) or (high is not None and not found.cut and bool(value == high))
    return operator == DIFFERS and not found.cut and high is not None and bool(low == value == high)


def _beyond(value: Any, high: Any, *, cut: bool) -> bool:
    """Return whether a value lies above the upper bound."""
    return high is not None and bool(value > high) and not (cut and value.startswith(high))


def _decimal(unscaled: object, scale: int) -> Decimal:
    return Decimal(f"{unscaled}E-{scale}")  # from a text, since every operation on decimals may round


def kind_of_column(kind: T.DataType) -> str:
    """Return the kind of the bounds of a column, or an empty text if its order is not that of its bounds."""
    if isinstance(kind, T.StringType):
        return "s" if type(kind) is T.StringType and kind == T.StringType() else ""  # no collation
    return _KINDS.get(type(kind), "")


_KINDS: dict[type[T.DataType], str] = {
    **dict.fromkeys((T.ByteType, T.ShortType, T.IntegerType, T.LongType), "i"),
    **dict.fromkeys((T.FloatType, T.DoubleType), "f"),
    T.BooleanType: "b",
    T.DateType: "d",
    T.TimestampType: "t",
    T.TimestampNTZType: "n",
    T.DecimalType: "m",
    T.BinaryType: "x",
}


def left(found: Sequence[Piece], conditions: Sequence[Condition]) -> list[Piece]:
    """Return the pieces that may hold rows which meet all conditions. Raises CorruptRecord for statistics that are damaged."""
    if not conditions:
        return list(found)
    kept = list(each_left(found, conditions))
    log.info("skipped %s of %s parts by their statistics", len(found) - len(kept), len(found))
    return kept


def each_left(found: Iterable[Piece], conditions: Sequence[Condition]) -> Iterator[Piece]:
    """Yield the pieces that may hold rows which meet all conditions. Raises CorruptRecord for statistics that are damaged."""
    columns = frozenset(one.column for one in conditions)
    for piece in found:
        if _excluded(piece, columns, conditions):
            metrics.PARTS_SKIPPED.inc()
        else:
            yield piece


def _excluded(piece: Piece, columns: frozenset[str], conditions: Sequence[Condition]) -> bool:
    known = statistics_of(piece, columns)
    return any(one.excludes(_bounds(piece, known, one.column)) or _other_keys(piece, known, one) for one in conditions)


def statistics_of(piece: Piece, columns: Iterable[str]) -> Statistics:
    """Return the statistics of a piece's part for some columns. Raises CorruptRecord."""
    if piece.part.stats is None:
        return Statistics({})
    try:
        return decode(piece.part.stats, columns)
    except ValueError as error:
        raise CorruptRecord(
            f"The statistics of the part {piece.part.path} ({piece.where}) are damaged: {error}.",
            advice="Read without a filter, and restore the record of the part from a backup.",
        ) from error


def _bounds(piece: Piece, known: Statistics, column: str) -> Bounds:
    if not column.startswith("__"):
        return known.columns.get(column, _UNKNOWN)
    match column:
        case "__publishTime":
            return _publish_time(piece)
        case "__segment":
            return _one(piece.segment)
        case "__topic":
            return _one(str(topic_of(piece.segment)))
        case "__txnId" if not isinstance(piece.part, CompactedPart):
            return Bounds(only_nulls=True) if piece.txn is None else _one(piece.txn)
    return known.columns.get(column, _UNKNOWN)


def _one(text: str) -> Bounds:
    value = text.encode()
    return Bounds("s", value, value, nulls=False)


def _publish_time(piece: Piece) -> Bounds:
    if not isinstance(piece.part, CompactedPart):
        return Bounds("t", piece.publish_ms * 1000, piece.publish_ms * 1000, nulls=False)
    if piece.marks is None:
        return _UNKNOWN
    times = piece.marks.publish_ms
    return Bounds("t", int(times.min()) * 1000, int(times.max()) * 1000, nulls=False)


def _other_keys(piece: Piece, known: Statistics, wanted: Condition) -> bool:
    """Return whether a condition on the key asks for keys that the part does not have."""
    if known.key != wanted.column or wanted.operator != EQUAL or wanted.kind not in ("i", "s", "x"):
        return False
    keys = [value if isinstance(value, bytes) else str(value).encode() for value in wanted.values]
    if not is_persistent(piece.segment):
        keys = [key for key in keys if _in_range(piece.segment, key)]
    return not any(known.keys is None or known.keys.may_have(key) for key in keys)


def _in_range(segment: str, key: bytes) -> bool:
    found = segment_name(segment).hash_range
    return found.start <= key_hash(key) <= found.end
