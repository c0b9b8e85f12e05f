"""Bytes become the same frames however a socket splits them, and damage is an error instead of a wrong frame or entry."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.errors import ProtocolError
from pulsar_protocol.frames import MAX_FRAME, Frame, FrameParser, decode_entry, encode, encode_entry
from pulsar_protocol.messages import BrokerEntryMetadata, MessageMetadata, command, name_of

NUMBERS = st.integers(0, 2**64 - 1)
COMMANDS = st.one_of(
    st.just(command("ping")),
    st.builds(
        lambda number, text: command("error", request_id=number, error=6, message=text), st.integers(0, 2**64 - 1), st.text()
    ),
    st.builds(lambda number: command("message", consumer_id=number, ack_set=[-1, number]), st.integers(0, 2**63 - 1)),
    st.builds(lambda text: command("lookup_topic", topic=text, request_id=1), st.text()),
)
FRAMES = st.lists(st.builds(Frame, COMMANDS, st.binary(max_size=200)), max_size=6)


@given(frames=FRAMES, data=st.data())
def test_any_split_of_the_bytes_gives_the_same_frames(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(encode(one.command, one.rest) for one in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    parser = FrameParser()
    found = [frame for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True) for frame in parser.feed(stream[start:end])]
    assert found == frames


def test_single_bytes_give_the_frame_with_the_last_byte() -> None:
    frame = encode(command("send", producer_id=1, sequence_id=2), b"entry")
    parser = FrameParser()
    found = [parser.feed(frame[at : at + 1]) for at in range(len(frame))]
    assert found[:-1] == [[]] * (len(frame) - 1)
    assert [one.rest for one in found[-1]] == [b"entry"]


@pytest.mark.parametrize("size", [0, 3, MAX_FRAME + 1, 0xFFFFFFFF, struct.unpack(">I", b"HTTP")[0]])
def test_an_impossible_size_of_a_frame_is_an_error_that_names_the_port(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"{size} bytes.*6650"):
        FrameParser().feed(struct.pack(">I", size))


def test_the_limit_itself_is_possible() -> None:
    frame = encode(command("send", producer_id=1), bytes(100))
    assert len(FrameParser(len(frame) - 4).feed(frame)) == 1
    with pytest.raises(ProtocolError):
        FrameParser(len(frame) - 5).feed(frame)


def test_a_command_that_is_longer_than_its_frame_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="A command of 5 bytes was announced in a frame of 8"):
        FrameParser().feed(struct.pack(">II", 8, 5) + bytes(4))


def test_a_command_that_is_no_message_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="could not be parsed"):
        FrameParser().feed(struct.pack(">II", 7, 3) + b"\xff\xff\xff")


METADATA = MessageMetadata(producer_name="p", sequence_id=7, publish_time=8)


@given(payload=st.binary(max_size=300))
def test_an_entry_survives_the_way_there_and_back(payload: bytes) -> None:
    metadata, found = decode_entry(encode_entry(METADATA, payload))
    assert metadata == METADATA
    assert bytes(found) == payload


def test_the_checksum_of_an_entry_is_crc_32_c_of_all_bytes_after_it() -> None:
    entry = encode_entry(METADATA, b"123456789")
    assert entry[:2] == b"\x0e\x01"
    assert int.from_bytes(entry[2:6], "big") == _crc_32_c(entry[6:])


def _crc_32_c(data: bytes) -> int:
    """Return the CRC-32C of some bytes, computed bit by bit as it is defined."""
    found = 0xFFFFFFFF
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 0xFFFFFFFF


def test_the_definition_of_the_checksum_gives_its_check_value() -> None:
    assert _crc_32_c(b"123456789") == 0xE3069283


@given(data=st.data())
def test_one_flipped_bit_after_the_magic_is_an_error(data: st.DataObject) -> None:
    entry = bytearray(encode_entry(METADATA, b"some payload"))
    bit = data.draw(st.integers(16, len(entry) * 8 - 1))
    entry[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtocolError, match="checksum"):
        decode_entry(bytes(entry))


def test_metadata_of_the_broker_before_the_checksum_are_skipped() -> None:
    own = BrokerEntryMetadata(broker_timestamp=5, index=6).SerializeToString()
    entry = b"\x0e\x02" + struct.pack(">I", len(own)) + own + encode_entry(METADATA, b"x")
    metadata, payload = decode_entry(entry)
    assert (metadata.sequence_id, bytes(payload)) == (7, b"x")


def test_an_entry_without_a_checksum_is_read() -> None:
    metadata, payload = decode_entry(encode_entry(METADATA, b"x")[6:])
    assert (metadata.sequence_id, bytes(payload)) == (7, b"x")


@pytest.mark.parametrize("length", range(6))
def test_a_short_entry_is_an_error(length: int) -> None:
    with pytest.raises(ProtocolError):
        decode_entry(encode_entry(METADATA, b"")[:length])


def test_metadata_that_are_longer_than_the_entry_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="Metadata of 99 bytes"):
        decode_entry(struct.pack(">I", 99) + METADATA.SerializeToString())


@given(data=st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    try:
        frames = FrameParser().feed(data)
    except ProtocolError:
        return
    for frame in frames:
        name_of(frame.command)
    assert sum(8 + len(one.rest) for one in frames) <= len(data)
