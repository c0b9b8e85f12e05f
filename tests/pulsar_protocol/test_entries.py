"""Entries in all compressions. The fast code (`rows`, `Rows`) gives the same as the simple code (`messages`), also for damaged
bytes.
"""

from __future__ import annotations

import struct
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgers.errors import TxnSegmentError
from pulsar_protocol.batch_payloads import batch_payload
from pulsar_protocol.batches import parse_rows
from pulsar_protocol.entries import MAX_BYTES, Compression, Entry, Message, Rows, encode_batch, parse
from pulsar_protocol.errors import NotSupported, ProtocolError
from pulsar_protocol.frames import encode_entry
from pulsar_protocol.messages import EncryptionKeys, MessageMetadata, SingleMessageMetadata

SIZES = st.sampled_from([0, 1, 100, 127, 128, 300, 16_383, 16_384])
VALUES = st.none() | st.binary(max_size=8) | SIZES.map(bytes)
TEXT = st.text(max_size=6) | st.sampled_from(["k" * 127, "k" * 128])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    binary = draw(st.booleans())
    return Message(
        draw(VALUES),
        draw(st.binary(max_size=6)) if binary else draw(st.none() | TEXT.map(str.encode)),
        draw(st.dictionaries(TEXT, TEXT, max_size=2)),
        draw(st.sampled_from([0, 1, 2**40, 2**64 - 1])),
        draw(st.none() | st.binary(max_size=4)),
        binary,
    )


PLAIN = st.builds(Message, VALUES, st.none() | TEXT.map(str.encode))
SEQUENCES = st.sampled_from([0, 1, 126, 127, 128, 16_382, 16_384, 2**21 - 2, 2**35, 2**63 - 10])


def encoded(given: list[Message] | Rows, sequence: int = 0, compression: Compression = "none", txn: Any = None) -> bytes:
    return encode_batch(
        given, producer="p", sequence=sequence, publish_ms=5, schema_version=b"\x01", txn=txn, compression=compression
    )


def batch(payload: bytes, count: int, **fields: Any) -> Entry:
    return parse(encode_entry(MessageMetadata(num_messages_in_batch=count, **fields), payload))


@given(st.lists(PLAIN, min_size=1, max_size=6) | st.lists(messages(), min_size=1, max_size=4), SEQUENCES)
def test_both_ways_write_the_same_bytes_and_read_the_same_messages(given: list[Message], sequence: int) -> None:
    data = encoded(given, sequence)
    assert encoded(Rows.of(given), sequence) == data
    entry = parse(data)
    assert [*entry.messages()] == given
    rows = entry.rows()
    assert [*rows.messages()] == given
    assert [*rows.indexes] == [*range(len(given))]
    assert (rows.keys is None) == all(one.key is None for one in given)


@pytest.mark.parametrize("keys", [[None, None], [None, b"\xff"]])
def test_no_message_without_a_key_is_marked_as_having_a_binary_one(keys: list[bytes | None]) -> None:
    given = [Message(b"x", key, key_is_binary=True) for key in keys]
    assert encoded(Rows([b"x", b"x"], range(2), keys, binary_keys=[True, True])) == encoded(Rows.of(given)) == encoded(given)


@given(st.lists(messages(), min_size=1, max_size=4), st.data())
def test_both_ways_leave_out_what_compaction_has_removed(given: list[Message], data: st.DataObject) -> None:
    gone = data.draw(st.lists(st.booleans(), min_size=len(given), max_size=len(given)))
    pieces, at = [], 0
    payload = bytes(parse(encoded(Rows.of(given))).payload)
    for removed in gone:
        (size,) = struct.unpack_from(">I", payload, at)
        metadata = SingleMessageMetadata.FromString(payload[at + 4 : at + 4 + size])
        end = at + 4 + size + metadata.payload_size
        metadata.compacted_out = removed
        head = metadata.SerializeToString()
        pieces += [struct.pack(">I", len(head)), head, payload[at + 4 + size : end]]
        at = end
    entry = batch(b"".join(pieces), len(given))
    left = [(index, one) for index, (one, removed) in enumerate(zip(given, gone, strict=True)) if not removed]
    assert [*entry.messages()] == [one for _, one in left]
    assert [*entry.rows().messages()] == [one for _, one in left]
    assert [*entry.rows().indexes] == [index for index, _ in left]


def outcome(read: Any) -> Any:
    try:
        return read()
    except TxnSegmentError as error:
        return type(error), error.message


@given(st.lists(PLAIN, min_size=1, max_size=3), st.data())
def test_both_ways_refuse_the_same_damage(given: list[Message], data: st.DataObject) -> None:
    payload = bytearray(batch_payload(Rows.of(given), data.draw(SEQUENCES)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(payload) - 1, 40)))
        payload[at] = data.draw(st.sampled_from([0, 1, 0x0A, 0x12, 0x18, 0x20, 0x28, 0x40, 0x48, 0x7F, 0x80, 0xFF]))
    cut = bytes(payload[: data.draw(st.sampled_from([len(payload), len(payload) - 1, len(payload) // 2]))])
    entry = batch(cut, data.draw(st.sampled_from([len(given), len(given) + 1])))
    assert outcome(lambda: [*entry.rows().messages()]) == outcome(lambda: [*entry.messages()])


@given(st.binary(max_size=60), st.integers(-1, 4))
def test_both_ways_agree_on_any_bytes(payload: bytes, count: int) -> None:
    entry = batch(payload, count)
    assert outcome(lambda: [*entry.rows().messages()]) == outcome(lambda: [*entry.messages()])


@pytest.mark.parametrize("compression", get_args(Compression))
def test_every_compression_comes_back(compression: Compression) -> None:
    given = [Message(b"value" * 50, b"k"), Message(None), Message(b"")]
    entry = parse(encoded(Rows.of(given), 7, compression, (1, 2)))
    assert [*entry.rows().messages()] == given
    assert (entry.metadata.txnid_most_bits, entry.metadata.txnid_least_bits) == (1, 2)
    assert entry.metadata.schema_version == b"\x01"
    assert (entry.count, entry.metadata.highest_sequence_id, entry.is_marker) == (3, 9, False)


@pytest.mark.parametrize("compression", [one for one in get_args(Compression) if one != "none"])
def test_a_wrong_size_after_decompression_is_refused(compression: Compression) -> None:
    entry = encoded([Message(b"value" * 50)], 0, compression)
    metadata, payload = parse_parts(entry)
    for size in (metadata.uncompressed_size - 1, metadata.uncompressed_size + 1, MAX_BYTES + 1):
        metadata.uncompressed_size = size
        with pytest.raises(ProtocolError):
            parse(encode_entry(metadata, payload))
    with pytest.raises(ProtocolError):
        parse(encode_entry(metadata, payload[: len(payload) // 2]))


def parse_parts(entry: bytes) -> tuple[Any, bytes]:
    size = struct.unpack_from(">I", entry, 6)[0]
    return MessageMetadata.FromString(entry[10 : 10 + size]), entry[10 + size :]


def test_a_compression_that_is_not_known_is_refused() -> None:
    with pytest.raises(NotSupported, match="unknown compression 9"):
        batch(b"", 0, compression=9)


def test_a_single_message_is_a_row() -> None:
    metadata = MessageMetadata(partition_key="k", event_time=7)
    metadata.properties.add(key="a", value="b")
    entry = parse(encode_entry(metadata, b"value"))
    assert [*entry.messages()] == [*entry.rows().messages()] == [Message(b"value", b"k", {"a": "b"}, 7)]
    null = parse(encode_entry(MessageMetadata(null_value=True), b""))
    assert null.rows().values == [None]


def test_an_encrypted_entry_is_refused_and_the_advice_names_java() -> None:
    metadata = MessageMetadata(encryption_algo="AES", encryption_keys=[EncryptionKeys(key="k", value=b"v")])
    with pytest.raises(NotSupported, match="encrypted") as caught:
        parse(encode_entry(metadata, b"x"))
    assert "Java" in caught.value.advice


def test_every_flipped_byte_of_an_entry_is_found_by_its_checksum() -> None:
    entry = encoded([Message(b"value", b"key")])
    for at in range(2, len(entry)):
        with pytest.raises(ProtocolError):
            parse(entry[:at] + bytes([entry[at] ^ 1]) + entry[at + 1 :])


@pytest.mark.parametrize(
    ("payload", "count", "problem"),
    [
        (b"\x00\x00\x00", 1, "end before the message 0"),
        (b"\x00\x00\x00\x09\x18", 1, "end within the metadata of the message 0"),
        (b"\x00\x00\x00\x02\x18\x05abc", 1, "the message 0 has 5 bytes, but 3 are left"),
        (b"\x00\x00\x00\x02\x18\x03abcd", 1, "1 bytes follow its 1 messages"),
        (b"\x00\x00\x00\x02\x18\x03abc", 2, "end before the message 1"),
        (b"\x00\x00\x00\x0b\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 1, "the message 0 has -1 bytes"),
        (b"\x00\x00\x00\x02\x18\x80", 1, "the metadata of the message 0"),
    ],
)
def test_a_damaged_batch_names_the_problem(payload: bytes, count: int, problem: str) -> None:
    for read in (lambda: [*batch(payload, count).messages()], lambda: parse_rows(payload, count)):
        with pytest.raises(ProtocolError, match=problem):
            read()


@pytest.mark.parametrize("write", [lambda rows: rows, lambda rows: [*rows.messages()]])
def test_a_key_that_is_no_text_must_be_binary(write: Any) -> None:
    rows = Rows([b"x"], range(1), [b"\xff"])
    with pytest.raises(ProtocolError, match="no text in UTF-8"):
        encoded(write(rows))
    binary = Rows([b"x"], range(1), [b"\xff"], binary_keys=[True])
    assert parse(encoded(write(binary))).rows().keys == [b"\xff"]


def test_a_key_that_is_not_base64_is_damage() -> None:
    head = SingleMessageMetadata(payload_size=0, partition_key="%%%", partition_key_b64_encoded=True).SerializeToString()
    for read in (lambda entry: entry.rows(), lambda entry: [*entry.messages()]):
        with pytest.raises(ProtocolError, match="no text"):
            read(batch(struct.pack(">I", len(head)) + head, 1))
