"""The search for a position in a segment by probes. Pure: no I/O, no clock, no random numbers.

A probe asks the broker for one entry at or after a position. The broker delivers an entry only if it is at or below the position up
to which all is decided, and if it is not of an aborted transaction. So a delivered entry proves that all entries up to it are
decided. A probe without a delivery proves nothing, because the broker may be slow. The search then assumes that the
decided entries end before the probe. So the position that the search finds may be too low, and is never too high.

It is not known how many entries a ledger has. So a search over several ledgers first finds the ledger, and then the entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pulsar_protocol.layout import EARLIEST, Position

FAR: Final = 1 << 20
"""The greatest distance of a probe from the proven position in a ledger whose size is not known."""


def following(position: Position) -> Position:
    """Return the position to probe for the first entry after `position`. For EARLIEST this is EARLIEST itself: a probe there finds
    the first entry of the segment.
    """
    return EARLIEST if position == EARLIEST else Position(position.ledger, position.entry + 1)


@dataclass(frozen=True)
class Bounds:
    """What is known about the position that is searched: it is at or above `low`, and below `high`. A delivery has proven `low`
    (EARLIEST: nothing is proven). At and above `high` the broker delivered nothing, or no entry exists.
    """

    low: Position
    high: Position

    @property
    def done(self) -> bool:
        """Whether no position between the bounds is left to probe."""
        return following(self.low) >= self.high

    def places(self, number: int) -> tuple[Position, ...]:
        """Return the positions to probe next, ascending, at most `number` of them (2 or more). The first one follows `low`
        directly. So each round of probes moves `low` up, or ends the search.
        """
        if self.done:
            return ()
        first = following(self.low)
        found = {first}
        if self.high.entry > 0:
            found.add(Position(self.high.ledger, self.high.entry - 1))
        inside = [place for place in self._between(max(0, number - len(found))) if first < place < self.high]
        return tuple(sorted(found | {*inside}))[: max(2, number)]

    def _between(self, number: int) -> list[Position]:
        low, high = self.low, self.high
        if number == 0:
            return []
        if low.ledger == high.ledger:
            return [Position(low.ledger, entry) for entry in _spread(low.entry + 1, high.entry, number)]
        ledgers = range(low.ledger + 1, high.ledger + (high.entry > 0))
        if len(ledgers) > 1 or (ledgers and number > 1):
            starts = [Position(one, 0) for one in _spread(ledgers.start, ledgers.stop, max(1, number // 2))]
            starts += [Position(ledgers[-1], 0)] if ledgers[-1] == high.ledger else []
        else:
            starts = [Position(one, 0) for one in ledgers]
        left = number - len(starts)
        if left <= 0:
            return starts[-number:]
        if high.entry > 0:
            return starts + [Position(high.ledger, entry) for entry in _spread(1, high.entry, left)]
        return starts + [Position(low.ledger, low.entry + 1 + distance) for distance in _steps(left)]

    def learned(self, answers: Mapping[Position, Position | None]) -> Bounds:
        """Return the bounds after probes. `answers`: for each probed position the position of the delivered entry, or None."""
        low = max([self.low, *(one for one in answers.values() if one is not None)])
        silent = [asked for asked, found in answers.items() if found is None and asked >= following(low)]
        return replace(self, low=low, high=max(following(low), min([self.high, *silent])))


def _spread(start: int, stop: int, number: int) -> list[int]:
    """Return at most `number` whole numbers, start <= n < stop, evenly spread."""
    size = stop - start
    if size <= number:
        return list(range(start, stop))
    return sorted({start + size * (one + 1) // (number + 1) for one in range(number)})


def _steps(number: int) -> list[int]:
    """Return `number` distances, each several times the one before, up to FAR."""
    ratio = FAR ** (1 / number)
    return sorted({max(1, round(ratio ** (one + 1))) for one in range(number)})
