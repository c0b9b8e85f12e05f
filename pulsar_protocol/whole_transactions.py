"""Cuts that split no transaction, and have no entries of a child before all entries of its parents. Pure.

Pulsar makes a committed transaction visible in each segment on its own. Its rows can be visible in one segment while another
transaction, which is still open, hides them in the next segment. A reader that takes each segment up to its own maxReadPosition
would return a part of such a transaction. `whole_cut` lowers these positions until the cut has each transaction completely or not
at all.

A segment that was split or merged is the parent of the segments that follow it. The earlier rows of a key are in the parent. So a
cut may have entries of a child only if it has all entries of the child's parents.

A cut that keeps these two rules is called whole here. At or below any cut there is a greatest whole cut (`whole_cut`). At or above
given positions, and at or below a whole cut, there is a least whole cut (`least_whole_cut`). A rate limit uses the least one to end
a batch between transactions.

The greatest whole cut exists because two whole cuts can be joined: in each segment, take the greater of their two positions. The
joined cut is whole. A transaction that one of the two cuts has completely is complete in the joined cut. A transaction that neither
of them has is absent. If the joined cut has entries of a child, one of the two cuts has them too, and so has all entries of the
child's parents. The least whole cut exists by the same argument with the lesser positions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pulsar_protocol.layout import Position


@dataclass(frozen=True, slots=True)
class Extent:
    """The entries of one committed transaction. `ranges`: for each of its segments, the positions of its first and last entry."""

    ranges: Mapping[str, tuple[Position, Position]]


@dataclass(frozen=True, slots=True)
class Child:
    """A segment with ancestors that have not been read to their ends. `start`: where the read begins in this segment. `parents`:
    for each of these ancestors, its last entry to read before this segment; None: the ancestor cannot be read to its end yet.
    """

    start: Position
    parents: Mapping[str, Position | None]


NO_CHILDREN: Mapping[str, Child] = {}


def whole_cut(
    cut: Mapping[str, Position], transactions: Iterable[Extent], children: Mapping[str, Child] = NO_CHILDREN
) -> dict[str, Position]:
    """Return the greatest cut at or below `cut` that splits none of the transactions, and reads a child only after its parents.

    `cut`: the last position to read in each segment, inclusive. Segments of a transaction that are not in `cut` are not read, so
    they do not count. A transaction with entries beyond `cut` is left out in all its segments.

    >>> cut = {"a": Position(1, 9), "b": Position(2, 3)}
    >>> txn = Extent({"a": (Position(1, 4), Position(1, 5)), "b": (Position(2, 4), Position(2, 6))})
    >>> whole_cut(cut, [txn])
    {'a': Position(ledger=1, entry=3), 'b': Position(ledger=2, entry=3)}
    >>> whole_cut(cut, [], {"b": Child(Position(2, 0), {"a": Position(1, 12)})})
    {'a': Position(ledger=1, entry=9), 'b': Position(ledger=2, entry=0)}
    """
    found = dict(cut)
    read = [{s: places for s, places in one.ranges.items() if s in found} for one in transactions]
    by_last = {segment: _by_last(segment, read) for segment in found}
    of_parent = defaultdict(list)
    for name, child in children.items():
        for parent in child.parents:
            of_parent[parent].append((name, child))
    lowered = list(found)
    while lowered:
        segment = lowered.pop()
        waiting = by_last[segment]
        while waiting and waiting[-1][0] > found[segment]:
            _, number = waiting.pop()
            for other, (first, _) in read[number].items():
                before = Position(first.ledger, first.entry - 1)
                if before < found[other]:
                    found[other] = before
                    lowered.append(other)
        for name, child in of_parent[segment]:
            end = child.parents[segment]
            if name in found and found[name] > child.start and (end is None or found[segment] < end):
                found[name] = child.start
                lowered.append(name)
    return found


def _by_last(segment: str, read: Sequence[Mapping[str, tuple[Position, Position]]]) -> list[tuple[Position, int]]:
    """Return, for each transaction in the segment, the position of its last entry there and its index in `read`, ascending by
    position.
    """
    return sorted((places[segment][1], number) for number, places in enumerate(read) if segment in places)


def least_whole_cut(
    ends: Mapping[str, Position],
    cut: Mapping[str, Position],
    transactions: Iterable[Extent],
    children: Mapping[str, Child] = NO_CHILDREN,
) -> dict[str, Position]:
    """Return the least cut at or above `ends` that splits none of the transactions, and reads a child only after its parents.
    `cut`: a cut at or above `ends` that keeps these rules, as `whole_cut` returns it.

    >>> txn = Extent({"a": (Position(1, 4), Position(1, 5)), "b": (Position(2, 4), Position(2, 6))})
    >>> least_whole_cut({"a": Position(1, 4)}, {"a": Position(1, 9), "b": Position(2, 9)}, [txn])
    {'a': Position(ledger=1, entry=5), 'b': Position(ledger=2, entry=6)}
    """
    found = dict(ends)
    read = [{s: places for s, places in one.ranges.items() if s in cut} for one in transactions]
    by_first: dict[str, list[tuple[Position, int]]] = {segment: [] for segment in cut}
    for number, places in enumerate(read):
        if all(last <= cut[segment] for segment, (_, last) in places.items()):
            for segment, (first, _) in places.items():
                by_first[segment].append((first, number))
    for waiting in by_first.values():
        waiting.sort(reverse=True)
    raised = list(found)

    def reach(segment: str, position: Position) -> None:
        if segment not in found or position > found[segment]:
            found[segment] = position
            raised.append(segment)

    while raised:
        segment = raised.pop()
        waiting = by_first[segment]
        while waiting and waiting[-1][0] <= found[segment]:
            _, number = waiting.pop()
            for other, (_, last) in read[number].items():
                reach(other, last)
        if segment in children and found[segment] > children[segment].start:
            for parent, end in children[segment].parents.items():
                if end is not None:
                    reach(parent, end)
    return found
