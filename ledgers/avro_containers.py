"""Reads and writes the Avro containers of index snapshots. Each length in a file is checked against the available bytes, because
the file may be damaged. All functions raise ValueError.
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
"""Maximum unpacked size of a block: about a thousand times the size of a block of 256 parts."""
_MAGIC: Final = b"Obj\x01"


class Container(NamedTuple):
    """The header of an Avro container: its metadata, the sync marker after each block, and the offset of the first block."""

    metadata: Mapping[str, bytes]
    sync: bytes
    begin: int


def container(data: bytes) -> Container:
    """Read the header of an Avro container."""
    if not data.startswith(_MAGIC):
        raise ValueError("it is not an Avro container")
    metadata: dict[str, bytes] = {}
    at = len(_MAGIC)
    while True:
        count, at = long(data, at)
        if count < 0:  # the length of the block follows a negative count
            count, (_, at) = -count, long(data, at)
        if count == 0:
            break
        for _ in range(count):  # each pair takes at least two bytes, so the loop ends when the data ends, or earlier
            name, at = _bytes(data, at)
            metadata[name.decode()], at = _bytes(data, at)
    if len(data) < at + 16:
        raise ValueError("its header is truncated")
    return Container(metadata, data[at : at + 16], at + 16)


def writer_schema(metadata: Mapping[str, bytes]) -> Any:
    """Return the schema of a container, parsed for fastavro. Raises ValueError for a schema with values of zero bytes, because a
    short file could hold an array with any number of them.
    """
    try:
        record: Record = parse(metadata["avro.schema"].decode())
    except KeyError as error:
        raise ValueError("its header has no schema") from error
    except SchemaError as error:
        raise ValueError(f"the schema in its header cannot be used: {error.message}") from error
    return fastavro.parse_schema(dump(record))


def one_record(data: bytes, begin: int, sync: bytes) -> bytes:
    """Return the content of a container's only block, which has one record."""
    count, at = long(data, begin)
    size, at = long(data, at)
    if count != 1 or size < 0 or at + size + 16 != len(data) or data[at + size :] != sync:
        raise ValueError("it has more than one record, or a wrong length")
    return data[at : at + size]


def decoded(content: bytes, schema: Any) -> dict[str, Any]:
    """Decode one record. Raises ValueError if bytes are left after it."""
    stream = BytesIO(content)
    try:
        found = fastavro.schemaless_reader(stream, schema, None)
    except Exception as error:  # fastavro raises many kinds of errors for invalid bytes
        raise ValueError(f"it is not Avro of its schema: {type(error).__name__}: {error!s:.200}") from error
    if not isinstance(found, dict) or stream.tell() != len(content):
        raise ValueError("it is not Avro of its schema: bytes are left over")
    return found


def unpacked(raw: bytes) -> bytes:
    """Return the content of a block that has one deflated record. `raw`: the number of records, the length, the record."""
    count, at = long(raw, 0)
    size, at = long(raw, at)
    if count != 1 or size != len(raw) - at:
        raise ValueError("a block whose length is wrong")
    inflate = zlib.decompressobj(-15)
    try:
        content = inflate.decompress(raw[at:], MAX_BLOCK_BYTES)
    except zlib.error as error:
        raise ValueError(f"a block that cannot be decompressed: {error}") from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError(f"a block that is truncated, or has more than {MAX_BLOCK_BYTES} bytes")
    return content


def long(data: bytes, at: int) -> tuple[int, int]:
    """Decode the Avro long at the offset `at`. Return the number and the offset after it."""
    value = shift = 0
    for byte in data[at : at + 10]:
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("a number in it is truncated")


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = long(data, at)
    if not 0 <= length <= len(data) - at:
        raise ValueError("a text in it is truncated")
    return data[at : at + length], at + length


def put_long(value: int) -> bytes:
    """Encode a non-negative long as Avro does: zigzag, then seven bits at a time."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class OneRecord:
    """Writer and reader of Avro containers with one record, byte for byte as fastavro writes them. The schema makes up most of such
    a file. It is encoded once for all files, and not parsed again for a file that begins with the same bytes.
    """

    def __init__(self, schema: Any) -> None:
        """`schema`: parsed by fastavro."""
        self._schema = schema
        out = BytesIO()
        fastavro.writer(out, schema, [], sync_marker=bytes(16))
        self._begin = out.getvalue()[:-16]

    def write(self, record: dict[str, Any], sync: bytes) -> bytes:
        """Return the container's bytes. `sync`: the sync marker, 16 bytes."""
        out = BytesIO()
        fastavro.schemaless_writer(out, self._schema, record)
        plain = out.getvalue()
        return b"".join((self._begin, sync, put_long(1), put_long(len(plain)), plain, sync))

    def read(self, data: bytes) -> Any:
        """Return the record of a container, also of a container by another writer. Raises ValueError."""
        if data.startswith(self._begin):
            begin = len(self._begin)
            return decoded(one_record(data, begin + 16, data[begin : begin + 16]), self._schema)
        head = container(data)
        if head.metadata.get("avro.codec", b"null") != b"null":
            raise ValueError("it is compressed, which a head never is")
        return decoded(one_record(data, head.begin, head.sync), writer_schema(head.metadata))
