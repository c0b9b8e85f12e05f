"""The footer of a Parquet file, read once from the file's tail and checked against the CRC-32 in the registration."""

from __future__ import annotations

import zlib
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ledgers.io_errors import retried

_MAGIC = b"PAR1"
_TRAILER = 8
_GUESS = 64 * 1024


class Footer(NamedTuple):
    """The footer of a Parquet file: the metadata of the file, encoded with Thrift, and 8 bytes that end the file.

    `file_bytes`: length of the file in bytes. `crc`: CRC-32 of the encoded metadata. `tail`: the bytes of the footer. `whole`: all
    bytes of a small file, which one read returned; None for a larger file.
    """

    file_bytes: int
    crc: int
    tail: bytes
    whole: bytes | None

    def metadata(self) -> pq.FileMetaData:
        """Decode the footer. Raises pyarrow.ArrowException or OSError for invalid bytes."""
        return pq.read_metadata(pa.BufferReader(_MAGIC + self.tail))


class NotParquet(Exception):
    """The bytes do not end as a Parquet file does. The text names the problem."""


def _end(stream: pa.NativeFile, begin: int) -> bytes:
    def once() -> bytes:
        stream.seek(begin)
        found: bytes = stream.read()
        return found

    return retried(once)


def read_footer(stream: pa.NativeFile) -> Footer:
    """Read the tail of an open file, usually in one call. Raises NotParquet, OSError."""
    size: int = stream.size()
    if size < len(_MAGIC) + _TRAILER:
        raise NotParquet(f"its {size} bytes are too few for a Parquet file")
    tail = _end(stream, max(size - _GUESS, 0))
    whole = tail if size <= _GUESS else None
    if tail[-4:] != _MAGIC:
        raise NotParquet("it does not end as a Parquet file does")
    length = int.from_bytes(tail[-_TRAILER:-4], "little") + _TRAILER
    if length > size - len(_MAGIC):
        raise NotParquet(f"its footer claims {length} bytes of {size}")
    if length > len(tail):
        tail = _end(stream, size - length)
    tail = tail[-length:]
    return Footer(size, zlib.crc32(tail[:-_TRAILER]), tail, whole)
