"""Checksums of the bytes of a part: a CRC-32C for each block of 64 KiB before the footer.

The writer puts them into the footer, whose CRC-32 is in the registration. A reader checks each block that it reads. So no changed
byte gives other rows. Parquet's own page checksums do not cover the headers of pages, and take more time to check.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from typing import Any, Final

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from ledgers.io_errors import retried

BLOCK: Final = 64 * 1024
KEY: Final = b"txnsegment.crc32c"
"""The footer's key for the checksums: numbers of four bytes, little-endian, in base64."""


class BadBlock(Exception):
    """A block does not have its checksum, or there is none for it. The text names the problem."""


class SummedOutput:
    """A file object for `pa.PythonFile`: writes to `stream`, and computes the checksums of what it has written."""

    closed = False

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream
        self.size = 0
        """How many bytes were written."""
        self._sums = array("I")
        self._last = self._rest = 0
        """The checksum and the length of the bytes after the last whole block."""

    def write(self, data: bytes) -> None:
        self._stream.write(data)
        self.size += len(data)
        at = 0
        while at < len(data):
            piece = data[at : at + BLOCK - self._rest]
            self._last, self._rest = google_crc32c.extend(self._last, piece), self._rest + len(piece)
            at += len(piece)
            if self._rest == BLOCK:
                self._sums.append(self._last)
                self._last = self._rest = 0

    def flush(self) -> None:
        """Do nothing: the owner of the stream flushes it."""

    def close(self) -> None:
        """Do nothing: the owner of the stream closes it."""

    def sums(self) -> bytes:
        """Return the value of `KEY` for the bytes that were written so far."""
        found = self._sums + array("I", [self._last] if self._rest else [])
        if sys.byteorder == "big":
            found.byteswap()
        return b64encode(found.tobytes())


def read_sums(metadata: pq.FileMetaData, end: int) -> array[int] | None:
    """Return the checksums of the blocks of a file, or None if its writer computed none (txnsegment before 2026-11-27). `end`:
    where the footer begins. Raises BadBlock, or ValueError if they are no base64.
    """
    text = (metadata.metadata or {}).get(KEY)
    if text is None:
        return None
    found = array("I", b64decode(text, validate=True))
    if sys.byteorder == "big":
        found.byteswap()
    if len(found) != -(-end // BLOCK):
        raise BadBlock(f"its footer has {len(found)} checksums for {end} bytes")
    return found


class CheckedInput:
    """A file object for `pa.PythonFile`: reads whole blocks of `stream` up to `end`, and checks them. The bytes are not copied.

    It keeps the blocks of the last read, since the next column chunk often begins in the last one of them.
    """

    closed = False

    def __init__(self, stream: pa.NativeFile, sums: array[int], end: int) -> None:
        self._stream, self._sums, self._end = stream, sums, end
        self._at = self._begin = 0
        self._kept: pa.Buffer = pa.py_buffer(b"")

    def size(self) -> int:
        return self._end

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._end)[whence]
        return self._at

    def read_buffer(self, count: int) -> pa.Buffer:
        """Return the next bytes, fewer at the end. Raises BadBlock, OSError."""
        begin, self._at = self._at, max(self._at, min(self._at + count, self._end))
        if not self._begin <= begin <= self._at <= self._begin + self._kept.size:
            self._begin = begin - begin % BLOCK
            self._kept = self._checked(self._begin, min(-(-self._at // BLOCK) * BLOCK, self._end))
        return self._kept.slice(begin - self._begin, self._at - begin)

    def read(self, count: int) -> bytes:
        found: bytes = self.read_buffer(count).to_pybytes()
        return found

    def close(self) -> None:
        """Do nothing: the owner of the stream closes it."""

    def _checked(self, begin: int, end: int) -> pa.Buffer:
        """Read the blocks from `begin` to `end`, and check each."""

        def whole() -> pa.Buffer:
            self._stream.seek(begin)
            return self._stream.read_buffer(end - begin)

        found = retried(whole)
        if found.size < end - begin:
            raise BadBlock(f"it ends after {begin + found.size} bytes")
        for at in range(0, end - begin, BLOCK):
            block: Any = found.slice(at, min(BLOCK, end - begin - at))
            if google_crc32c.value(block) != self._sums[(begin + at) // BLOCK]:
                raise BadBlock(f"the bytes {begin + at} to {begin + at + block.size} do not have their checksum")
        return found
