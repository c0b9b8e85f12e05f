"""The frames of Pulsar's binary protocol. Pure: bytes in, frames out.

A frame is a size (4 bytes, big-endian), the size of a command (4 bytes), a `BaseCommand`, and the rest of the frame. The rest is
empty, or it is an entry (`encode_entry`): optional broker metadata (magic 0x0e02), a CRC-32C of what follows (magic 0x0e01), the
size of the metadata, the metadata, and the payload.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final

import google_crc32c
from google.protobuf.message import DecodeError

from pulsar_protocol.errors import ProtocolError
from pulsar_protocol.messages import BaseCommand, MessageMetadata

MAX_FRAME: Final = 5 * 1024 * 1024 + 64 * 1024
"""The greatest size of a frame in bytes, until the broker has named its own limit of a message. It is Pulsar's default limit of a
message, and room for metadata.
"""
_CHECKSUM: Final = b"\x0e\x01"
_BROKER_METADATA: Final = b"\x0e\x02"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame: a `BaseCommand` and the bytes after it (empty for commands without an entry)."""

    command: Any
    rest: bytes


def encode(command: Any, entry: bytes = b"") -> bytes:
    """Return the bytes of a frame."""
    body: bytes = command.SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry), len(body)) + body + entry


class FrameParser:
    """Collects bytes until they are frames.

    parser = FrameParser()
    for frame in parser.feed(data): ...
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        """`limit`: the greatest size of a frame in bytes. The handshake may raise it."""
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes from the peer. Return the frames that are complete. Raises ProtocolError, after which the connection is of no
        use.
        """
        self._buffer += data
        found, at = [], 0
        while len(self._buffer) - at >= 4:
            (size,) = struct.unpack_from(">I", self._buffer, at)
            if not 4 <= size <= self.limit:
                raise ProtocolError(f"A frame of {size} bytes was announced; at most {self.limit} are possible.", advice=_ADVICE)
            if len(self._buffer) - at < 4 + size:
                break
            found.append(_frame(bytes(self._buffer[at + 4 : at + 4 + size])))
            at += 4 + size
        del self._buffer[:at]
        return found


_ADVICE: Final = "Check that the service URL is the binary port of a Pulsar broker or proxy (6650), not its web port."


def _frame(body: bytes) -> Frame:
    (size,) = struct.unpack_from(">I", body)
    if size > len(body) - 4:
        raise ProtocolError(f"A command of {size} bytes was announced in a frame of {len(body)}.", advice=_ADVICE)
    try:
        return Frame(BaseCommand.FromString(body[4 : 4 + size]), body[4 + size :])
    except DecodeError as error:
        raise ProtocolError(f"A command could not be parsed: {error}.", advice=_ADVICE) from error


def encode_entry(metadata: Any, payload: bytes) -> bytes:
    """Return the bytes of an entry, as a producer sends them."""
    head: bytes = metadata.SerializeToString()
    body = struct.pack(">I", len(head)) + head + payload
    return _CHECKSUM + struct.pack(">I", google_crc32c.value(body)) + body


def decode_entry(entry: bytes) -> tuple[Any, memoryview]:
    """Return the `MessageMetadata` and the payload of an entry. Raises ProtocolError if the entry is damaged."""
    view, at = memoryview(entry), 0
    try:
        if bytes(view[:2]) == _BROKER_METADATA:
            at = 6 + struct.unpack_from(">I", view, 2)[0]
        if bytes(view[at : at + 2]) == _CHECKSUM:
            (expected,) = struct.unpack_from(">I", view, at + 2)
            at += 6
            if google_crc32c.value(bytes(view[at:])) != expected:
                raise ProtocolError("The checksum of an entry is wrong.", advice="Read it again; if it stays so, it is damaged.")
        (size,) = struct.unpack_from(">I", view, at)
        if size > len(view) - at - 4:
            raise ProtocolError(f"Metadata of {size} bytes was announced in an entry of {len(view)}.", advice="It is damaged.")
        return MessageMetadata.FromString(bytes(view[at + 4 : at + 4 + size])), view[at + 4 + size :]
    except (struct.error, DecodeError) as error:
        raise ProtocolError(f"An entry could not be parsed: {error}.", advice="It is damaged.") from error
