"""Children are read after their parents."""

from __future__ import annotations

from pulsar_protocol.cut import Cut
from pulsar_protocol.layout import EARLIEST, Layout, Position, Segment
from pulsar_protocol.succession import children, ended_at, families, readable
from pulsar_protocol.whole_transactions import Child


def segment(number: int, *, active: bool = True, parents: tuple[int, ...] = (), children: tuple[int, ...] = ()) -> Segment:
    return Segment(number, f"segment://public/default/t/{number}", 0, 0xFFFF, active, parents, children)


def layout(*segments: Segment) -> Layout:
    return Layout("topic://public/default/t", 3, {one.id: one for one in segments})


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
