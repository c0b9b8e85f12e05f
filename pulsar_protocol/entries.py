"""The messages of one entry: batches, compression and metadata. Pure.

An entry has one message, or a batch of messages. The payload of a batch has three parts for each message: the size of its metadata
(4 bytes), a `SingleMessageMetadata` and its value. The payload is compressed as a whole.

    entry = parse(data)
    rows = entry.rows()                                             # columns: values, keys, ..
    batch = values.decode(rows.values, rows.keys)                   # `pulsar_protocol.values`
    data = encode_batch(Rows(values.encode(batch), range(n)), ..)   # as columns
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pyarrow as pa

from pulsar_protocol.batch_payloads import batch_payload, text_key
from pulsar_protocol.batches import Message, Rows, check_end, message_of, parse_rows, single
from pulsar_protocol.errors import NotSupported, ProtocolError
from pulsar_protocol.frames import decode_entry, encode_entry
from pulsar_protocol.layout import Position
from pulsar_protocol.messages import MessageMetadata, SingleMessageMetadata

__all__ = ["MAX_BYTES", "Compression", "Entry", "Message", "Rows", "encode_batch", "parse"]

Compression = Literal["none", "lz4", "zlib", "zstd", "snappy"]
_NUMBERS: Final[dict[Compression, int]] = {"none": 0, "lz4": 1, "zlib": 2, "zstd": 3, "snappy": 4}
_ARROW: Final = {1: "lz4_raw", 3: "zstd", 4: "snappy"}
"""The name in pyarrow of each compression that pyarrow has."""
MAX_BYTES: Final = 1 << 28
"""The greatest size in bytes of a payload after decompression. An entry has at most 5 MB by default, so only a hostile entry comes
near this limit.
"""


def compression_number(compression: Compression) -> int:
    """Return Pulsar's number of a compression."""
    return _NUMBERS[compression]


def compressed(payload: bytes, compression: Compression) -> bytes:
    """Return the compressed payload."""
    number = _NUMBERS[compression]
    if number == 0:
        return payload
    if number == 2:
        return zlib.compress(payload)
    return bytes(pa.Codec(_ARROW[number]).compress(payload, asbytes=True))


def decompressed(payload: bytes | memoryview, number: int, size: int) -> bytes | memoryview:
    """Return the payload as it was before compression. `number`: Pulsar's number of the compression. `size`: the size of the
    decompressed payload in bytes. Raises ProtocolError, NotSupported.
    """
    if number == 0:
        return payload
    if size > MAX_BYTES:
        raise ProtocolError(f"An entry announces {size} bytes; at most {MAX_BYTES} are possible.", advice="It is damaged.")
    try:
        if number == 2:
            found = zlib.decompressobj().decompress(payload, size + 1)  # Pulsar's Java client does not end the zlib stream
        elif number in _ARROW:
            _check_size(payload, number, size)
            found = bytes(pa.Codec(_ARROW[number]).decompress(payload, size, asbytes=True))
        else:
            raise NotSupported(f"An entry has the unknown compression {number}.", advice="It needs a newer txnsegment.")
    except (zlib.error, pa.ArrowException, OSError, ValueError) as error:
        raise ProtocolError(f"An entry could not be decompressed: {error}.", advice="It is damaged.") from error
    if len(found) != size:
        raise ProtocolError(f"An entry has {len(found)} bytes after decompression, not {size}.", advice="It is damaged.")
    return found


def _check_size(payload: bytes | memoryview, number: int, size: int) -> None:
    """Raise ProtocolError if the payload has fewer than `size` bytes after decompression. pyarrow would fill the missing bytes with
    whatever is in its memory.
    """
    if _ARROW[number] == "snappy":
        announced = shift = 0
        for byte in bytes(payload[:5]):  # a snappy payload begins with its size after decompression
            announced |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        short = announced != size
    elif _ARROW[number] == "lz4_raw" and size:
        try:
            pa.Codec("lz4_raw").decompress(payload, size - 1)
            short = True
        except (pa.ArrowException, OSError):
            short = False
    else:  # zstd checks the size itself
        short = False
    if short:
        raise ProtocolError(f"An entry does not have {size} bytes after decompression.", advice="It is damaged.")


def encode_batch(
    messages: Sequence[Message] | Rows,
    *,
    producer: str,
    sequence: int,
    publish_ms: int,
    schema_version: bytes | None = None,
    txn: tuple[int, int] | None = None,
    compression: Compression = "none",
) -> bytes:
    """Return an entry with a batch of messages. `messages`: `Rows` are encoded faster than a list. `sequence`: the sequence id of
    the first message. `txn`: the two numbers (most, least) of the transaction. Raises ProtocolError for a key that is neither text
    nor marked as binary.
    """
    payload = _payload(messages, sequence)
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


def _payload(messages: Sequence[Message] | Rows, sequence: int) -> bytes:
    """Return the payload of a batch. `batch_payloads.batch_payload` makes the same bytes of plain rows, faster."""
    if isinstance(messages, Rows) and messages.plain:
        return batch_payload(messages, sequence)
    pieces = []
    for number, one in enumerate(messages.messages() if isinstance(messages, Rows) else messages):
        metadata = SingleMessageMetadata(payload_size=len(one.value or b""), sequence_id=sequence + number)
        described(metadata, one)
        head = metadata.SerializeToString()
        pieces += [struct.pack(">I", len(head)), head, one.value or b""]
    return b"".join(pieces)


def described(metadata: Any, message: Message) -> None:
    """Set in the metadata of a message: its key, properties, event time and ordering key, and whether its value is null."""
    if message.key is not None:
        if message.key_is_binary:
            metadata.partition_key, metadata.partition_key_b64_encoded = base64.b64encode(message.key).decode(), True
        else:
            metadata.partition_key = text_key(message.key).decode()
    for name, value in message.properties.items():
        metadata.properties.add(key=name, value=value)
    if message.event_ms:
        metadata.event_time = message.event_ms
    if message.ordering_key is not None:
        metadata.ordering_key = message.ordering_key
    if message.value is None:
        metadata.null_value = True


@dataclass(frozen=True, slots=True)
class Entry:
    """A parsed entry. `metadata`: its `MessageMetadata`. `payload`: the bytes after decompression. The payload of a chunk is its
    part of the compressed payload of the message. `first`: the position of the first chunk, if the entry was put together from
    chunks (`pulsar_protocol.chunks`). `metadata` is then the metadata of the last chunk.
    """

    metadata: Any
    payload: bytes | memoryview
    first: Position | None = None

    @property
    def is_marker(self) -> bool:
        """Whether the entry is a marker of the broker. A marker has no message."""
        return bool(self.metadata.HasField("marker_type"))

    @property
    def is_chunk(self) -> bool:
        """Whether the entry is one chunk of a message. A chunk alone has no rows."""
        return self.first is None and self.metadata.num_chunks_from_msg > 1

    @property
    def count(self) -> int:
        """How many messages the entry has. The entry uses as many permits."""
        return int(self.metadata.num_messages_in_batch) if self.metadata.HasField("num_messages_in_batch") else 1

    def rows(self) -> Rows:
        """Return the messages as columns, which is faster than `messages`. `values.decode(rows.values, rows.keys)` makes an Arrow
        batch of them. Raises ProtocolError if a batch is damaged, NotSupported for a chunk.
        """
        self._refuse_chunk()
        if self.metadata.HasField("num_messages_in_batch"):
            return parse_rows(bytes(self.payload), self.count)
        return Rows.of([message_of(self.metadata, bytes(self.payload))])

    def messages(self) -> Iterator[Message]:
        """Yield the messages in their order, each as an object. Raises ProtocolError if a batch is damaged, NotSupported for a
        chunk.
        """
        self._refuse_chunk()
        if not self.metadata.HasField("num_messages_in_batch"):
            yield message_of(self.metadata, bytes(self.payload))
            return
        payload, at = bytes(self.payload), 0
        for index in range(self.count):
            metadata, begin, at = single(payload, at, index)
            if not metadata.compacted_out:
                yield message_of(metadata, payload[begin:at])
        check_end(payload, at, self.count)

    def _refuse_chunk(self) -> None:
        if self.is_chunk:
            raise NotSupported(
                f"An entry is a chunk of the message {self.metadata.uuid}.", advice="Read the range with `chunks.whole`."
            )


def parse(entry: bytes) -> Entry:
    """Return a parsed entry. Raises ProtocolError if it is damaged, NotSupported if it is encrypted."""
    metadata, payload = decode_entry(entry)
    if metadata.encryption_keys:
        raise NotSupported(
            "An entry is encrypted.", advice="txnsegment reads no encrypted topics; read it with Pulsar's Java client."
        )
    if metadata.num_chunks_from_msg > 1:
        return Entry(metadata, payload)
    return Entry(metadata, decompressed(payload, metadata.compression, metadata.uncompressed_size))
