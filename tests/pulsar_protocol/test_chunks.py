"""Messages in chunks. They are put together although chunks of several messages are mixed, and in bounded memory. Each message is
read exactly once, however a log is divided into ranges.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.pulsar_server import PulsarBroker
from pulsar_protocol.chunks import Assembler, ChunksLost, Missing, encode_chunks, whole
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import MAX_BYTES, Compression, Entry, Message, parse
from pulsar_protocol.errors import NotSupported, ProtocolError
from pulsar_protocol.frames import encode_entry
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.messages import MessageMetadata
from pulsar_protocol.producer import Producer
from pulsar_protocol.reader import entries
from tests.support.chunk_logs import Log, chunks, expected, log_of, logs, plain, reading, texts


@given(logs(), st.data())
def test_every_message_is_read_once_however_the_ranges_are_cut(log: Log, data: st.DataObject) -> None:
    places = [position for position, _ in log]
    cuts = sorted(data.draw(st.sets(st.sampled_from(places))) | {places[-1]})
    held = data.draw(st.sampled_from([1, 5, 10**6]))
    read, found, after = reading(log), [], EARLIEST
    for to in cuts:
        found += texts(whole(read, after, to, fail_on_loss=False, held=held))
        after = to
    assert found == expected(log)


@given(logs())
def test_complete_messages_are_read_completely(log: Log) -> None:
    for _, text in texts(whole(reading(log), EARLIEST, log[-1][0])):
        assert len(text) % 2 == 0
        assert {text[index : index + 2] for index in range(0, len(text), 2)} == {text[:2]}


def test_two_producers_that_send_in_turn() -> None:
    a, b = chunks("aa", 3, "a"), chunks("bb", 3, "b")
    log = log_of([one for pair in zip(a, b, strict=True) for one in pair])
    found = list(whole(reading(log), EARLIEST, log[-1][0]))
    assert [(position.entry, entry.first) for position, entry in found] == [(4, Position(7, 0)), (5, Position(7, 1))]
    (message,) = found[0][1].messages()
    assert message == Message(b"aaaaaa", b"k", {"a": "b"})


@pytest.mark.parametrize("compression", ["none", "lz4", "zlib", "zstd", "snappy"])
def test_the_payload_is_decompressed_as_a_whole(compression: Compression) -> None:
    value = random.Random(1).randbytes(5000)
    made = encode_chunks(Message(value), 999, producer="p", sequence=0, publish_ms=1, compression=compression)
    assert len(made) >= 5
    assert all(parse(one).is_chunk for one in made)
    ((_, entry),) = whole(reading(log_of(made)), EARLIEST, Position(9, 0))
    assert entry.rows().values == [value]


def test_the_memory_is_bounded_and_a_forgotten_message_is_read_again() -> None:
    many = [chunks("x" * 100, 3, f"p{number}") for number in range(50)]
    log = log_of([one for row in zip(*many, strict=True) for one in row])
    assembler = Assembler(held=1000)
    for position, data in log:
        found = assembler.feed(position, parse(data))
        assert found is None or isinstance(found, Missing | Entry)
        assert assembler.held <= 1000
    reads: list[tuple[Position, Position]] = []
    assert len(texts(whole(reading(log, reads), EARLIEST, log[-1][0], held=1000))) == 50
    assert len(reads) > 1


def test_messages_that_never_end_are_forgotten_by_their_number() -> None:
    assembler = Assembler(messages=10)
    for number in range(100):
        assert assembler.feed(Position(1, number), parse(chunks("x", 2, f"p{number}")[0])) is None
    assert assembler.held == 10


def test_the_first_chunk_is_looked_for_near_the_last_one_first() -> None:
    made = chunks("x", 2)
    log = log_of([*(plain(str(n)) for n in range(1000)), made[0], plain("y"), made[1]])
    reads: list[tuple[Position, Position]] = []
    found = texts(whole(reading(log, reads), Position(7, 1001), log[-1][0]))
    assert found == [(Position(7, 1002), "xx")]
    assert reads == [(Position(7, 1001), Position(7, 1002)), (Position(7, 994), Position(7, 1002))]


def test_first_chunks_in_an_earlier_ledger_are_found() -> None:
    made = chunks("x", 3)
    log = [(Position(3, 5), made[0]), (Position(9, 0), made[1]), (Position(9, 1), made[2])]
    assert texts(whole(reading(log), Position(9, 0), Position(9, 1))) == [(Position(9, 1), "xxx")]


def test_chunks_that_retention_has_deleted_are_an_error_in_the_middle_and_none_at_the_begin() -> None:
    made = chunks("x", 3)
    log = log_of([made[1], made[2], plain("y")])
    end = log[-1][0]
    assert texts(whole(reading(log), EARLIEST, end)) == [(end, "y")]
    with pytest.raises(ChunksLost, match="7:1") as caught:
        texts(whole(reading(log), Position(7, 0), end))
    assert "failOnDataLoss" in caught.value.advice
    assert texts(whole(reading(log), Position(7, 0), end, fail_on_loss=False)) == [(end, "y")]


# --- damage -----------------------------------------------------------------------------------------------------------------


def raw(**fields: object) -> Entry:
    given: dict[str, object] = {"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": 4}
    return parse(encode_entry(MessageMetadata(**{**given, "uncompressed_size": 4, **fields}), b"ab"))


@pytest.mark.parametrize(
    "given",
    [
        [raw(uuid="")],
        [raw(chunk_id=2)],
        [raw(chunk_id=-1)],
        [raw(total_chunk_msg_size=-1)],
        [raw(total_chunk_msg_size=1)],
        [raw(), raw(chunk_id=1, num_chunks_from_msg=3)],
        [raw(), raw(chunk_id=1, total_chunk_msg_size=5)],
        [raw(total_chunk_msg_size=5), raw(chunk_id=1, total_chunk_msg_size=5)],
        [raw(compression=1), raw(chunk_id=1, compression=1)],
    ],
)
def test_damaged_chunks_name_the_position(given: list[Entry]) -> None:
    assembler = Assembler()
    *before, last = given
    assert [assembler.feed(Position(4, number), entry) for number, entry in enumerate(before)] == [None] * len(before)
    with pytest.raises(ProtocolError):
        assembler.feed(Position(4, len(before)), last)


def test_a_message_that_is_too_large_is_refused() -> None:
    with pytest.raises(NotSupported, match="4:2"):
        Assembler().feed(Position(4, 2), raw(total_chunk_msg_size=MAX_BYTES + 1))


@pytest.mark.parametrize("read", [lambda entry: entry.rows(), lambda entry: [*entry.messages()]])
def test_a_chunk_alone_has_no_rows(read: Callable[[Entry], object]) -> None:
    with pytest.raises(NotSupported, match="chunk of the message u"):
        read(raw())


# --- a running broker -------------------------------------------------------------------------------------------------------


@pytest.mark.pulsar
def test_chunks_of_two_producers_on_a_broker_are_read_once_from_every_position(pulsar_broker: PulsarBroker) -> None:
    topic = pulsar_broker.create(f"chunks-{uuid.uuid4().hex[:8]}")
    with PulsarClient(pulsar_broker.url) as client:
        (segment,) = client.layout(topic).active
        values = [random.Random(seed).randbytes(3000) for seed in range(3)]
        with Producer(client, segment.name) as a, Producer(client, segment.name) as b:
            made = [
                encode_chunks(Message(value, b"k"), 1100, producer=one.name, sequence=100, publish_ms=1, compression="lz4")
                for one, value in zip((a, b), values[:2], strict=True)
            ]
            for first, second in zip(*made, strict=True):
                a._sent(first, 100, None, num_messages=1, is_chunk=True)
                b._sent(second, 100, None, num_messages=1, is_chunk=True)
            a.send([Message(b"plain")])
            end = a.send_chunks(Message(values[2]), 1000)

        def read(after: Position, to: Position) -> Iterator[tuple[Position, Entry]]:
            return entries(client, segment.name, after, to)

        places = [position for position, _ in entries(client, segment.name, EARLIEST, end)]
        assert len(places) == 2 * 3 + 1 + 3
        every = [(position, entry.rows().values[0]) for position, entry in whole(read, EARLIEST, end)]
        assert [value for _, value in every] == [*values[:2], b"plain", values[2]]
        for middle in places:
            ranges = itertools.pairwise(sorted({EARLIEST, middle, end}))
            found = [(position, entry.rows().values[0]) for after, to in ranges for position, entry in whole(read, after, to)]
            assert found == every
