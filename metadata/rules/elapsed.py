"""Elapsed time, measured by several clocks (protocol.md section 7, Time). Pure: no I/O, no clock.

A sweep or trim reads three clocks: the store's clock, the machine's clock, and the machine's monotonic clock, which counts from
boot and is never set. It records the three readings as one observation. Time counts as elapsed only if the clocks agree that it has
passed. So one clock that leaps ahead or back never makes new rows old.

The lead of an observation is the earlier of the store's time and the machine's time, minus the elapsed time. To judge an age limit
`keep`, the rules compute a present time: the elapsed time plus the smallest lead of some observations. These are all observations
within the last `keep`, and the last observation before them. The smallest lead gives the earliest present time, so rows may look
younger than they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from metadata.records.json_records import JsonRecord

WITNESSES = 16
"""Maximum number of machines whose last observation is kept."""
SPACING = 16
"""An observation is dropped only if the time between its two neighbours is at most 1/SPACING of the age of the later neighbour."""


class Clocks(NamedTuple):
    """One observation of all clocks at the same time, in ms. `boot` identifies the monotonic clock (one boot of one machine)."""

    store_ms: int
    wall_ms: int
    monotonic_ms: int
    boot: str


class ClockLook(JsonRecord):
    """One recorded observation of the clocks. `number`: the newest number of the log at that time. `elapsed_ms`: the time since the
    first observation. `lead_ms`: the earlier of the store's time and the machine's time, minus `elapsed_ms`.
    """

    number: int
    elapsed_ms: int
    lead_ms: int


class Witness(JsonRecord):
    """The last observation by one machine."""

    elapsed_ms: int
    store_ms: int
    monotonic_ms: int


class SeenTime(JsonRecord):
    """The record of the observations. `elapsed_ms`: the elapsed time at the last observation, counted from the first one.
    `store_ms`, `wall_ms`: the store's time and the machine's time at the last observation. `looks`: the kept observations, oldest
    first. `witnesses`: the last observation by each machine, by the machine's `boot` (`Clocks`).
    """

    elapsed_ms: int
    store_ms: int
    wall_ms: int
    looks: tuple[ClockLook, ...]
    witnesses: dict[str, Witness]


def looked(before: SeenTime | None, now: Clocks, number: int) -> SeenTime:
    """Return `before` with the observation `now` added. `before` is None for the first observation. `number`: the newest number of
    the log, which was listed before the clocks were read.
    """
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
    """Return the time in ms since the last observation by any machine. It is the smaller of the times that passed by the store's
    clock and by the machine's clock. Return 0 if `before` has an observation by this machine, because then `_since` measures the
    time.
    """
    if now.boot in before.witnesses:
        return 0
    return min(now.store_ms - before.store_ms, now.wall_ms - before.wall_ms)


def _since(mine: Witness, now: Clocks) -> int:
    """Return the time in ms since this machine's own last observation, by its monotonic clock and the store's clock."""
    return max(0, min(now.store_ms - mine.store_ms, now.monotonic_ms - mine.monotonic_ms))


def thinned(looks: Sequence[ClockLook]) -> tuple[ClockLook, ...]:
    """Return the observations to keep, oldest first. When an observation is dropped, the next one gets the smaller lead of both."""
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
    """Return the time in ms by which the age limit `keep_ms` is judged: the elapsed time plus a lead. The lead is the smallest
    lead of these observations: all within the last `keep_ms`, and the last one before them. The result is never above the store's
    time or the machine's time at the last observation.
    """
    within, before = _within(seen, keep_ms)
    return seen.elapsed_ms + min(look.lead_ms for look in [*before[-1:], *within])


def known_to(seen: SeenTime, keep_ms: int) -> int:
    """Return a log number. Every entry above it is younger than `keep_ms`, whatever its publish time, because an observation within
    the last `keep_ms` found a log without that entry.
    """
    within, _ = _within(seen, keep_ms)
    return within[0].number


def _within(seen: SeenTime, keep_ms: int) -> tuple[list[ClockLook], list[ClockLook]]:
    """Return the observations of the last `keep_ms` (at least the newest one), and the observations before them."""
    first = seen.elapsed_ms - keep_ms
    within = [look for look in seen.looks if look.elapsed_ms >= first]
    return within, [look for look in seen.looks if look.elapsed_ms < first]
