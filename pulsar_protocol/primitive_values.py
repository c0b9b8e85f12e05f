"""Values of Pulsar's primitive schemas, in the encodings of its Java client. Pure.

| schema | bytes | column |
|---|---|---|
| STRING | UTF-8 | string |
| BOOL | one byte, 0 is false | boolean |
| INT8, INT16, INT32, INT64 | big-endian | tinyint, smallint, int, bigint |
| FLOAT, DOUBLE | IEEE 754, big-endian | float, double |
| DATE, TIMESTAMP | milliseconds since 1970 in 8 bytes (Java's `Date` and `Timestamp` are moments) | timestamp |
| TIME | milliseconds in 8 bytes, of which the time of day (in UTC) counts | time |
| INSTANT | seconds since 1970 in 8 bytes, nanoseconds in 4 | timestamp |
| LOCAL_DATE | days since 1970 in 8 bytes | date |
| LOCAL_TIME | nanoseconds of the day in 8 bytes | time |
| LOCAL_DATE_TIME | as LOCAL_DATE, then as LOCAL_TIME | timestamp_ntz |

Spark's timestamps have microseconds, so a timestamp loses its nanoseconds when it is read. If a schema has milliseconds, a value
loses everything finer than a millisecond when it is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledgers.errors import ValueFormatError
from pulsar_protocol.messages import Schema
from pulsar_protocol.value_types import VALUE, Bytes, NameRow, Values, conformed, numbered, refuse_version

_DAY_MS: Final = 86_400_000
_DAY_NS: Final = _DAY_MS * 1_000_000
_UTC: Final = pa.timestamp("us", "UTC")
_NTZ: Final = pa.timestamp("us")
_TIME: Final = pa.time64("ns")
_ADVICE: Final = "It was not written with this schema. Read the topic with valueFormat=binary to see its bytes."

Numbers = Any
"""A numpy array of numbers: either the encoded numbers of a schema, or the numbers of its column."""


@dataclass(frozen=True)
class Primitive:
    """A primitive schema. `name`: as Java names it. `wire`: the numpy type of one encoded value; None: text. `read`: converts
    encoded numbers into numbers of the column, and tells which rows fit (None: all). `write`: converts numbers of the column into
    encoded numbers.
    """

    name: str
    column: pa.DataType
    wire: Any = None
    read: Callable[[Numbers], tuple[Numbers, Numbers | None]] = lambda found: (found, None)
    write: Callable[[Numbers], Numbers] = lambda found: found


def _scaled(found: Numbers, factor: int) -> tuple[Numbers, Numbers]:
    most = np.iinfo(np.int64).max // factor
    return found * factor, (found >= -most) & (found <= most)


def _instant(found: Numbers) -> tuple[Numbers, Numbers]:
    micros, fits = _scaled(found["high"], 1_000_000)
    nanos = found["low"]
    return micros + nanos // 1000, fits & (nanos >= 0) & (nanos < 1_000_000_000) & (found["high"] < 9_223_372_036_854)


def _local_date_time(found: Numbers) -> tuple[Numbers, Numbers]:
    micros, fits = _scaled(found["high"], _DAY_NS // 1000)
    nanos = found["low"]
    return micros + nanos // 1000, fits & (nanos >= 0) & (nanos < _DAY_NS) & (found["high"] < 106_751_991)


def _pairs(wire: Any, unit: int, nanos: int) -> Callable[[Numbers], Numbers]:
    """Return the function that divides microseconds into whole units and the nanoseconds that are left. `unit`: the microseconds of
    one unit. `nanos`: the nanoseconds of one microsecond.
    """

    def write(found: Numbers) -> Numbers:
        made = np.empty(len(found), wire)
        made["high"], made["low"] = found // unit, found % unit * nanos
        return made

    return write


def _plain(name: str, column: pa.DataType, wire: str) -> Primitive:
    return Primitive(name, column, np.dtype(wire))


_LONG: Final = np.dtype(">i8")
_INSTANT: Final = np.dtype([("high", ">i8"), ("low", ">i4")])
_DATE_TIME: Final = np.dtype([("high", ">i8"), ("low", ">i8")])


def _millis(name: str) -> Primitive:
    return Primitive(name, _UTC, _LONG, lambda found: _scaled(found, 1000), lambda found: found // 1000)


PRIMITIVES: Final[dict[int, Primitive]] = {
    1: Primitive("String", pa.string()),
    5: Primitive("Boolean", pa.bool_(), np.dtype("u1"), lambda found: (found != 0, None), lambda found: found),
    6: _plain("INT8", pa.int8(), ">i1"),
    7: _plain("INT16", pa.int16(), ">i2"),
    8: _plain("INT32", pa.int32(), ">i4"),
    9: _plain("INT64", pa.int64(), ">i8"),
    10: _plain("Float", pa.float32(), ">f4"),
    11: _plain("Double", pa.float64(), ">f8"),
    12: _millis("Date"),
    13: Primitive("Time", _TIME, _LONG, lambda found: (found % _DAY_MS * 1_000_000, None), lambda found: found // 1_000_000),
    14: _millis("Timestamp"),
    16: Primitive("Instant", _UTC, _INSTANT, _instant, _pairs(_INSTANT, 1_000_000, 1000)),
    17: Primitive("LocalDate", pa.date32(), _LONG, lambda found: (found, (found >= -(2**31)) & (found < 2**31))),
    18: Primitive("LocalTime", _TIME, _LONG, lambda found: (found, (found >= 0) & (found < _DAY_NS))),
    19: Primitive("LocalDateTime", _NTZ, _DATE_TIME, _local_date_time, _pairs(_DATE_TIME, _DAY_NS // 1000, 1000)),
}
"""The primitive schemas by their type numbers."""

_STORED: Final = {pa.date32(): pa.int32(), _UTC: pa.int64(), _NTZ: pa.int64(), _TIME: pa.int64(), pa.bool_(): pa.uint8()}
"""For each column type that is not a number type: the number type by which its values are stored."""


class PrimitiveValues(Values):
    """Values of a primitive schema, in one column. `kind`: its type number."""

    def __init__(self, kind: int, schema: Any | None = None) -> None:
        self.kind, self._of = kind, PRIMITIVES[kind]
        self.schema = Schema(name=self._of.name, type=kind, schema_data=b"") if schema is None else schema
        self.columns = pa.schema([(VALUE, self._of.column)])

    def decode(self, values: Bytes, keys: Bytes | None = None, where: NameRow = numbered) -> pa.RecordBatch:
        given = pa.array(values, pa.binary())
        made = self._text(given, where) if self._of.wire is None else self._numbers(given, where)
        return pa.RecordBatch.from_arrays([made], schema=self.columns)

    def _text(self, given: pa.Array, where: NameRow) -> pa.Array:
        try:
            return given.cast(pa.string())
        except pa.ArrowInvalid:
            for row, data in enumerate(given.to_pylist()):
                try:
                    (data or b"").decode()
                except UnicodeDecodeError as error:
                    raise self._unfit(where(row), f"is no text in UTF-8 ({error})") from error
            raise

    def _numbers(self, given: pa.Array, where: NameRow) -> pa.Array:
        wire = self._of.wire
        lengths, there = pc.binary_length(given), given.is_valid().to_numpy(zero_copy_only=False)
        if pc.any(pc.not_equal(lengths, wire.itemsize)).as_py():
            row = pc.index(pc.fill_null(pc.not_equal(lengths, wire.itemsize), False), True).as_py()
            raise self._unfit(where(row), f"has {lengths[row].as_py()} bytes, not {wire.itemsize}")
        data = given.buffers()[2]
        found = np.frombuffer(b"" if data is None else data, wire, int(there.sum()))
        native = found if wire.names else found.astype(wire.newbyteorder("="))
        numbers, fits = self._of.read(native)
        if fits is not None and not fits.all():
            first = int(np.argmin(fits))
            raise self._unfit(where(int(np.flatnonzero(there)[first])), f"is outside the range of {self._of.column}")
        whole = numbers
        if given.null_count:
            whole = np.zeros(len(given), numbers.dtype)
            whole[there] = numbers
        kind = self._of.column
        plain = kind if kind == pa.bool_() else _STORED.get(kind, kind)
        made = pa.array(np.asarray(whole, plain.to_pandas_dtype()), plain, mask=~there)
        return made if plain == kind else made.cast(kind)

    def _unfit(self, row: str, problem: str) -> ValueFormatError:
        return ValueFormatError(f"{row} does not fit the schema {self._of.name}: the field {VALUE} {problem}.", advice=_ADVICE)

    def encode(self, batch: pa.RecordBatch, where: NameRow = numbered) -> list[bytes | None]:
        column = conformed(batch, self.columns).column(0)
        if self._of.wire is None:
            text: list[bytes | None] = column.cast(pa.binary()).to_pylist()
            return text
        stored = column.cast(_STORED.get(column.type, column.type))
        filled = pc.fill_null(stored, 0).to_numpy(zero_copy_only=False)
        made = self._of.write(filled).astype(self._of.wire)
        found: list[bytes | None] = np.frombuffer(made.tobytes(), f"V{self._of.wire.itemsize}").tolist()
        if column.null_count:
            for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)):
                found[row] = None
        return found

    def of_version(self, written: Any | None, name: str) -> Values:
        if written is not None and written.type == self.kind:
            return self
        raise refuse_version(name, f"it is not of the type {self._of.name}")
