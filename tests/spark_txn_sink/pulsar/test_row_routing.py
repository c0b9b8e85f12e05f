"""The routing of rows to segments and entries gives the same entries, byte for byte, as a loop over single messages does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.entries import Message, Rows, encode_batch
from pulsar_protocol.errors import TopicTerminated
from pulsar_protocol.layout import Bits, Layout
from spark_txn_sink.pulsar.routing import Router
from tests.support.pulsar_layouts import layout_of


def one_by_one(
    messages: Sequence[Message], layout: Layout, bits: Bits, entry_bytes: int, entry_rows: int, start: int
) -> Iterator[tuple[str, list[Message]]]:
    """Yield the entries that a loop over single messages makes."""
    names = [one.name for one in layout.active]
    keyless = start % len(names)
    waiting: dict[str, list[Message]] = {name: [] for name in names}
    for message in messages:
        name = names[keyless] if message.key is None else layout.segment_of(message.key, bits).name
        waiting[name].append(message)
        size = sum(len(one.value or b"") + len(one.key or b"") for one in waiting[name])
        if size >= entry_bytes or len(waiting[name]) >= entry_rows:
            yield name, waiting[name]
            waiting[name] = []
            if name == names[keyless]:
                keyless = (keyless + 1) % len(names)
    yield from ((name, entry) for name, entry in waiting.items() if entry)


def routed(router: Router, messages: Sequence[Message], batch_rows: int = 100) -> list[tuple[str, Rows]]:
    found = []
    for at in range(0, len(messages), batch_rows):
        router.route(Rows.of(messages[at : at + batch_rows]))
        found += router.full()
    return found + router.rest()


def encoded(entry: list[Message] | Rows) -> bytes:
    return encode_batch(entry, producer="p", sequence=7, publish_ms=0)


VALUES = st.none() | st.binary(max_size=12) | st.sampled_from([127, 128, 200]).map(bytes)
TEXT = st.builds(Message, VALUES, st.none() | st.sampled_from([b"a", b"b", b"c", "é".encode(), b"k" * 130]))
BINARY = st.builds(lambda value, key: Message(value, key, key_is_binary=key is not None), VALUES, st.none() | st.binary(max_size=4))


@given(
    messages=st.lists(TEXT, max_size=80) | st.lists(BINARY, max_size=80) | st.lists(st.builds(Message, VALUES), max_size=80),
    starts=st.sampled_from([(0,), (0, 0x8000), (0, 0x3000, 0x9000)]),
    bits=st.sampled_from(["low", "high"]),
    batch_rows=st.integers(1, 40),
    entry_bytes=st.sampled_from([1, 30, 200, 10_000]),
    entry_rows=st.integers(1, 15),
    start=st.integers(0, 5),
)
def test_rows_become_the_entries_that_a_loop_over_messages_makes(
    messages: list[Message],
    starts: tuple[int, ...],
    bits: Bits,
    batch_rows: int,
    entry_bytes: int,
    entry_rows: int,
    start: int,
) -> None:
    layout = layout_of(*starts)
    router = Router(layout, bits, entry_bytes, entry_rows, start)
    found = routed(router, messages, batch_rows)
    expected = [*one_by_one(messages, layout, bits, entry_bytes, entry_rows, start)]
    assert [(name, [*entry.messages()]) for name, entry in found] == expected
    assert [encoded(entry) for _, entry in found] == [encoded(entry) for _, entry in expected]
    assert router.rows == len(messages)


def test_messages_without_a_key_go_round_by_whole_entries() -> None:
    entries = routed(Router(layout_of(0, 0x8000), "low", 10_000, 2, 1), [Message(b"%d" % number) for number in range(7)])
    assert [(name, entry.values) for name, entry in entries] == [
        ("s1", [b"0", b"1"]),
        ("s0", [b"2", b"3"]),
        ("s1", [b"4", b"5"]),
        ("s0", [b"6"]),
    ]


def test_an_entry_is_sent_when_it_has_enough_bytes() -> None:
    entries = routed(Router(layout_of(0), "low", 10, 100, 0), [Message(b"x" * 6) for _ in range(5)])
    assert [len(entry) for _, entry in entries] == [2, 2, 1]


def test_a_topic_without_active_segments_is_an_error() -> None:
    with pytest.raises(TopicTerminated, match="no active segment"):
        Router(Layout("topic://public/default/t", 3, {}), "low", 1, 1, 0)
