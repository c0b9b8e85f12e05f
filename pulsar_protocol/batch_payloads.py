"""The payload of a batch, written for all messages at once. Pure.

This module gives the same bytes as the simpler and slower code in `entries` (`encode_batch` for a list of messages). Tests compare
the two.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pulsar_protocol.batches import Column, Rows
from pulsar_protocol.errors import ProtocolError


class _Part(NamedTuple):
    """A part of the metadata of each message. `made`: one message in each line. `lengths`: how many bytes of its line each message
    has; None: all of them.
    """

    made: npt.NDArray[np.uint8]
    lengths: Column | None = None


def batch_payload(rows: Rows, sequence: int) -> bytes:
    """Return the payload of a batch before its compression. The rows must be plain (`Rows.plain`). `sequence`: the sequence id of
    the first message. Raises ProtocolError for a key that is neither text nor marked as binary.

    A message is the size of its metadata, the metadata up to the key, the key, the other metadata, and the value. Each of them is
    made for all messages at once.
    """
    count, values = len(rows), pa.array(rows.values, pa.large_binary())
    binary = np.zeros(count, np.bool_) if rows.binary_keys is None else np.asarray(rows.binary_keys, np.bool_)
    keys = None if rows.keys is None else _encoded_keys(rows.keys, binary)
    before, length = [], np.zeros(count, np.int64)
    if keys is not None:
        keyed, length = _valid(keys), _sizes(keys)
        before, binary = [*_constant(b"\x12", keyed), _varints(length, keyed)], binary & keyed
    after = [
        *_constant(b"\x18", np.ones(count, np.bool_)),
        _varints(_sizes(values)),
        *([] if keys is None else _constant(b"\x30\x01", binary)),
        *_constant(b"\x40", np.ones(count, np.bool_)),
        _varints(np.uint64(sequence) + np.arange(count, dtype=np.uint64)),
        *_constant(b"\x48\x01", ~_valid(values)),
    ]
    for made, lengths in (*before, *after):
        length = length + (made.shape[1] if lengths is None else lengths)
    size = _Part(length.astype(">u4").view(np.uint8).reshape(count, 4))
    pieces = [_joined(size, *before), *([] if keys is None else [keys]), _joined(*after), values]
    joined = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()), null_handling="replace")
    return bytes(_data(joined))


def _encoded_keys(keys: Sequence[bytes | None], binary: Column) -> pa.Array:
    """Return the keys as they are sent. Raises ProtocolError for a key that is neither text nor marked as binary."""
    if not binary.any():
        found = pa.array(keys, pa.large_binary())
        if np.frombuffer(_data(found), np.uint8).max(initial=0) < 0x80:
            return found
    sent = [
        None if key is None else base64.b64encode(key) if marked else text_key(key)
        for key, marked in zip(keys, binary.tolist(), strict=True)
    ]
    return pa.array(sent, pa.large_binary())


def _valid(column: pa.Array) -> Column:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    found: Column = column.is_valid().to_numpy(zero_copy_only=False)
    return found


def _offsets(column: pa.Array) -> Column:
    return np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, 8 * column.offset)


def _sizes(column: pa.Array) -> Column:
    """Return the size in bytes of each element, 0 for null."""
    return np.diff(_offsets(column))


def _data(column: pa.Array) -> pa.Buffer:
    """Return the bytes of all elements, one after another."""
    offsets, whole = _offsets(column), column.buffers()[2]
    first, last = int(offsets[0]), int(offsets[-1])
    return pa.py_buffer(b"") if whole is None else whole.slice(first, last - first)


def _constant(data: bytes, there: Column) -> list[_Part]:
    """Return a part with the same bytes for the messages that have them, or no part if no message has them."""
    made = np.broadcast_to(np.frombuffer(data, np.uint8), (len(there), len(data)))
    if there.all():
        return [_Part(made)]
    return [_Part(made, there * len(data))] if there.any() else []


def _varints(numbers: Column, there: Column | None = None) -> _Part:
    """Return numbers as protobuf writes them, for the messages that have them (None: all)."""
    left, width = numbers.astype(np.uint64), max(1, (int(numbers.max(initial=0)).bit_length() + 6) // 7)
    made, lengths = np.empty((len(left), width), np.uint8), np.ones(len(left), np.int64)
    for place in range(width):
        made[:, place] = left & np.uint64(0x7F)
        left = left >> np.uint64(7)
        more = left > 0
        made[more, place] |= 0x80
        lengths += more
    if there is not None:
        lengths *= there
    return _Part(made, None if (lengths == width).all() else lengths)


def _joined(*parts: _Part) -> pa.Array:
    """Return for each message the bytes of its parts, one part after another."""
    made = np.ascontiguousarray(np.concatenate([one.made for one in parts], axis=1))
    count, width = made.shape
    if all(one.lengths is None for one in parts):
        return pa.Array.from_buffers(
            pa.large_binary(), count, [None, pa.py_buffer(np.arange(count + 1, dtype=np.int64) * width), pa.py_buffer(made)]
        )
    there = np.concatenate([_there(one) for one in parts], axis=1)
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return pa.Array.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(made[there])])


def _there(part: _Part) -> Column:
    """Return which bytes of each line the message has."""
    width = part.made.shape[1]
    if part.lengths is None:
        return np.ones(part.made.shape, np.bool_)
    return np.arange(width) < part.lengths[:, None]


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
