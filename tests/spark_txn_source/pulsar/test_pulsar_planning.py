"""The plan of a micro-batch from Pulsar, without a broker."""

from __future__ import annotations

import json

import pytest

from metadata.common.errors import DataLoss, OffsetOutOfRange, OptionError
from pulsar_protocol.cut import Cut
from pulsar_protocol.layout import EARLIEST, Layout, Position, Segment
from pulsar_protocol.whole_transactions import Child
from spark_txn_source.pulsar.offsets import PulsarOffset
from spark_txn_source.pulsar.planning import FirstEntry, children, ended_at, families, limited, moved, readable, without_gone

TOPIC = "topic://public/default/t"


def segment(number: int, *, active: bool = True, parents: tuple[int, ...] = (), children: tuple[int, ...] = ()) -> Segment:
    return Segment(number, f"segment://public/default/t/{number}", 0, 0xFFFF, active, parents, children)


def layout(*segments: Segment, epoch: int = 3) -> Layout:
    return Layout(TOPIC, epoch, {one.id: one for one in segments})


SPLIT = layout(segment(0, active=False, children=(1, 2)), segment(1, parents=(0,)), segment(2, parents=(0,)))
MERGED = layout(
    segment(0, active=False, children=(2,)), segment(1, active=False, children=(2,)), segment(2, parents=(0, 1)), segment(3)
)


def names(found: tuple[Segment, ...]) -> list[int]:
    return [one.id for one in found]


def of(*numbers: int) -> frozenset[str]:
    return frozenset(f"segment://public/default/t/{number}" for number in numbers)


def test_children_are_read_after_all_their_parents() -> None:
    assert names(readable(SPLIT, of())) == [0]
    assert names(readable(SPLIT, of(0))) == [1, 2]
    assert names(readable(MERGED, of())) == [0, 1, 3]
    assert names(readable(MERGED, of(0))) == [1, 3]
    assert names(readable(MERGED, of(0, 1))) == [2, 3]


def test_a_parent_that_left_the_layout_does_not_hold_its_children_back() -> None:
    assert names(readable(layout(segment(1, parents=(0,))), frozenset())) == [1]


NAME = [f"segment://public/default/t/{number}" for number in range(6)]


def test_a_segment_ends_when_it_is_sealed_and_decided_and_read() -> None:
    def ended(read: Position, cut: Cut) -> frozenset[str]:
        return ended_at(SPLIT, of(), {NAME[0]: read}, {NAME[0]: cut})

    final = Cut(Position(4, 9), Position(4, 9), whole=True, sealed=True)
    assert ended(Position(4, 9), final) == of(0)
    assert ended(Position(4, 8), final) == of(), "a committed entry is unread"
    assert ended(Position(4, 9), Cut(Position(4, 9), Position(4, 12), whole=False, sealed=True)) == of(), "a transaction is open"
    assert ended(Position(4, 9), Cut(Position(4, 9), Position(4, 9), whole=True)) == of(), "it was sealed after the cut was found"


EMPTY = Cut(EARLIEST, EARLIEST, whole=True, sealed=True)
FULL = Cut(Position(4, 9), Position(4, 9), whole=True, sealed=True)
CHAIN = layout(
    segment(0, active=False, children=(1,)), segment(1, active=False, parents=(0,), children=(2,)), segment(2, parents=(1,))
)


def test_a_segment_without_entries_ends_after_its_parents() -> None:
    cuts = {NAME[0]: FULL, NAME[1]: EMPTY, NAME[2]: Cut(Position(6, 1), Position(6, 1), whole=True)}
    assert ended_at(CHAIN, of(), {}, cuts) == of()
    assert ended_at(CHAIN, of(), {NAME[0]: Position(4, 9)}, cuts) == of(0, 1)


def test_a_child_waits_for_all_its_ancestors() -> None:
    """Segment 1 has no entries, and segment 0 has unread ones."""
    cuts = {NAME[0]: FULL, NAME[1]: EMPTY, NAME[2]: Cut(Position(6, 1), Position(6, 1), whole=True)}
    found = children(CHAIN, of(), {NAME[2]: Position(6, 0)}, cuts)
    assert found == {
        NAME[1]: Child(EARLIEST, {NAME[0]: Position(4, 9)}),
        NAME[2]: Child(Position(6, 0), {NAME[0]: Position(4, 9), NAME[1]: EARLIEST}),
    }
    assert children(CHAIN, of(0, 1), {}, cuts) == {}
    held = cuts | {NAME[0]: Cut(Position(4, 7), Position(4, 9), whole=False, sealed=True)}
    assert children(CHAIN, of(), {}, held)[NAME[1]] == Child(EARLIEST, {NAME[0]: None})


def test_segments_are_grouped_with_their_ancestors() -> None:
    assert families(SPLIT, [NAME[2], NAME[0], NAME[1]]) == [[NAME[0], NAME[1], NAME[2]]]
    assert families(SPLIT, [NAME[2], NAME[1]]) == [[NAME[1]], [NAME[2]]]
    assert families(MERGED, [NAME[3], NAME[2], NAME[1], NAME[0]]) == [[NAME[0], NAME[1], NAME[2]], [NAME[3]]]
    assert families(CHAIN, [NAME[2], NAME[0]]) == [[NAME[0], NAME[2]]], "segment 1 has nothing to read"
    assert families(SPLIT, ["gone", NAME[1]]) == [["gone"], [NAME[1]]]


def test_a_deleted_segment_with_unread_entries_is_data_loss() -> None:
    gone, kept = "segment://public/default/t/0", "segment://public/default/t/1"
    offset = PulsarOffset(TOPIC, 2, {gone: Position(1, 5), kept: Position(2, 0)})
    now = layout(segment(1))
    with pytest.raises(DataLoss, match=r"t/0 was deleted. It was read up to 1:5"):
        without_gone(offset, now, fail_on_data_loss=True)
    assert without_gone(offset, now, fail_on_data_loss=False).segments == {kept: Position(2, 0)}
    read = PulsarOffset(TOPIC, 2, offset.segments, ended=frozenset({gone}))
    assert without_gone(read, now, fail_on_data_loss=True) == PulsarOffset(TOPIC, 3, {kept: Position(2, 0)})


def test_a_topic_that_was_created_again_is_data_loss() -> None:
    with pytest.raises(DataLoss, match="deleted and created again"):
        without_gone(PulsarOffset(TOPIC, 4, {}), layout(segment(0)), fail_on_data_loss=False)


def test_limits_give_each_segment_its_share_and_at_least_one_entry() -> None:
    ends = {"a": Position(1, 99), "b": Position(7, 3)}
    firsts = {"a": FirstEntry(Position(1, 10), 100, 1000), "b": FirstEntry(Position(5, 0), 1, 10)}
    assert limited(ends, firsts, 1000, None) == {"a": Position(1, 14), "b": Position(5, 499)}
    assert limited(ends, firsts, 1, None) == {"a": Position(1, 10), "b": Position(5, 0)}
    assert limited(ends, firsts, 1_000_000, 4000) == {"a": Position(1, 11), "b": Position(5, 199)}
    assert limited(ends, firsts, 10**9, None) == {"a": Position(1, 99), "b": Position(5, 5 * 10**8 - 1)}


def test_the_first_batch_records_where_it_began() -> None:
    first = PulsarOffset(TOPIC, 1, {"a": Position(1, 5)}, is_initial=True)
    end = moved(first, {"a": Position(1, 8), "b": Position(2, 0)}, frozenset())
    assert end.began == {"a": Position(1, 5), "b": EARLIEST}
    assert moved(end, {"a": Position(1, 9)}, frozenset()).began is None


def test_the_first_batch_begins_at_its_start_in_segments_without_new_rows() -> None:
    """Otherwise the first batch of a stream that starts at `latest` has all earlier rows of these segments."""
    first = PulsarOffset(TOPIC, 1, {"a": Position(1, 5), "b": Position(2, 7)}, is_initial=True)
    end = moved(first, {"b": Position(2, 8)}, frozenset())
    assert end.began == {"a": Position(1, 5), "b": Position(2, 7)}


def test_an_offset_is_the_same_after_json() -> None:
    for offset in (
        PulsarOffset(TOPIC, 1, {"a": Position(1, 5), "b": EARLIEST}, is_initial=True),
        PulsarOffset(TOPIC, 1, {"a": Position(1, 5)}, frozenset({"a"}), began={"a": EARLIEST}),
        PulsarOffset(TOPIC, 1, {"a": Position(1, 5)}, sent={"log": Position(9, -1)}),
    ):
        assert PulsarOffset.of_json(json.loads(json.dumps(offset.to_json()))) == offset


@pytest.mark.parametrize("found", [{"log": 41}, {"topic": TOPIC, "epoch": 0, "segments": {"a": "x"}}])
def test_an_offset_of_another_source_is_refused(found: dict[str, object]) -> None:
    with pytest.raises(OffsetOutOfRange, match="not of a Pulsar topic"):
        PulsarOffset.of_json(found)


def test_an_offset_of_another_topic_is_refused() -> None:
    with pytest.raises(OptionError, match="belongs to topic://public/default/t"):
        PulsarOffset(TOPIC, 0, {}).check_topic("topic://public/default/u")
