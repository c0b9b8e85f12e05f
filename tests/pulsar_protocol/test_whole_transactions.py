"""Tests of cuts that split no transaction, and have entries of a child only with all entries of its parents. Random cases are
compared with the definition. Other cases are written by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from pulsar_protocol.layout import Position
from pulsar_protocol.whole_transactions import Child, Extent, least_whole_cut, whole_cut

SEGMENTS = ("a", "b", "c")
LEDGERS = (3, 7)
ENTRIES = 3
PLACES = [Position(ledger, entry) for ledger in LEDGERS for entry in range(ENTRIES)]
BEFORE = Position(0, -1)

ranges = st.lists(st.sampled_from(PLACES), min_size=2, max_size=2).map(lambda two: (min(two), max(two)))
extents = st.dictionaries(st.sampled_from(SEGMENTS), ranges, min_size=1).map(Extent)
cuts = st.fixed_dictionaries({segment: st.sampled_from([BEFORE, *PLACES]) for segment in SEGMENTS})


ends_of_parents = st.none() | st.sampled_from([BEFORE, *PLACES])
grown = st.fixed_dictionaries(
    {},
    optional={
        "b": st.builds(Child, st.sampled_from([BEFORE, *PLACES]), st.fixed_dictionaries({"a": ends_of_parents})),
        "c": st.builds(Child, st.sampled_from([BEFORE, *PLACES]), st.dictionaries(st.sampled_from("ab"), ends_of_parents)),
    },
)
"""Random values of the argument `children`: b may be a child of a, and c may be a child of a, of b, or of both."""


def too_early(cut: Mapping[str, Position], children: Mapping[str, Child]) -> bool:
    """Return whether the cut has entries of a child, but not all entries of its parents."""
    return any(
        cut[name] > child.start and any(end is None or cut[parent] < end for parent, end in child.parents.items())
        for name, child in children.items()
    )


def splits(cut: Mapping[str, Position], transaction: Extent) -> bool:
    """Return whether the cut has a part of the transaction, but not all of it."""
    read = {segment: places for segment, places in transaction.ranges.items() if segment in cut}
    begun = any(first <= cut[segment] for segment, (first, _) in read.items())
    complete = all(last <= cut[segment] for segment, (_, last) in read.items())
    return begun and not complete


def entries(cut: Mapping[str, Position]) -> dict[str, set[Position]]:
    return {segment: {place for place in PLACES if place <= end} for segment, end in cut.items()}


@given(cuts, st.lists(extents, max_size=5), grown)
def test_no_transaction_is_split(cut: dict[str, Position], transactions: list[Extent], children: dict[str, Child]) -> None:
    found = whole_cut(cut, transactions, children)
    assert not any(splits(found, one) for one in transactions)
    assert not too_early(found, children)
    assert all(found[segment] <= cut[segment] for segment in SEGMENTS)


@given(cuts, st.lists(extents, max_size=4), grown)
def test_no_greater_cut_splits_no_transaction(
    cut: dict[str, Position], transactions: list[Extent], children: dict[str, Child]
) -> None:
    """`whole_cut` returns one cut. Try all other cuts at or below `cut`. One that splits no transaction, and reads no child before
    its parents, reaches no further than the returned cut in any segment.
    """
    found = entries(whole_cut(cut, transactions, children))
    ends = [[BEFORE, *(place for place in PLACES if place <= cut[segment])] for segment in SEGMENTS]
    for tried in itertools.product(*ends):
        other = dict(zip(SEGMENTS, tried, strict=True))
        if not any(splits(other, one) for one in transactions) and not too_early(other, children):
            assert all(read <= found[segment] for segment, read in entries(other).items())


@given(cuts, cuts, st.lists(extents, max_size=5))
def test_a_later_plan_never_ends_below_an_earlier_one(
    one: dict[str, Position], two: dict[str, Position], transactions: list[Extent]
) -> None:
    later = {segment: max(one[segment], two[segment]) for segment in SEGMENTS}
    first, second = whole_cut(one, transactions), whole_cut(later, transactions)
    assert all(entries(first)[segment] <= entries(second)[segment] for segment in SEGMENTS)


def test_segments_that_are_not_read_do_not_count() -> None:
    txn = Extent({"a": (Position(3, 0), Position(3, 1)), "z": (Position(7, 0), Position(7, 2))})
    assert whole_cut({"a": Position(3, 2)}, [txn]) == {"a": Position(3, 2)}


def test_a_transaction_that_is_left_out_takes_the_next_one_along() -> None:
    """In segment b the entry of the second transaction comes after that of the first one, so the second one is left out, too."""
    first = Extent({"a": (Position(3, 2), Position(3, 2)), "b": (Position(3, 0), Position(3, 0))})
    second = Extent({"b": (Position(3, 1), Position(3, 1)), "c": (Position(3, 0), Position(3, 0))})
    cut = {"a": Position(3, 1), "b": Position(3, 2), "c": Position(3, 2)}
    assert whole_cut(cut, [first, second]) == {"a": Position(3, 1), "b": Position(3, -1), "c": Position(3, -1)}


@given(cuts, cuts, st.lists(extents, max_size=4), grown)
def test_a_limit_ends_at_the_least_cut_that_splits_no_transaction(
    one: dict[str, Position], two: dict[str, Position], transactions: list[Extent], children: dict[str, Child]
) -> None:
    """Try all cuts between the limit and the whole cut. Each of them that splits no transaction and has no child before its parents
    contains the result of `least_whole_cut`.
    """
    cut = whole_cut({segment: max(one[segment], two[segment]) for segment in SEGMENTS}, transactions, children)
    limit = {segment: min(one[segment], cut[segment]) for segment in SEGMENTS}
    found = least_whole_cut(limit, cut, transactions, children)
    assert all(limit[segment] <= found[segment] <= cut[segment] for segment in SEGMENTS)
    assert not any(splits(found, txn) for txn in transactions)
    assert not too_early(found, children)
    ends = [sorted({limit[s], *(place for place in PLACES if limit[s] <= place <= cut[s])}) for s in SEGMENTS]
    for tried in itertools.product(*ends):
        other = dict(zip(SEGMENTS, tried, strict=True))
        if not any(splits(other, txn) for txn in transactions) and not too_early(other, children):
            assert all(found[segment] <= other[segment] for segment in SEGMENTS)
