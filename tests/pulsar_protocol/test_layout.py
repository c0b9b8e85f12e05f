"""The segment of a key is the one that Pulsar's own clients choose. Pulsar 5.0.0-M1 and the later versions have different rules.
Both rules are tested.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.errors import PulsarError, UnknownVersion
from pulsar_protocol.layout import EARLIEST, RING, Bits, Layout, Position, bits_of, layout_of, ring_place
from pulsar_protocol.messages import MessageIdData, command

BITS: tuple[Bits, ...] = ("low", "high")


def test_the_ids_of_a_position_are_signed_numbers_of_java() -> None:
    found = MessageIdData(**EARLIEST.message_id)
    assert (found.ledger_id, found.entry_id) == (2**64 - 1, 2**64 - 1)
    for position in (EARLIEST, Position(0, 0), Position(7, -1), Position(2**63 - 1, 2**63 - 1)):
        assert Position.of(MessageIdData(**position.message_id)) == position


def dag(*ranges: tuple[int, int], sealed: tuple[int, ...] = ()) -> Any:
    segments = [
        {"segment_id": number, "hash_start": start, "hash_end": end, "state": int(number in sealed), "created_at_ms": 5}
        for number, (start, end) in enumerate(ranges)
    ]
    brokers = [{"segment_id": 0, "broker_url": "pulsar://one:6650", "broker_url_tls": "pulsar+ssl://one:6651"}]
    found = command("scalable_topic_update", session_id=1, dag={"epoch": 3, "segments": segments, "segment_brokers": brokers})
    return found.scalable_topic_update.dag


# Murmur3 (x86, 32 bits, seed 0): test vectors of its reference implementation and of other implementations.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", 0x00000000),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"!Ce\x87", 0xF55B516B),
        (b"!Ce", 0x7E4A8634),
        (b"!C", 0xA0F7B07A),
        (b"!", 0x72661CF4),
        (b"\0\0\0\0", 0x2362F9DE),
        (b"\0", 0x514E28B7),
        (b"test", 0xBA6BD213),
        (b"Hello, world!", 0xC0363E43),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_the_place_of_a_key_is_half_of_its_murmur3(key: bytes, hashed: int) -> None:
    assert ring_place(key, "low") == hashed & 0xFFFF
    assert ring_place(key, "high") == hashed >> 16


@given(key=st.binary(max_size=40), cuts=st.sets(st.integers(1, RING - 1), max_size=8), bits=st.sampled_from(BITS))
def test_every_key_has_exactly_one_segment_of_a_complete_layout(key: bytes, cuts: set[int], bits: Bits) -> None:
    edges = [0, *sorted(cuts), RING]
    layout = layout_of("topic://a/b/c", dag(*((start, end - 1) for start, end in itertools.pairwise(edges))))
    place = ring_place(key, bits)
    holders = [one for one in layout.segments.values() if one.start <= place <= one.end]
    assert [layout.segment_of(key, bits)] == holders


def test_both_ends_of_a_range_belong_to_it() -> None:
    place = ring_place(b"test", "low")
    assert place == 0xD213
    for first in ((0, place), (place, RING - 1)):
        layout = layout_of("topic://a/b/c", dag(first, (0, place - 1) if first[0] else (place + 1, RING - 1)))
        assert layout.segment_of(b"test", "low").id == 0


def test_a_sealed_segment_takes_no_key() -> None:
    layout = layout_of("topic://a/b/c", dag((0, RING - 1), (0, 0x7FFF), (0x8000, RING - 1), sealed=(0,)))
    assert [one.id for one in layout.active] == [1, 2]
    assert layout.segment_of(b"test", "low").id == 2


def test_a_hole_in_a_layout_is_an_error_that_names_the_topic() -> None:
    layout = layout_of("topic://a/b/c", dag((0, 0x7FFF)))
    with pytest.raises(PulsarError, match=r"topic://a/b/c \(epoch 3\) has no segment for 0xd213"):
        layout.segment_of(b"test", "low")


def test_segments_are_named_by_range_and_number_and_know_their_broker() -> None:
    layout = layout_of("topic://a/b/c", dag((0, 0x7FFF), (0x8000, RING - 1)))
    assert [one.name for one in layout.active] == ["segment://a/b/c/0000-7fff-0", "segment://a/b/c/8000-ffff-1"]
    assert [(one.broker, one.broker_tls) for one in layout.active] == [("pulsar://one:6650", "pulsar+ssl://one:6651"), ("", "")]
    assert (layout.epoch, layout.active[0].created_ms) == (3, 5)


def test_the_segment_of_a_migrated_topic_has_the_name_of_the_old_topic() -> None:
    old = dag((0, RING - 1))
    old.segments[0].legacy_topic_name = "persistent://a/b/c-partition-0"
    assert layout_of("topic://a/b/c", old).segments[0].name == "persistent://a/b/c-partition-0"


def test_an_empty_layout_has_no_active_segment() -> None:
    assert Layout("topic://a/b/c", 0, {}).active == ()


@given(ledger=st.integers(-1, 2**63 - 1), entry=st.integers(-1, 2**63 - 1))
def test_a_position_survives_its_text(ledger: int, entry: int) -> None:
    assert Position.parse(Position(ledger, entry).text) == (ledger, entry)


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "1:2:3", "a:1", "1: 2", " 1:2", "1:2\n"])
def test_another_text_is_no_position(text: str) -> None:
    with pytest.raises(ValueError, match="no position"):
        Position.parse(text)


@pytest.mark.parametrize("server", ["Pulsar Server6.0.0", "Pulsar Server12.1.3-M2", "fake", ""])
def test_the_routing_of_an_unknown_version_is_not_guessed(server: str) -> None:
    with pytest.raises(UnknownVersion, match="it is unknown how its clients route keys") as found:
        bits_of(server)
    assert "hashBits=high" in found.value.advice


@pytest.mark.parametrize(
    ("server", "bits"), [("Pulsar Server5.0.0-M1", "low"), ("5.0.0-M2", "high"), ("Pulsar Server5.1.7", "high")]
)
def test_the_routing_of_the_versions_of_pulsar_5(server: str, bits: str) -> None:
    assert bits_of(server) == bits
