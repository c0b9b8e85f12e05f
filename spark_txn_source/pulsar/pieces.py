"""Divides the range of a segment into pieces, which several tasks read. Pure: no I/O, no clock.

A piece is a range `(after, to]` of positions. Each entry of the range is in exactly one piece, and a message in chunks belongs to
the piece of its last chunk (`pulsar_protocol.chunks`). So a read returns the same rows however its range is divided.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pulsar_protocol.layout import Position

Piece = tuple[Position, Position]
"""The position before the first entry of the piece, and the position of its last entry."""


@dataclass(frozen=True, slots=True)
class Run:
    """Successive entries of one ledger: from `first` to `last`, both inclusive."""

    ledger: int
    first: int
    last: int

    @property
    def entries(self) -> int:
        return self.last - self.first + 1


def numbers(
    entries: Mapping[str, int], sizes: Mapping[str, int], min_partitions: int | None, max_bytes: int | None
) -> dict[str, int]:
    """Return into how many pieces each segment is divided. A segment has at least one piece, and at most one for each entry.

    `entries`: how many entries each segment has. `sizes`: the mean size of an entry in bytes, by segment. A segment that is not in
    `sizes` is not divided by `max_bytes`. `min_partitions`: how many pieces all segments have together at least, if they have as
    many entries. `max_bytes`: the approximate limit of a piece in bytes.

    >>> numbers({"a": 90, "b": 10}, {"a": 100, "b": 100}, 5, 3000)
    {'a': 4, 'b': 1}
    """
    share = None if min_partitions is None else _share(entries.values(), min_partitions)
    found = {}
    for segment, count in entries.items():
        most = [count] if share is None else [count, share]
        if max_bytes is not None and segment in sizes:
            most.append(max(1, max_bytes // max(1, sizes[segment])))
        found[segment] = max(1, -(-count // max(1, min(most))))
    return found


def _share(counts: Collection[int], number: int) -> int:
    """Return the largest size of a piece, in entries, that still divides all segments into at least `number` pieces together.
    Return 1 if no size does. `counts`: how many entries each segment has.
    """
    most = range(1, max(counts, default=0) + 1)
    return max(1, bisect_right(most, -number, key=lambda share: -sum(-(-count // share) for count in counts)))


def divided(after: Position, to: Position, runs: Sequence[Run], number: int) -> list[Piece]:
    """Divide the range `(after, to]` into `number` pieces, each with nearly as many entries as the others, and return them in
    order. `runs`: the entries of the range, ascending. If the range has fewer than `number` entries, each entry is one piece.

    >>> divided(Position(3, 4), Position(7, 1), [Run(3, 5, 8), Run(7, 0, 1)], 3)[0]
    (Position(ledger=3, entry=4), Position(ledger=3, entry=6))
    """
    total = sum(one.entries for one in runs)
    number = min(number, total)
    ends, begin, left = [], 0, list(reversed(runs))
    for piece in range(1, number):
        last = total * piece // number - 1
        while last >= begin + left[-1].entries:
            begin += left.pop().entries
        ends.append(Position(left[-1].ledger, left[-1].first + last - begin))
    return list(zip([after, *ends], [*ends, to], strict=True))
