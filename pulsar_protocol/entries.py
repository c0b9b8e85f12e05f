"""The messages of one entry: batches, compression and metadata. Pure.

An entry has one message, or a batch of messages. The payload of a batch has three parts for each message: the size of its metadata
(4 bytes), a `SingleMessageMetadata` and its value. The payload is compressed as a whole.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

from pulsar_protocol.errors import NotSupported, ProtocolError
from pulsar_protocol.frames import decode_entry, encode_entry
from pulsar_protocol.messages import MessageMetadata, SingleMessageMetadata

Compression = Literal["none", "lz4", "zlib", "zstd", "snappy"]
_NUMBERS: Final[dict[Compression, int]] = {"none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4}
_ARROW: Final = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
"""The name in pyarrow of each compression that pyarrow has."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send, or one that was read. `value` None: a null value (a deletion, for readers that compact). `key`: the bytes
    that route it. `event_ms`: the event time in ms, 0 if it has none. `key_is_binary`: whether the key was given as bytes, so that
    it travels in base64.
    """

    value: bytes | None
    key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_ms: int = 0
    ordering_key: bytes | None = None
    key_is_binary: bool = False


def compressed(payload: bytes, compression: Compression) -> bytes:
    """Return the compressed payload."""
    number = _NUMBERS[compression]
    if number == 0:
        return payload
    if number == 2:
        return zlib.compress(payload)
    return bytes(pa.Codec(_ARROW[number]).compress(payload, asbytes=True))


def decompressed(payload: bytes | memoryview, number: int, size: int) -> bytes | memoryview:
    """Return the payload before compression. `number`: Pulsar's number of the compression. `size`: its size in bytes. Raises
    ProtocolError, NotSupported.
    """
    if number == 0:
        return payload
    try:
        if number == 2:
            found = zlib.decompress(payload)
        elif number in _ARROW:
            found = bytes(pa.Codec(_ARROW[number]).decompress(payload, size, asbytes=True))
        else:
            raise NotSupported(f"An entry has the unknown compression {number}.", advice="It needs a newer txnsegment.")
    except (zlib.error, pa.ArrowException, OSError, ValueError) as error:
        raise ProtocolError(f"An entry could not be decompressed: {error}.", advice="It is damaged.") from error
    if len(found) != size:
        raise ProtocolError(f"An entry has {len(found)} bytes after decompression, not {size}.", advice="It is damaged.")
    return found


def encode_batch(
    messages: Sequence[Message],
    *,
    producer: str,
    sequence: int,
    publish_ms: int,
    schema_version: bytes | None = None,
    txn: tuple[int, int] | None = None,
    compression: Compression = "none",
) -> bytes:
    """Return an entry with a batch of messages. `sequence`: the sequence id of its first message. `txn`: the two numbers (most,
    least) of the transaction.
    """
    pieces = []
    for number, one in enumerate(messages):
        single = SingleMessageMetadata(payload_size=len(one.value or b""), sequence_id=sequence + number)
        _describe(single, one)
        head = single.SerializeToString()
        pieces += [struct.pack(">I", len(head)), head, one.value or b""]
    payload = b"".join(pieces)
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=sequence,
        publish_time=publish_ms,
        uncompressed_size=len(payload),
        num_messages_in_batch=len(messages),
        highest_sequence_id=sequence + len(messages) - 1,
    )
    if compression != "none":
        metadata.compression = _NUMBERS[compression]
    if schema_version:
        metadata.schema_version = schema_version
    if txn is not None:
        metadata.txnid_most_bits, metadata.txnid_least_bits = txn
    return encode_entry(metadata, compressed(payload, compression))


def _describe(metadata: Any, message: Message) -> None:
    """Set the fields that a message has in its metadata."""
    if message.key is not None:
        if message.key_is_binary:
            metadata.partition_key, metadata.partition_key_b64_encoded = base64.b64encode(message.key).decode(), True
        else:
            metadata.partition_key = message.key.decode()
    for name, value in message.properties.items():
        metadata.properties.add(key=name, value=value)
    if message.event_ms:
        metadata.event_time = message.event_ms
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    if message.value is None:
        metadata.null_value = True


def _message(metadata: Any, value: bytes) -> Message:
    """Return a message from its metadata (`MessageMetadata` of a single message, or `SingleMessageMetadata`)."""
    binary = metadata.partition_key_b64_encoded
    key: bytes | None = None
    if metadata.HasField("partition_key"):
        key = base64.b64decode(metadata.partition_key) if binary else metadata.partition_key.encode()
    return Message(
        None if metadata.null_value else value,
        key,
        {one.key: one.value for one in metadata.properties},
        metadata.event_time,
        metadata.ordering_key if metadata.HasField("ordering_key") else None,
        binary,
    )


@dataclass(frozen=True, slots=True)
class Entry:
    """A parsed entry. `metadata`: its `MessageMetadata`. `payload`: the bytes after decompression."""

    metadata: Any
    payload: bytes | memoryview

    @property
    def is_marker(self) -> bool:
        """Whether the entry is a marker of the broker, which has no message."""
        return bool(self.metadata.HasField("marker_type"))

    @property
    def count(self) -> int:
        """The number of messages, and of permits that the entry used."""
        return int(self.metadata.num_messages_in_batch) if self.metadata.HasField("num_messages_in_batch") else 1

    def messages(self) -> Iterator[Message]:
        """Yield the messages in their order. Raises ProtocolError if a batch is damaged."""
        if not self.metadata.HasField("num_messages_in_batch"):
            yield _message(self.metadata, bytes(self.payload))
            return
        view, at = memoryview(self.payload), 0
        try:
            for _ in range(self.count):
                (size,) = struct.unpack_from(">I", view, at)
                single = SingleMessageMetadata.FromString(bytes(view[at + 4 : at + 4 + size]))
                at += 4 + size + single.payload_size
                if at > len(view):
                    raise ProtocolError("A batch is shorter than its messages.", advice="It is damaged.")
                if not single.compacted_out:
                    yield _message(single, bytes(view[at - single.payload_size : at]))
        except struct.error as error:
            raise ProtocolError(f"A batch could not be parsed: {error}.", advice="It is damaged.") from error


def parse(entry: bytes) -> Entry:
    """Return a parsed entry. Raises ProtocolError if it is damaged, NotSupported if it is encrypted or a chunk of a message."""
    metadata, payload = decode_entry(entry)
    if metadata.encryption_keys:
        raise NotSupported(
            "An entry is encrypted.", advice="txnsegment reads no encrypted topics; read it with Pulsar's Java client."
        )
    return Entry(metadata, decompressed(payload, metadata.compression, metadata.uncompressed_size))
