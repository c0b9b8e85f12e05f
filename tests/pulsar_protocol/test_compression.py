"""Tests of the payload of an entry before and after compression. `make pulsar` compares with Pulsar's Java client."""

from __future__ import annotations

import zlib

import pytest

from pulsar_protocol.entries import decompressed
from pulsar_protocol.errors import ProtocolError

ZLIB = 2
TEXT = b"the same words again, " * 300


def test_a_zlib_stream_without_an_end_is_read() -> None:
    """Pulsar's Java client flushes the stream and does not finish it."""
    stream = zlib.compressobj()
    payload = stream.compress(TEXT) + stream.flush(zlib.Z_SYNC_FLUSH)
    assert decompressed(payload, ZLIB, len(TEXT)) == TEXT
    assert decompressed(zlib.compress(TEXT), ZLIB, len(TEXT)) == TEXT
    assert decompressed(zlib.compress(b""), ZLIB, 0) == b""


@pytest.mark.parametrize("size", [0, len(TEXT) - 1, len(TEXT) + 1])
def test_a_zlib_stream_of_another_size_is_damaged(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"not {size}. It is damaged"):
        decompressed(zlib.compress(TEXT), ZLIB, size)


def test_a_cut_zlib_stream_is_damaged() -> None:
    with pytest.raises(ProtocolError, match="after decompression"):
        decompressed(zlib.compress(TEXT)[:-10], ZLIB, len(TEXT))


def test_other_bytes_are_no_zlib_stream() -> None:
    with pytest.raises(ProtocolError, match="could not be decompressed"):
        decompressed(b"not compressed at all", ZLIB, 21)
