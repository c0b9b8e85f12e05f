"""Which kinds of schedules there are, and how many of each are run."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from conformance.simulator import (
    acking,
    backups,
    casts,
    compacting,
    in_stream,
    in_stream_backups,
    migrating,
    moving,
    splitting,
)
from conformance.simulator.casts import Cast

Draw = Callable[[random.Random, bool], Cast]
Share = tuple[float, Draw]


def _backing(rng: random.Random, trace: bool) -> Cast:
    """Of either model."""
    return in_stream_backups.drawn(rng, trace) if rng.random() < 0.3 else backups.drawn(rng, trace)


LONG = 0.045
"""The share of long schedules: everybody at once, each several times. In short ones a few meet, once or twice each. (What was
weighed: docs/conformance.md, Long and short schedules.)"""

LONGS: tuple[Share, ...] = (
    (0.22, casts.big),
    (0.18, splitting.drawn),
    (0.18, acking.drawn),
    (0.12, moving.drawn),
    (0.12, compacting.drawn),
    (0.15, _backing),
    (0.03, in_stream.drawn),
)
SHORTS: tuple[Share, ...] = (
    (0.46, casts.middle),
    (0.15, casts.small),
    (0.19, acking.short),
    (0.085, splitting.short),
    (0.07, moving.short),
    (0.025, compacting.short),
    (0.02, in_stream.short),
)
"""Most begin in the middle of things. Each kind, long and short together, has about the share of the time that it had when all were
long.
"""

KINDS: dict[str, tuple[Draw, Draw]] = {
    "splitting": (splitting.drawn, splitting.short),
    "acking": (acking.drawn, acking.short),
    "moving": (moving.drawn, moving.short),
    "compacting": (compacting.drawn, compacting.short),
    "backing": (_backing, _backing),
    "instream": (in_stream.drawn, in_stream.short),
    "migrating": (migrating.drawn, migrating.short),
}
"""What schedules can be asked to be of alone: (long, short). Topics with keys are split and merged; consumers acknowledge, row by
row, in transactions and without; movers take, write two topics and acknowledge in one transaction, staged through manifests;
somebody compacts and trims beside all these; backups are taken and restored; persistent topics are
written and read.
"""


def drawn(rng: random.Random, trace: bool, only: str = "") -> Cast:
    """A world with everybody in it, of a kind by these shares; `only`: of one of the KINDS."""
    is_long, chance = rng.random() < LONG, rng.random()
    if only:
        return KINDS[only][0 if is_long else 1](rng, trace)
    return _of(LONGS if is_long else SHORTS, chance)(rng, trace)


def _of(shares: Sequence[Share], chance: float) -> Draw:
    for share, draw in shares[:-1]:
        chance -= share
        if chance < 0:
            return draw
    return shares[-1][1]
