"""Checks the page headers of a part, because Parquet's page checksums cover the content of a page but not its header.

A changed byte in a header can make a reader return nulls in other rows, without a checksum error. (A test shows this: it changes
the encoding of Parquet's levels, which say which values are null.) So each header is compared with the footer, whose CRC-32 is in
the registration. The pages of a column chunk must fill the chunk exactly: in compressed bytes, in uncompressed bytes and in values.
Each page must have a checksum, and an encoding that our writer uses and the footer names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_ENOUGH = 192
_LONGEST = 64 * 1024
_LEVELS = 8
"""Maximum nesting of structs; a page header has three levels."""
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_NAMES = {_PLAIN: "PLAIN", _PLAIN_DICTIONARY: "PLAIN_DICTIONARY", _RLE: "RLE", _RLE_DICTIONARY: "RLE_DICTIONARY"}


class BadPage(Exception):
    """A page header does not fit its column chunk. The text names the problem."""


def check_pages(stream: pa.NativeFile, metadata: pq.FileMetaData, entry: int, columns: Iterable[int]) -> None:
    """Check the page headers of some Parquet columns of one row group. Raises BadPage, OSError."""
    group = metadata.row_group(entry)
    for index in columns:
        chunk = group.column(index)
        try:
            _check_chunk(stream, chunk)
        except BadPage as error:
            raise BadPage(f"entry {entry}, column {chunk.path_in_schema}: {error}") from error


def _check_chunk(stream: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> None:
    at = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
    end = at + chunk.total_compressed_size
    dictionary_due = chunk.dictionary_page_offset is not None
    if at < 0 or chunk.total_compressed_size < 0 or end > stream.size():
        raise BadPage("its column chunk lies outside of the file")
    values = unpacked = 0
    plain_only = not dictionary_due
    while at < end:
        header, length = _read_header(stream, at, end)
        kind, size, packed, _checksum = (_number(header, field) for field in (1, 2, 3, 4))
        if min(size, packed) < 0:
            raise BadPage("a page has a negative size")
        if kind == _DICTIONARY_PAGE and dictionary_due:
            if _number(_inner(header, 7), 2) not in (_PLAIN, _PLAIN_DICTIONARY):
                raise BadPage("a dictionary page has an unknown encoding")
            dictionary_due = False
        elif kind == _DATA_PAGE and not dictionary_due:
            count, encoding, *levels = (_number(_inner(header, 5), field) for field in (1, 2, 3, 4))
            if _NAMES.get(encoding) not in chunk.encodings or levels != [_RLE, _RLE]:
                raise BadPage("a page has an encoding that the footer does not name")
            if encoding == _RLE_DICTIONARY and plain_only:
                raise BadPage("a page refers to a dictionary where there is none")
            plain_only = plain_only or encoding == _PLAIN
            values += count
        else:
            raise BadPage("a page of an unexpected kind")
        unpacked += length + size
        at += length + packed
    if at != end or values != chunk.num_values or unpacked != chunk.total_uncompressed_size:
        raise BadPage(
            f"its pages hold {values} values in {unpacked} bytes, not {chunk.num_values} in {chunk.total_uncompressed_size}"
        )


def _read_header(stream: pa.NativeFile, at: int, end: int) -> tuple[dict[int, Any], int]:
    """Read a page header. Return its values by Thrift field number, and its length. Most headers are short. Statistics of long
    texts make a header long: then the first read is too short, and a second one reads more bytes.
    """
    for enough in (_ENOUGH, _LONGEST):
        raw = stream.read_at(min(enough, end - at), at)
        try:
            return _struct(raw, 0, 1)
        except IndexError as error:
            if len(raw) < enough or enough == _LONGEST:
                raise BadPage("a page header is truncated") from error
    raise AssertionError("the last round returns or raises")


def _number(header: dict[int, Any], field: int) -> int:
    found = header.get(field)
    if type(found) is not int:
        raise BadPage(f"a page header lacks its field {field}")
    return found


def _inner(header: dict[int, Any], field: int) -> dict[int, Any]:
    found = header.get(field)
    if not isinstance(found, dict):
        raise BadPage(f"a page header lacks its field {field}")
    return found


def _struct(raw: bytes, at: int, level: int) -> tuple[dict[int, Any], int]:
    """Decode a struct of Thrift's compact protocol, in which Parquet's page headers are written (they have no lists). Return the
    struct and the offset after it. `level`: the nesting depth of the struct, from 1.
    """
    if level > _LEVELS:
        raise BadPage("a page header is not what Parquet describes")
    found: dict[int, Any] = {}
    number = 0
    while True:
        head = raw[at]
        at += 1
        if head == 0:
            return found, at
        kind, step = head & 0x0F, head >> 4
        if step:
            number += step
        else:
            zigzag, at = _varint(raw, at)
            number = (zigzag >> 1) ^ -(zigzag & 1)
        if kind in (1, 2):
            found[number] = kind == 1
        elif kind in (4, 5, 6):
            zigzag, at = _varint(raw, at)
            found[number] = (zigzag >> 1) ^ -(zigzag & 1)
        elif kind == 8:
            length, at = _varint(raw, at)
            at += length
            raw[at - 1]  # IndexError for a text beyond the bytes that were read
        elif kind == 12:
            found[number], at = _struct(raw, at, level + 1)
        else:
            raise BadPage("a page header is not what Parquet describes")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise BadPage("a page header is not what Parquet describes")
