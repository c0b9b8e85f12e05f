"""Strict check of Avro binary, value by value.

fastavro decodes some invalid bytes as valid values. It counts a negative enum index from the end of the list, truncates a long to
64 bits, and accepts any byte as a boolean. This check finds such bytes. It runs on the few rows whose decoded values, encoded
again, give other bytes. Such a row is valid if its bytes are another encoding that Avro allows for the same values.
"""

from __future__ import annotations

from typing import Final

from ledgers.avro.schema import Array, Enum, Fixed, Map, Optional, Primitive, Record, Type

_FIXED_SIZE: Final = {"float": 4, "double": 8}


class NotAvro(Exception):
    """The bytes are not Avro of the schema. The text names the place and the problem."""


def check(kind: Type, data: bytes) -> None:
    """Raise NotAvro unless the bytes are exactly one value of the type."""
    end = _after(kind, data, 0, "")
    if end != len(data):
        raise NotAvro(f"{len(data) - end} bytes follow its last value")


def _after(kind: Type, data: bytes, at: int, path: str) -> int:
    """Return the offset after the value at `at`."""
    match kind:
        case Optional():
            index, at = _long(data, at, path)
            if index not in (0, 1):
                raise NotAvro(f"the column {path} is the type {index} of a union of two")
            return at if index == (0 if kind.null_first else 1) else _after(kind.type, data, at, path)
        case Primitive():
            return _after_primitive(kind.kind, data, at, path)
        case Fixed(size=size):
            return _within(data, at, size, path)
        case Enum(symbols=symbols):
            index, at = _long(data, at, path)
            if not 0 <= index < len(symbols):
                raise NotAvro(f"the column {path} is the symbol {index} of {len(symbols)}")
            return at
        case Record(fields=fields):
            for field in fields:
                at = _after(field.type, data, at, f"{path}.{field.name}" if path else field.name)
            return at
        case Array(items=items):
            return _after_blocks(items, data, at, f"{path}.element", None)
        case Map(values=values):
            return _after_blocks(values, data, at, f"{path}.value", set())


def _after_primitive(kind: str, data: bytes, at: int, path: str) -> int:
    match kind:
        case "boolean":
            end = _within(data, at, 1, path)
            if data[at] > 1:
                raise NotAvro(f"the column {path} is a boolean of the byte {data[at]}")
            return end
        case "int" | "long":
            number, end = _long(data, at, path)
            if kind == "int" and not -(2**31) <= number < 2**31:
                raise NotAvro(f"the column {path} is an int of more than 32 bits")
            return end
        case "float" | "double":
            return _within(data, at, _FIXED_SIZE[kind], path)
    length, at = _long(data, at, path)
    end = _within(data, at, length, path)
    if kind == "string":
        _text(data[at:end], path)
    return end


def _after_blocks(kind: Type, data: bytes, at: int, path: str, keys: set[bytes] | None) -> int:
    """Return the offset after all blocks of an array or map. `keys`: the keys of the map so far; None for an array."""
    while True:
        count, at = _long(data, at, path)
        if count == 0:
            return at
        end = None
        if count < 0:  # the size of the block follows a negative count, so that readers can skip it
            size, at = _long(data, at, path)
            count, end = -count, _within(data, at, size, path)
        for _ in range(count):  # every value takes at least one byte, so the loop ends when the data ends, or earlier
            if keys is not None:
                at = _key(data, at, path, keys)
            at = _after(kind, data, at, path)
        if end is not None and at != end:
            raise NotAvro(f"the column {path} has a block whose size is wrong")


def _key(data: bytes, at: int, path: str, keys: set[bytes]) -> int:
    length, at = _long(data, at, path)
    end = _within(data, at, length, path)
    key = data[at:end]
    _text(key, path)
    if key in keys:
        raise NotAvro(f"the column {path} has the key {key[:50].decode(errors='replace')!r} twice")
    keys.add(key)
    return end


def _text(data: bytes, path: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise NotAvro(f"the column {path} is a text that is not UTF-8") from error


def _within(data: bytes, at: int, length: int, path: str) -> int:
    if not 0 <= length <= len(data) - at:
        raise NotAvro(f"the column {path} has {length} bytes, but only {len(data) - at} are left")
    return at + length


def _long(data: bytes, at: int, path: str) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                break
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            break
    raise NotAvro(f"the column {path} has a number that is truncated, or has more than 64 bits")
