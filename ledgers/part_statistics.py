"""The statistics of a part: bounds of its columns, and a filter of its keys. A read with a filter leaves out the parts that cannot
hold a row of its result.

`encode` gives a text for the record of the part. Its length is at most `ledgers.model.MOST_STATISTICS`. A missing bound means that
the part may have any value. All values are raw: days for dates, microseconds for timestamps, the unscaled number for decimals,
UTF-8 for texts. `ledgers.statistics_writer` takes the statistics as a part is written.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import mmh3

from ledgers.model import check_statistics

MOST_COLUMNS: Final = 32
"""Maximum number of columns with bounds. Delta has the same default."""
MOST_BOUNDS: Final = 160
"""Maximum number of bytes for the bounds of all columns. A column that does not fit has none."""
LEAST_FILTER: Final = 4
MOST_FILTER: Final = 64
"""Minimum and maximum number of bytes of the filter of keys."""
MOST_HASHES: Final = 8
MOST_KEYS: Final = 2 * MOST_FILTER
"""A part with more distinct keys has no filter of keys."""
MOST_NAME: Final = 100
"""A column with a longer name has no bounds, and is not known as the key."""
SHARED: Final = 40
"""Maximum length of the common prefix of two bounds that is kept."""
REST: Final = 12
"""Maximum length of a bound of a text or binary after the common prefix. What follows is cut off."""

VERSION: Final = 1
KINDS: Final = "ibdtnmfsx"
"""Integers, booleans, dates, timestamps, timestamps without a zone, decimals, floating-point numbers, texts, binaries."""
WHOLE: Final = "ibdtnm"
BYTES: Final = "sx"
_KIND, _NONE = 0x0F, 0x0F
_NULLS, _ONLY_NULLS, _CUT, _NO_HIGH = 0x10, 0x20, 0x40, 0x80
_SEED: Final = 0x5E67


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a column of a part.

    kind        one of KINDS, or empty: no value is known
    low, high   every value that is not null lies between them, both included. `high` is None if there is no upper bound: some
                values are NaN, which is larger than every number
    scale       of decimals
    cut         of texts and binaries: every value that begins with `high` lies below the bound, too
    nulls       whether some values may be null
    only_nulls  whether all values are null; then there are no bounds
    """

    kind: str = ""
    low: int | float | bytes | None = None
    high: int | float | bytes | None = None
    scale: int = 0
    cut: bool = False
    nulls: bool = True
    only_nulls: bool = False


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A Bloom filter of the keys of a part: `hashes` bits for each key. Every key of the part passes, and few others do."""

    bits: bytes
    hashes: int

    @classmethod
    def of(cls, keys: Sequence[bytes]) -> KeyFilter:
        """Build a filter. It has eight bits for each key, and LEAST_FILTER to MOST_FILTER bytes."""
        size = min(max(len(keys), LEAST_FILTER), MOST_FILTER)
        hashes = min(max(1, round(0.69 * 8 * size / max(len(keys), 1))), MOST_HASHES)
        found = 0
        for key in keys:
            for place in _places(key, hashes, 8 * size):
                found |= 1 << place
        return cls(found.to_bytes(size, "little"), hashes)

    def may_have(self, key: bytes) -> bool:
        return all(self.bits[place >> 3] & 1 << (place & 7) for place in _places(key, self.hashes, 8 * len(self.bits)))


def _places(key: bytes, hashes: int, size: int) -> list[int]:
    """Return the bits of a key. The growing step keeps them apart where it has a factor in common with the number of bits."""
    place, step = mmh3.hash64(key, _SEED, signed=False)
    found = []
    for i in range(1, hashes + 1):
        found.append(place % size)
        place += step
        step += i
    return found


@dataclass(frozen=True, slots=True)
class Statistics:
    """The statistics of a part. `key`: the column by whose hash every row of the part came to its segment, except rows without a
    key. None: that is not known. `keys`: the filter of the values of this column.
    """

    columns: dict[str, Bounds]
    key: str | None = None
    keys: KeyFilter | None = None


def encode(found: Statistics) -> str | None:
    """Return the statistics as a text, or None if they tell nothing. Columns come in the order of `columns` while they fit."""
    out = bytearray((VERSION, 0))
    if found.key is not None and len(name := found.key.encode()) <= MOST_NAME:
        out[1] = 1
        out += bytes((len(name),)) + name
        out += bytes((0,)) if found.keys is None else bytes((len(found.keys.bits), found.keys.hashes)) + found.keys.bits
    left = MOST_BOUNDS
    for name_of, bounds in found.columns.items():
        text = _column(name_of.encode(), bounds)
        if text is not None and len(text) <= left:
            out += text
            left -= len(text)
    return None if len(out) == 2 else b64encode(out).decode()


def _column(name: bytes, bounds: Bounds) -> bytes | None:
    if len(name) > MOST_NAME:
        return None
    flags = KINDS.index(bounds.kind) if bounds.kind else _NONE
    flags |= (_NULLS if bounds.nulls else 0) | (_ONLY_NULLS if bounds.only_nulls else 0)
    low, high = bounds.low, bounds.high
    if low is None:
        return _named(name, flags | _NO_HIGH) if bounds.only_nulls or not bounds.nulls else None
    if high is None:
        flags |= _NO_HIGH
    if isinstance(low, bytes):
        assert isinstance(high, bytes)
        return _texts(name, flags | (_CUT if bounds.cut else 0), low, high)
    if isinstance(low, float):
        return _named(name, flags) + struct.pack("<d", low) + (b"" if high is None else struct.pack("<d", high))
    assert isinstance(high, int)
    scale = bytes((bounds.scale,)) if bounds.kind == "m" else b""
    first, step = low.to_bytes(low.bit_length() // 8 + 1, "big", signed=True), high - low
    more = step.to_bytes((step.bit_length() + 7) // 8, "big")
    return _named(name, flags) + scale + bytes((len(first), len(more))) + first + more


def _named(name: bytes, flags: int) -> bytes:
    return bytes((len(name),)) + name + bytes((flags,))


def _texts(name: bytes, flags: int, low: bytes, high: bytes) -> bytes:
    """Encode the bounds of a text. A lower bound that is cut off is lower. If the upper bound is cut off, `_CUT` says so."""
    same = 0
    while same < min(len(low), len(high), SHARED) and low[same] == high[same]:
        same += 1
    first, last = low[same : same + REST], high[same : same + REST]
    if same + len(last) < len(high):
        flags |= _CUT
    return _named(name, flags) + bytes((same, len(first), len(last))) + low[:same] + first + last


def decode(text: str, wanted: Iterable[str] | None = None) -> Statistics:
    """Return the statistics in a text, with the columns `wanted` (None: all). Statistics of a later version are without bounds.

    Raises ValueError for a text that `encode` never gives.
    """
    check_statistics(text)
    data = b64decode(text, validate=True)
    if len(data) < 2:
        raise ValueError(f"statistics of {len(data)} bytes")
    if data[0] != VERSION:
        return Statistics({})
    try:
        return _decoded(data, None if wanted is None else {name.encode() for name in wanted})
    except (IndexError, struct.error) as error:
        raise ValueError(f"statistics that end too early: {error}") from error


def _decoded(data: bytes, wanted: set[bytes] | None) -> Statistics:
    at, key, keys = 2, None, None
    if data[1] == 1:
        end = at + 1 + data[at]
        key, size, at = data[at + 1 : end].decode(), data[end], end + 1
        if size:
            hashes, bits = data[at], data[at + 1 : at + 1 + size]
            if not 1 <= hashes <= MOST_HASHES or len(bits) != size:
                raise ValueError("an impossible filter of keys")
            keys, at = KeyFilter(bits, hashes), at + 1 + size
    elif data[1]:
        raise ValueError("an unknown kind of key")
    columns: dict[str, Bounds] = {}
    while at < len(data):
        end = at + 1 + data[at]
        name, flags = data[at + 1 : end], data[end]
        at, bounds = _bounds(data, end + 1, flags)
        if at > len(data):
            raise ValueError("statistics that end too early")
        if wanted is None or name in wanted:
            columns[name.decode()] = bounds
    return Statistics(columns, key, keys)


def _bounds(data: bytes, at: int, flags: int) -> tuple[int, Bounds]:
    """Return the bounds that begin at `at`, and where they end."""
    nulls, only = bool(flags & _NULLS), bool(flags & _ONLY_NULLS)
    if flags & _KIND == _NONE:
        return at, Bounds(nulls=nulls, only_nulls=only)
    if flags & _KIND >= len(KINDS):
        raise ValueError("bounds of an unknown kind")
    kind = KINDS[flags & _KIND]
    if kind == "f":
        (low,) = struct.unpack_from("<d", data, at)
        if flags & _NO_HIGH:
            return _checked(at + 8, Bounds(kind, low, None, nulls=nulls))
        return _checked(at + 16, Bounds(kind, low, struct.unpack_from("<d", data, at + 8)[0], nulls=nulls))
    if kind in BYTES:
        same, first, last = data[at : at + 3]
        begin = at + 3 + same
        shared, end = data[at + 3 : begin], begin + first + last
        low_text, high_text = shared + data[begin : begin + first], shared + data[begin + first : end]
        return end, Bounds(kind, low_text, high_text, cut=bool(flags & _CUT), nulls=nulls)
    scale = 0
    if kind == "m":
        scale, at = data[at], at + 1
    first, more = data[at], data[at + 1]
    begin, end = at + 2 + first, at + 2 + first + more
    number = int.from_bytes(data[at + 2 : begin], "big", signed=True)
    return end, Bounds(kind, number, number + int.from_bytes(data[begin:end], "big"), scale, nulls=nulls)


def _checked(end: int, bounds: Bounds) -> tuple[int, Bounds]:
    """Refuse bounds that are no numbers: a comparison with NaN is always false."""
    if any(bound is not None and bound != bound for bound in (bounds.low, bounds.high)):
        raise ValueError("a bound that is no number")
    return end, bounds
