"""The payload of a batch, parsed and written without an object for each message. Pure.

This module gives the same results as the simpler and slower code in `entries` (`Entry.messages`, and `encode_batch` for a list of
messages). Tests compare the two. Most messages have only a key, a size and a sequence id in their metadata. This module parses the
bytes of such metadata itself. `protobuf` parses all other metadata.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError

from pulsar_protocol.errors import ProtocolError
from pulsar_protocol.messages import SingleMessageMetadata

_SIZE: Final = struct.Struct(">I")
_DAMAGED: Final = "It is damaged: read it again; if it stays so, only the producer can send it again."


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send, or one that was read. `value` None: a null value (a deletion, for readers that compact). `key`: the bytes
    that route it. `event_ms`: the event time in ms, 0 if it has none. `key_is_binary`: whether the key was given as bytes, so that
    it is sent in base64.
    """

    value: bytes | None
    key: bytes | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    event_ms: int = 0
    ordering_key: bytes | None = None
    key_is_binary: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """The messages of one entry, as columns of equal length. None in place of a column: no message has the attribute.

    `values`: None is a null value. `indexes`: the place of each message in its batch, from 0. Compaction may have removed places.
    `events`: the event times in ms, 0 for none. `binary_keys`: whether each key was given as bytes.
    """

    values: Sequence[bytes | None]
    indexes: Sequence[int]
    keys: Sequence[bytes | None] | None = None
    properties: Sequence[Mapping[str, str]] | None = None
    events: Sequence[int] | None = None
    ordering_keys: Sequence[bytes | None] | None = None
    binary_keys: Sequence[bool] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def messages(self) -> Iterator[Message]:
        """Yield the messages, each as an object."""
        for row, value in enumerate(self.values):
            yield Message(
                value,
                None if self.keys is None else self.keys[row],
                {} if self.properties is None else self.properties[row],
                0 if self.events is None else self.events[row],
                None if self.ordering_keys is None else self.ordering_keys[row],
                self.binary_keys is not None and self.binary_keys[row],
            )

    @staticmethod
    def of(messages: Sequence[Message], indexes: Sequence[int] | None = None) -> Rows:
        """Return messages as columns. `indexes`: their places in the batch; None: 0, 1, 2 and so on."""

        def column(attribute: Callable[[Message], Any], nothing: object) -> list[Any] | None:
            found = [attribute(one) for one in messages]
            return None if all(one == nothing for one in found) else found

        return Rows(
            [one.value for one in messages],
            range(len(messages)) if indexes is None else indexes,
            column(lambda one: one.key, None),
            column(lambda one: one.properties, {}),
            column(lambda one: one.event_ms, 0),
            column(lambda one: one.ordering_key, None),
            column(lambda one: one.key_is_binary, False),
        )


# --- reading ----------------------------------------------------------------------------------------------------------------


def message_of(metadata: Any, value: bytes) -> Message:
    """Return a message from its value and its metadata: a `SingleMessageMetadata` in a batch, otherwise a `MessageMetadata`. Raises
    ProtocolError.
    """
    binary, key = metadata.partition_key_b64_encoded, None
    try:
        if metadata.HasField("partition_key"):
            text = metadata.partition_key
            key = base64.b64decode(text, validate=True) if binary else _decoded(text).encode()
        properties = {_decoded(one.key): _decoded(one.value) for one in metadata.properties}
    except ValueError as error:  # no UTF-8, or no base64
        raise ProtocolError(f"The key or a property of a message is no text: {error}.", advice=_DAMAGED) from error
    return Message(
        None if metadata.null_value else value,
        key,
        properties,
        metadata.event_time,
        metadata.ordering_key if metadata.HasField("ordering_key") else None,
        binary,
    )


def _decoded(text: str | bytes) -> str:
    """Return a text that `protobuf` has parsed. If it is not UTF-8, `protobuf` returns bytes. Raises ValueError for such bytes."""
    return text if isinstance(text, str) else text.decode()


def damaged(problem: str) -> ProtocolError:
    return ProtocolError(f"A batch could not be parsed: {problem}.", advice=_DAMAGED)


def single(payload: bytes, at: int, index: int) -> tuple[Any, int, int]:
    """Return the metadata of the message that begins at `at`, and the begin and end of its value. Raises ProtocolError."""
    if len(payload) - at < 4:
        raise damaged(f"its {len(payload)} bytes end before the message {index}")
    begin = at + 4 + _SIZE.unpack_from(payload, at)[0]
    if begin > len(payload):
        raise damaged(f"its {len(payload)} bytes end within the metadata of the message {index}")
    try:
        metadata = SingleMessageMetadata.FromString(payload[at + 4 : begin])
    except DecodeError as error:
        raise damaged(f"the metadata of the message {index}: {error}") from error
    if not 0 <= metadata.payload_size <= len(payload) - begin:
        raise damaged(f"the message {index} has {metadata.payload_size} bytes, but {len(payload) - begin} are left")
    return metadata, begin, begin + metadata.payload_size


def check_end(payload: bytes, at: int, count: int) -> None:
    """Raise ProtocolError if bytes follow the last message."""
    if at != len(payload):
        raise damaged(f"{len(payload) - at} bytes follow its {count} messages")


def parse_rows(payload: bytes, count: int) -> Rows:
    """Return the messages of a batch. Raises ProtocolError if it is damaged."""
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    unusual: dict[int, Message] = {}
    indexes: list[int] | None = None
    at, any_key, sizes = 0, False, _SIZE.unpack_from
    for index in range(count):
        key = None
        try:
            place = at + 4
            end = place + sizes(payload, at)[0]
            tag = payload[place]
            if tag == 0x12 and payload[place + 1] < 0x80:  # partition_key
                begin = place + 2
                place = begin + payload[place + 1]
                key = payload[begin:place]
                tag = payload[place]
            simple = tag == 0x18 and (key is None or key.isascii())  # payload_size
            size = payload[place + 1]
            place += 2
            if size > 0x7F:
                more = payload[place]
                place += 1
                size = size & 0x7F | (more & 0x7F) << 7
                if more > 0x7F:
                    more = payload[place]
                    place += 1
                    size |= more << 14
                    simple = simple and more < 0x80
            if place != end:
                simple = simple and payload[place] == 0x40  # sequence_id
                last = place + 1
                while payload[last] > 0x7F:
                    last += 1
                simple = simple and last + 1 == end and last - place <= 10
            value: bytes | None = payload[end : end + size]
            simple = simple and end + size <= len(payload)
        except (IndexError, struct.error):
            simple = False
        if simple:
            at = end + size
            any_key = any_key or key is not None
        else:
            metadata, begin, at = single(payload, at, index)
            if metadata.compacted_out:
                indexes = list(range(index)) if indexes is None else indexes
                continue
            found = unusual[len(values)] = message_of(metadata, payload[begin:at])
            value, key = found.value, found.key
            any_key = any_key or key is not None
        values.append(value)
        keys.append(key)
        if indexes is not None:
            indexes.append(index)
    check_end(payload, at, count)
    places = range(len(values)) if indexes is None else indexes
    rows = Rows(values, places, keys if any_key else None)
    return _with_unusual(rows, unusual) if unusual else rows


def _with_unusual(rows: Rows, unusual: Mapping[int, Message]) -> Rows:
    """Return the rows with the attributes of the messages that went through `protobuf`."""

    def column(attribute: Callable[[Message], Any], nothing: object) -> list[Any] | None:
        found = {row: attribute(one) for row, one in unusual.items()}
        if all(one == nothing for one in found.values()):
            return None
        return [found.get(row, nothing) for row in range(len(rows))]

    return Rows(
        rows.values,
        rows.indexes,
        rows.keys,
        column(lambda one: one.properties, {}),
        column(lambda one: one.event_ms, 0),
        column(lambda one: one.ordering_key, None),
        column(lambda one: one.key_is_binary, False),
    )


# --- writing ----------------------------------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    """Return a number of at most 64 bits as protobuf writes it."""
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


_SHORT: Final = [varint(number) for number in range(1 << 14)]
"""The protobuf form of each number that needs at most two bytes."""
_LOW: Final = [bytes([number & 0x7F | 0x80, number >> 7 | 0x80]) for number in range(1 << 14)]
"""The first two bytes of the numbers that need more than two bytes, by the low 14 bits of the number."""
_HEADS: Final = [_SIZE.pack(number) for number in range(1 << 10)]
"""The size of a message's metadata as four bytes, for each size below 1,024."""


def _number(number: int) -> bytes:
    return _SHORT[number] if number < 1 << 14 else varint(number)


def batch_payload(rows: Rows, sequence: int) -> bytes:
    """Return the payload of a batch before its compression. `sequence`: the sequence id of the first message. Raises ProtocolError
    for a key that is neither text nor marked as binary.
    """
    pieces: list[bytes] = []
    add = pieces.append
    keys, high, high_bytes = rows.keys, -1, b""
    plain = rows.properties is None and rows.events is None and rows.ordering_keys is None and rows.binary_keys is None
    for row, value in enumerate(rows.values):
        size = 0 if value is None else len(value)
        number = sequence + row
        if number < 1 << 14:
            counted = _SHORT[number]
        else:
            if number >> 14 != high:
                high, high_bytes = number >> 14, varint(number >> 14)
            counted = _LOW[number & 0x3FFF] + high_bytes
        tail = b"\x40" + counted if value is not None else b"\x40" + counted + b"\x48\x01"
        head = b"\x18" + (_SHORT[size] if size < 1 << 14 else varint(size))
        key = None if keys is None else keys[row]
        if plain:
            if key is not None:
                head = b"\x12" + _number(len(key)) + text_key(key) + head
        else:
            head = _head(rows, row, key, head)
        head += tail
        add(_HEADS[len(head)] if len(head) < 1 << 10 else _SIZE.pack(len(head)))
        add(head)
        if value:
            add(value)
    return b"".join(pieces)


def text_key(key: bytes) -> bytes:
    """Return the key, which must be text in UTF-8. Raises ProtocolError if it is not."""
    if not key.isascii():
        try:
            key.decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(
                f"The key {key[:20].hex()} is no text in UTF-8: {error}.", advice="Send it as a binary key."
            ) from error
    return key


def _head(rows: Rows, row: int, key: bytes | None, size: bytes) -> bytes:
    """Return the encoded metadata of a message, up to and with its ordering key. `size`: the encoded field with the size of its
    value.
    """
    pieces = []
    for name, value in ({} if rows.properties is None else rows.properties[row]).items():
        pair = b"".join(_field(tag, text.encode()) for tag, text in ((b"\x0a", name), (b"\x12", value)))
        pieces.append(_field(b"\x0a", pair))
    binary = key is not None and rows.binary_keys is not None and rows.binary_keys[row]
    if key is not None:
        pieces.append(_field(b"\x12", base64.b64encode(key) if binary else text_key(key)))
    pieces.append(size)
    if rows.events is not None and rows.events[row]:
        pieces.append(b"\x28" + varint(rows.events[row]))
    if binary:
        pieces.append(b"\x30\x01")
    ordering = None if rows.ordering_keys is None else rows.ordering_keys[row]
    if ordering is not None:
        pieces.append(_field(b"\x3a", ordering))
    return b"".join(pieces)


def _field(tag: bytes, data: bytes) -> bytes:
    return tag + _number(len(data)) + data
