"""Messages in chunks: a message that is too large for one entry is sent as several entries. Pure but for the given `read`.

Each chunk has the uuid of its message, its own number (`chunk_id`), the count of all chunks, and their total size. The payload is
compressed before it is divided. Chunks of several producers may be mixed. A producer that sends again after a lost connection
repeats chunks. The rules are those of Pulsar's Java consumer: chunk 0 begins the message (again), a chunk that is already there is
ignored, and after a gap all chunks of the message are dropped. A message that lacks a chunk is not delivered.

The position of a message in chunks is the position of its last chunk. The message belongs to the range `(start, end]` that has this
position. So each message is read exactly once, however a segment is divided into ranges. If chunks of a message are before the
start of the range, `whole` reads them as well. If the last chunk of a message is after the end of the range, `whole` leaves the
message out.

    for position, entry in whole(read, after, to):   # read(after, to) yields (position, entry), as `reader.entries` does
        entry.first                                  # the position of the first chunk; None: the entry is no message in chunks
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pulsar_protocol.entries import (
    MAX_BYTES,
    Compression,
    Entry,
    Message,
    compressed,
    compression_number,
    decompressed,
    described,
)
from pulsar_protocol.errors import NotSupported, ProtocolError, PulsarError
from pulsar_protocol.frames import encode_entry
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.messages import MessageMetadata

MAX_HELD: Final = 1 << 26
"""The greatest size, in bytes, of the incomplete messages in memory. Above this size the chunks of the oldest messages are
forgotten. They are read again when the last chunk of their message comes.
"""
MAX_MESSAGES: Final = 10_000
"""The greatest count of incomplete messages in memory."""

Read = Callable[[Position, Position], Iterable[tuple[Position, Entry]]]
"""Yields the entries of a segment after the first position, up to the second one, inclusive."""


class ChunksLost(PulsarError):
    """The first chunks of a message were deleted before its last chunk was read."""


class Missing(NamedTuple):
    """The last chunk of a message whose earlier chunks are not in memory. `last`: its position. `chunks`: how many chunks the
    message has.
    """

    uuid: str
    last: Position
    chunks: int


@dataclass
class _Begun:
    """A message of which some chunks are still missing. `first`: the position of its first chunk. `count`, `total`: how many chunks
    it has, and their size in bytes. `pieces`, `size`: the chunks that have come, and their size.
    """

    first: Position
    count: int
    total: int
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0


class Assembler:
    """Puts messages together from chunks, in bounded memory. It takes the entries of one segment in their order."""

    def __init__(self, held: int = MAX_HELD, messages: int = MAX_MESSAGES) -> None:
        """`held`, `messages`: the limits (`MAX_HELD`, `MAX_MESSAGES`). One message alone may be larger than `held`, up to
        `entries.MAX_BYTES`.
        """
        self._limit, self._messages = held, messages
        self._begun: dict[str, _Begun] = {}
        self._held = 0

    @property
    def held(self) -> int:
        """The size, in bytes, of the incomplete messages in memory."""
        return self._held

    def feed(self, position: Position, entry: Entry) -> Entry | Missing | None:
        """Take the next entry. Return it unchanged if it is no chunk. For the last chunk of a message return the whole message, or
        Missing if earlier chunks are not in memory. Return None for other chunks, and for a last chunk after a gap. Raises
        ProtocolError, NotSupported.
        """
        if not entry.is_chunk:
            return entry
        metadata = entry.metadata
        uuid, number, count, total = _checked(position, entry)
        if number == 0:
            self._forget(uuid)
            self._begun[uuid] = _Begun(position, count, total)
        one = self._begun.get(uuid)
        if one is None:
            return Missing(uuid, position, count) if number == count - 1 else None
        if (one.count, one.total) != (count, total):
            raise _damaged(position, f"has {count} chunks of {total} bytes, and earlier chunks say {one.count} of {one.total}")
        if number < len(one.pieces):
            return None
        if number > len(one.pieces):
            self._forget(uuid)
            return None
        one.pieces.append(bytes(entry.payload))
        one.size += len(entry.payload)
        self._held += len(entry.payload)
        if one.size > total:
            raise _damaged(position, f"has more than the {total} bytes that it announces")
        if number < count - 1:
            self._shrink(uuid)
            return None
        self._forget(uuid)
        if one.size != total:
            raise _damaged(position, f"has {one.size} bytes, not the {total} that it announces")
        payload = decompressed(b"".join(one.pieces), metadata.compression, metadata.uncompressed_size)
        return Entry(metadata, payload, one.first)

    def _forget(self, uuid: str) -> None:
        one = self._begun.pop(uuid, None)
        if one is not None:
            self._held -= one.size

    def _shrink(self, keep: str) -> None:
        while self._held > self._limit or len(self._begun) > self._messages:
            oldest = next((uuid for uuid in self._begun if uuid != keep), None)
            if oldest is None:
                return
            self._forget(oldest)


def _checked(position: Position, entry: Entry) -> tuple[str, int, int, int]:
    """Return the uuid of the message, the number of this chunk, how many chunks the message has, and their total size in bytes.
    Raises ProtocolError, NotSupported.
    """
    metadata = entry.metadata
    number, count, total = metadata.chunk_id, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size
    if not isinstance(metadata.uuid, str) or not metadata.uuid or not 0 <= number < count or total < 0:
        raise _damaged(position, f"is the chunk {number} of {count} of the message {metadata.uuid!r:.100}")
    if total > MAX_BYTES:
        raise NotSupported(
            f"The message of the chunk at {position.text} has {total} bytes; the limit is {MAX_BYTES}.",
            advice="Read it with Pulsar's Java client.",
        )
    return metadata.uuid, number, count, total


def _damaged(position: Position, problem: str) -> ProtocolError:
    return ProtocolError(f"The message of the chunk at {position.text} {problem}.", advice="It is damaged.")


# --- reading a range --------------------------------------------------------------------------------------------------------


def whole(
    read: Read, after: Position, to: Position, *, fail_on_loss: bool = True, held: int = MAX_HELD
) -> Iterator[tuple[Position, Entry]]:
    """Yield the entries of a range, with each message in chunks as one entry at the place of its last chunk.

    `fail_on_loss`: whether to raise ChunksLost if the first chunks of a message in the range were deleted. If it is False, or if
    `after` is EARLIEST, such a message is left out.
    """
    assembler = Assembler(held)
    for position, entry in read(after, to):
        found = assembler.feed(position, entry)
        if isinstance(found, Missing):
            begun, found = _looked_up(read, found)
            if not begun and fail_on_loss and after != EARLIEST:
                raise ChunksLost(
                    f"The message whose last chunk is at {position.text} has lost its first chunks.",
                    advice="Retention has deleted them before all chunks were read: raise it, or set failOnDataLoss=false.",
                )
        if found is not None:
            yield position, found


def _looked_up(read: Read, missing: Missing) -> tuple[bool, Entry | None]:
    """Search further and further back for the first chunk of a message. Return whether the first chunk exists, and the message. The
    message is None if its last chunk only repeats an earlier one, or comes after a gap.
    """
    for start in _starts(missing):
        assembler, begun, found = Assembler(), False, None
        for position, entry in read(start, missing.last):
            if entry.is_chunk and entry.metadata.uuid == missing.uuid:
                begun = begun or entry.metadata.chunk_id == 0
                made = assembler.feed(position, entry)
                found = made if isinstance(made, Entry) and position == missing.last else None
        if begun:
            return True, found
    return False, None


def _starts(missing: Missing) -> Iterator[Position]:
    """Yield positions from which to look for a first chunk, each further back."""
    ledger, entry = missing.last
    back = 4 * missing.chunks
    while back < entry:
        yield Position(ledger, entry - back)
        back *= 8
    yield Position(ledger, -1)
    yield EARLIEST


# --- writing ----------------------------------------------------------------------------------------------------------------


def encode_chunks(
    message: Message,
    size: int,
    *,
    producer: str,
    sequence: int,
    publish_ms: int,
    schema_version: bytes | None = None,
    txn: tuple[int, int] | None = None,
    compression: Compression = "none",
) -> list[bytes]:
    """Return the entries of a message that is too large for one entry. `size`: the greatest payload of a chunk, in bytes. The
    producer sends the entries in order, all with the same sequence id.
    """
    value = message.value or b""
    payload = compressed(value, compression)
    pieces = [payload[at : at + size] for at in range(0, len(payload), size)] or [b""]
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=sequence,
        publish_time=publish_ms,
        uncompressed_size=len(value),
        uuid=f"{producer}-{sequence}",
        num_chunks_from_msg=len(pieces),
        total_chunk_msg_size=len(payload),
    )
    described(metadata, message)
    if compression != "none":
        metadata.compression = compression_number(compression)
    if schema_version:
        metadata.schema_version = schema_version
    if txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = txn
    found = []
    for number, piece in enumerate(pieces):
        metadata.chunk_id = number
        found.append(encode_entry(metadata, piece))
    return found
