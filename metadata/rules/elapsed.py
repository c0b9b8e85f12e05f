"""How much time has passed, by more clocks than one (protocol.md section 7, Time). PURE: no I/O, no clock.

Whoever sweeps or trims notes what the clocks showed when it looked: the store's, its own machine's, and the machine's monotonic
clock, which counts since it was started and is never set. What all of these agree on has passed. So no clock that leaps, be it
ahead or back, makes fresh rows old: a limit of `keep` is judged by time that has passed, and by the smallest lead that the clocks
had over it within `keep`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metadata.records.json_records import JsonRecord

WITNESSES = 16
"""Machines whose last look is remembered."""
SPACING = 16
"""Looks are kept so densely that the distance between two is at most this part of their age."""


class Clocks(NamedTuple):
    """What the clocks show in one moment, in ms. `boot`: whose monotonic clock it is (one start of one machine)."""

    store_ms: int
    wall_ms: int
    monotonic_ms: int
    boot: str


class ClockLook(JsonRecord):
    """One look. `number`: the newest of the log then. `elapsed_ms`: what had passed since the first look. `lead_ms`: the store's
    time or the looker's own, whichever was less, above `elapsed_ms`.
    """

    number: int
    elapsed_ms: int
    lead_ms: int


class Witness(JsonRecord):
    """What one machine showed when it last looked."""

    elapsed_ms: int
    store_ms: int
    monotonic_ms: int


class SeenTime(JsonRecord):
    """The time that has passed as it was seen. `store_ms`, `wall_ms`: as the last look showed them. `looks`: oldest first."""

    elapsed_ms: int
    store_ms: int
    wall_ms: int
    looks: tuple[ClockLook, ...]
    witnesses: dict[str, Witness]


def looked(before: SeenTime | None, now: Clocks, number: int) -> SeenTime:
    """What is known after a look. `number`: the newest of the log that was listed before the clocks were read."""
    elapsed = 0 if before is None else before.elapsed_ms + max(0, _passed(before, now))
    known = {} if before is None else before.witnesses
    mine = known.get(now.boot)
    if mine is not None:
        elapsed = max(elapsed, mine.elapsed_ms + _since(mine, now))
    look = ClockLook(number=number, elapsed_ms=elapsed, lead_ms=min(now.store_ms, now.wall_ms) - elapsed)
    witness = Witness(elapsed_ms=elapsed, store_ms=now.store_ms, monotonic_ms=now.monotonic_ms)
    newest = sorted(((boot, w) for boot, w in known.items() if boot != now.boot), key=lambda found: found[1].elapsed_ms)
    return SeenTime(
        elapsed_ms=elapsed,
        store_ms=now.store_ms,
        wall_ms=now.wall_ms,
        looks=thinned([*(() if before is None else before.looks), look]),
        witnesses={**dict(newest[1 - WITNESSES :]), now.boot: witness},
    )


def _passed(before: SeenTime, now: Clocks) -> int:
    """Since the last look of anybody: only a machine that has not looked before must go by two clocks that can be set."""
    if now.boot in before.witnesses:
        return 0
    return min(now.store_ms - before.store_ms, now.wall_ms - before.wall_ms)


def _since(mine: Witness, now: Clocks) -> int:
    """Since this machine's own last look: by a clock that is never set, and the store's."""
    return max(0, min(now.store_ms - mine.store_ms, now.monotonic_ms - mine.monotonic_ms))


def thinned(looks: Sequence[ClockLook]) -> tuple[ClockLook, ...]:
    """The looks that are worth keeping, oldest first. One that is left out leaves its lead to the next one, if it is less."""
    kept: list[ClockLook] = []
    newest = looks[-1].elapsed_ms
    for look in looks:
        last = kept[-1] if kept else None
        before = kept[-2].elapsed_ms if len(kept) > 1 else None
        if last is not None and before is not None and (look.elapsed_ms - before) * SPACING <= newest - look.elapsed_ms:
            kept.pop()
            look = look.model_copy(update={"lead_ms": min(look.lead_ms, last.lead_ms)})
        kept.append(look)
    return tuple(kept)


def now_for(seen: SeenTime, keep_ms: int) -> int:
    """The time by which it is judged whether something was published longer ago than `keep_ms`: not later than the store's time or
    the looker's own, and not later than any clock within `keep_ms` (or at the last look before) lets one say.
    """
    within, before = _within(seen, keep_ms)
    return seen.elapsed_ms + min(look.lead_ms for look in [*before[-1:], *within])


def known_to(seen: SeenTime, keep_ms: int) -> int:
    """The number above which nothing is older than `keep_ms`, whatever its publish time says: it was not there at a look since."""
    within, _ = _within(seen, keep_ms)
    return within[0].number


def _within(seen: SeenTime, keep_ms: int) -> tuple[list[ClockLook], list[ClockLook]]:
    """The looks of the last `keep_ms`, the last one in any case, and those before."""
    first = seen.elapsed_ms - keep_ms
    within = [look for look in seen.looks if look.elapsed_ms >= first]
    return within, [look for look in seen.looks if look.elapsed_ms < first]
