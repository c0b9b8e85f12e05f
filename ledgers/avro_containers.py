"""Avro containers of index snapshots, read without believing what they claim: each number in them is checked against the bytes that
are there. All functions raise ValueError.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final, NamedTuple

import fastavro

from ledgers.avro.parsing import parse
from ledgers.avro.schema import Record, dump
from ledgers.errors import SchemaError

MAX_BLOCK_BYTES: Final = 64 * 2**20
"""Of a block's content, unpacked: about a thousand times what a block of 256 parts takes."""
_MAGIC: Final = b"Obj\x01"


class Container(NamedTuple):
    """The header of an Avro container: its metadata, the marker behind each block, and where the first block begins."""

    metadata: Mapping[str, bytes]
    sync: bytes
    begin: int


def container(data: bytes) -> Container:
    """Read the header of an Avro container."""
    if not data.startswith(_MAGIC):
        raise ValueError("it is no Avro container")
    metadata: dict[str, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = long(data, at)
        if count < 0:  # then the length of the block follows
            count, (_, at) = -count, long(data, at)
        if count == 0:
            break
        for _ in range(count):  # each pair has two bytes at least, so this ends with the bytes
            name, at = _bytes(data, at)
            metadata[name.decode()], at = _bytes(data, at)
    if len(data) < at + 16:
        raise ValueError("its header does not end")
    return Container(metadata, data[at : at + 16], at + 16)


def writer_schema(metadata: Mapping[str, bytes]) -> Any:
    """The schema that a container was written with, ready for fastavro. One whose values may have no bytes is refused: an array of
    such could have any number of them.
    """
    try:
        record: Record = parse(metadata["avro.schema"].decode())
    except KeyError as error:
        raise ValueError("its header has no schema") from error
    except SchemaError as error:
        raise ValueError(f"the schema in its header cannot be used: {error.message}") from error
    return fastavro.parse_schema(dump(record))


def one_record(data: bytes, begin: int, sync: bytes) -> bytes:
    """The content of a container's one block, which has one record."""
    count, at = long(data, begin)
    size, at = long(data, at)
    if count != 1 or size < 0 or at + size + 16 != len(data) or data[at + size :] != sync:
        raise ValueError("it has more than one record, or its length is another")
    return data[at : at + size]


def decoded(content: bytes, schema: Any) -> dict[str, Any]:
    """The one record that some bytes are, from the first to the last of them."""
    stream = BytesIO(content)
    try:
        found = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:  # whatever fastavro meets in bytes that are not what they should be
        raise ValueError(f"it is no Avro of its schema: {type(error).__name__}: {error!s:.200}") from error
    if not isinstance(found, dict) or stream.tell() != len(content):
        raise ValueError("it is no Avro of its schema: bytes are left")
    return found


def unpacked(raw: bytes) -> bytes:
    """The content of a block: one record, deflated, behind its count and its length."""
    count, at = long(raw, 0)
    size, at = long(raw, at)
    if count != 1 or size != len(raw) - at:
        raise ValueError("a block of another length than it says")
    inflate = zlib.decompressobj(-15)
    try:
        content = inflate.decompress(raw[at:], MAX_BLOCK_BYTES)
    except zlib.error as error:
        raise ValueError(f"a block that cannot be unpacked: {error}") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"a block that does not end, or of more than {MAX_BLOCK_BYTES} bytes")
    return content


def long(data: bytes, at: int) -> tuple[int, int]:
    """An Avro long, and where it ends."""
    value = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("a number in it does not end")


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = long(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError("a text in it does not end")
    return data[at : at + length], at + length


def put_long(value: int) -> bytes:
    """A non-negative long as Avro writes it: zigzag, then seven bits at a time."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class OneRecord:
    """Avro containers of one plain record, byte for byte as fastavro writes them. Its schema, the greater part of each, is put into
    bytes once, and not parsed again where a file begins as ours do.
    """

    def __init__(self, schema: Any) -> None:
        """`schema`: parsed."""
        self._schema = schema
        out = BytesIO()
        fastavro.writer(out, schema, [], sync_marker=bytes(16))
        self._begin = out.getvalue()[:-16]

    def write(self, record: dict[str, Any], sync: bytes) -> bytes:
        """`sync`: the marker, 16 bytes."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, record)
        plain = out.getvalue()
        return b"".join((self._begin, sync, put_long(1), put_long(len(plain)), plain, sync))

    def read(self, data: bytes) -> Any:
        """The record of a container, also of one that others wrote. Raises ValueError."""
        if data.startswith(self._begin):
            begin = len(self._begin)
            return decoded(one_record(data, begin + 16, data[begin : begin + 16]), self._schema)
        head = container(data)
        if head.metadata.get("avro.codec", b"null") != b"null":
            raise ValueError("it is packed, which no head is")
        return decoded(one_record(data, head.begin, head.sync), writer_schema(head.metadata))
