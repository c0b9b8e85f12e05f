"""The messages of a batch, and its payload parsed without an object for each message. Pure.

This module reads the same as the simpler and slower code in `entries` (`Entry.messages`). Tests compare the two. Most messages have
only a key, a size and a sequence id in their metadata. This module parses the bytes of such metadata itself. `protobuf` parses all
other metadata. `batch_payloads` writes payloads.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from pulsar_protocol.errors import ProtocolError
from pulsar_protocol.messages import SingleMessageMetadata

_SIZE: Final = struct.Struct(">I")
Column = npt.NDArray[Any]
"""A number or a boolean for each message."""
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

    @property
    def plain(self) -> bool:
        """Whether the messages have nothing but values and keys."""
        return self.properties is None and self.events is None and self.ordering_keys is None

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

    def sizes(self) -> Column:
        """Return the size in bytes of the value and the key of each message."""
        columns = [self.values] if self.keys is None else [self.values, self.keys]
        sizes = np.zeros(len(self), np.int64)
        for column in columns:
            sizes += np.fromiter(map(len, [one or b"" for one in column]), np.int64, len(self))
        return sizes

    def take(self, places: Sequence[int]) -> Rows:
        """Return the messages at these places of a new batch. They must be plain."""

        def column(found: Sequence[Any]) -> list[Any]:
            return [*map(found.__getitem__, places)]

        keys = None if self.keys is None else column(self.keys)
        marks = None if self.binary_keys is None else column(self.binary_keys)
        return Rows(column(self.values), range(len(places)), keys, binary_keys=marks)

    @staticmethod
    def joined(parts: Sequence[Rows]) -> Rows:
        """Return the messages of several batches as one batch. They must be plain."""

        def column(found: Sequence[Sequence[Any] | None], nothing: object) -> list[Any] | None:
            if all(one is None for one in found):
                return None
            filled = ([nothing] * len(rows) if one is None else one for one, rows in zip(found, parts, strict=True))
            return [*chain.from_iterable(filled)]

        if len(parts) == 1:
            return parts[0]
        values = [*chain.from_iterable(one.values for one in parts)]
        keys = column([one.keys for one in parts], None)
        return Rows(values, range(len(values)), keys, binary_keys=column([one.binary_keys for one in parts], False))

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
