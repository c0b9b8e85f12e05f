"""Converts Avro binary to Arrow columns with numpy, all values of an entry at once. Pure.

The fields are read one after another, each for all rows at once. This module leaves schemas with arrays or maps, and values that
are unusual or invalid, to `ledgers.avro.rows.Codec`. The codec reads value by value, and names a value that is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ledgers.arrow import conform
from ledgers.avro.arrays import Unfit, logical
from ledgers.avro.schema import Array, Enum, Fixed, Map, Optional, Plain, Primitive, Record, Type, plain

_PADDING: Final = bytes(16)
"""Bytes after the last value, so that a number can be read at any position."""
_INT: Final = 1 << 31

Rows = Any
"""The positions of rows, as a numpy array of int64."""


class Unusual(Exception):
    """The values must be read one by one."""


def supported(kind: Type) -> bool:
    """Return whether this module can read values of this schema."""
    match plain(kind):
        case Array() | Map():
            return False
        case Record(fields=fields):
            return all(supported(field.type) for field in fields)
    return True


def decode(values: Sequence[bytes], record: Record, columns: pa.Schema) -> pa.RecordBatch:
    """Return the rows. Raises Unusual if the values must be read one by one."""
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    ends = np.cumsum(lengths)
    data = b"".join([*values, _PADDING])
    if len(data) >= _INT:
        raise Unusual
    reading = _Reading(data, ends - lengths, ends)
    try:
        found = [logical(reading.read(field.type), field.type, field.name) for field in record.fields]
        if not (reading.at == ends).all():
            raise Unusual
        return conform(pa.RecordBatch.from_arrays(found, columns.names), columns)
    except (Unfit, pa.ArrowException) as error:
        raise Unusual from error


class _Reading:
    """Reads the fields of all rows. `data`: the values of all rows, one after another. `at`: for each row, the position of the next
    byte to read. `ends`: for each row, the position after its last byte. A row whose field is null stays where it is while the
    other rows move behind the field.
    """

    def __init__(self, data: bytes, at: Rows, ends: Rows) -> None:
        self._buffer, self._data = pa.py_buffer(data), np.frombuffer(data, np.uint8)
        self.at, self._ends = at, ends

    def read(self, kind: Type) -> pa.Array:
        """Return the next field of all rows, without logical types, and move the position of each row behind the field."""
        if not isinstance(kind, Optional):
            return self._plain(kind)
        branch = self._data[self.at]
        if not ((branch == 0) | (branch == 2)).all():
            raise Unusual
        self._move(1)
        there = branch == (2 if kind.null_first else 0)
        if there.all():
            return self._plain(kind.type)
        inner = _Reading.__new__(_Reading)
        inner._buffer, inner._data, inner.at, inner._ends = self._buffer, self._data, self.at[there], self._ends[there]
        made = inner._plain(kind.type)
        self.at[there] = inner.at
        places = np.cumsum(there) - 1
        return made.take(pa.array(places, pa.int64(), mask=~there))

    def _plain(self, kind: Plain) -> pa.Array:
        match kind:
            case Primitive(kind="boolean"):
                found = self._data[self.at]
                if (found > 1).any():
                    raise Unusual
                self._move(1)
                return pa.array(found.astype(bool), pa.bool_())
            case Primitive(kind="int"):
                numbers = self._long()
                if ((numbers < -_INT) | (numbers >= _INT)).any():
                    raise Unusual
                return pa.array(numbers.astype(np.int32), pa.int32())
            case Primitive(kind="long"):
                return pa.array(self._long(), pa.int64())
            case Primitive(kind="float"):
                return pa.array(self._fixed(4).view("<f4").ravel(), pa.float32())
            case Primitive(kind="double"):
                return pa.array(self._fixed(8).view("<f8").ravel(), pa.float64())
            case Primitive(kind=name):
                made = self._binary(self._long())
                return made.cast(pa.string()) if name == "string" else made
            case Fixed(size=size):
                return self._binary(np.full(len(self.at), size, np.int64))
            case Enum(symbols=symbols):
                places = self._long()
                if ((places < 0) | (places >= len(symbols))).any():
                    raise Unusual
                return pa.array(symbols, pa.string()).take(pa.array(places, pa.int64()))
            case Record(fields=fields):
                children = [self.read(field.type) for field in fields]
                return pa.StructArray.from_arrays(children, [field.name for field in fields])
        raise Unusual

    def _move(self, step: Any) -> None:
        """Move the positions of all rows by `step`. Raises Unusual if a row ends before its new position."""
        self.at = self.at + step
        if (self.at > self._ends).any():
            raise Unusual

    def _long(self) -> Any:
        byte = self._data[self.at].astype(np.uint64)
        at, value, more, shift = self.at + 1, byte & 0x7F, byte > 0x7F, 7
        while more.any():
            byte = np.where(more, self._data[np.minimum(at, len(self._data) - 1)], 0).astype(np.uint64)
            if shift == 63 and (byte > 1).any():  # more than 64 bits
                raise Unusual
            value |= (byte & 0x7F) << np.uint64(shift)
            at = at + more
            more, shift = byte > 0x7F, shift + 7
        self._move(at - self.at)
        return ((value >> 1).astype(np.int64)) ^ -((value & 1).astype(np.int64))

    def _fixed(self, size: int) -> Any:
        begin = self.at
        self._move(size)
        return self._data[begin[:, None] + np.arange(size)]

    def _binary(self, lengths: Any) -> pa.Array:
        """Return the next bytes of each row, as many as `lengths` says. The data is divided into pieces: the bytes of a row, and
        then the bytes up to those of the next row. Every second piece is returned.
        """
        begin = self.at
        if (lengths < 0).any() or (lengths > self._ends - begin).any():
            raise Unusual
        self._move(lengths)
        bounds = np.empty(2 * len(begin) + 1, np.int32)
        bounds[0:-1:2], bounds[1::2] = begin, self.at
        bounds[-1] = bounds[-2] if len(begin) else 0
        pieces = pa.Array.from_buffers(pa.binary(), 2 * len(begin), [None, pa.py_buffer(bounds), self._buffer])
        return pieces.take(pa.array(np.arange(0, 2 * len(begin), 2), pa.int64()))
