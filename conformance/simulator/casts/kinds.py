"""The kinds of schedules, and the share of each kind."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from conformance.simulator.casts import (
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
from conformance.simulator.casts.casts import Cast

Draw = Callable[[random.Random, bool], Cast]
Share = tuple[float, Draw]


def _backing(rng: random.Random, trace: bool) -> Cast:
    """Return a cast with backups, of either model."""
    return in_stream_backups.drawn(rng, trace) if rng.random() < 0.3 else backups.drawn(rng, trace)


QUICK: tuple[Share, ...] = (
    (0.9, partial(casts.middle, sweeping=0.02, brief=True)),
    (0.05, acking.short),
    (0.02, partial(casts.small, brief=True)),
    (0.01, moving.short),
    (0.01, splitting.short),
    (0.01, compacting.short),
)
"""The casts of schedules that run by default, each with its share. Most of them have a few actors, in a world with a past in which
transactions were committed (`pasts`). Such schedules are short, so two cores run a thousand of them in a second.
"""

LONG = 0.045
"""The share of long schedules in each of KINDS. In a long schedule all actors run at once, each several times. In a short schedule
a few actors run, once or twice each. docs/conformance.md (Long and short schedules) gives the reasons.
"""

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
"""LONGS and SHORTS are the casts of the long and of the short schedules of the kind "wide", each with its share. The shares are
chosen by running time. For example, the schedules with movers take about the same part of the total time as they took when all
schedules were long.
"""


def _alone(draw: Draw) -> tuple[Share, ...]:
    return ((1.0, draw),)


KINDS: dict[str, tuple[Sequence[Share], Sequence[Share]]] = {
    "wide": (LONGS, SHORTS),
    "splitting": (_alone(splitting.drawn), _alone(splitting.short)),
    "acking": (_alone(acking.drawn), _alone(acking.short)),
    "moving": (_alone(moving.drawn), _alone(moving.short)),
    "compacting": (_alone(compacting.drawn), _alone(compacting.short)),
    "backing": (_alone(_backing), _alone(_backing)),
    "instream": (_alone(in_stream.drawn), _alone(in_stream.short)),
    "migrating": (_alone(migrating.drawn), _alone(migrating.short)),
}
"""The kinds of schedules that can be selected by name, each with its long and its short casts.

wide        all kinds below except "migrating", and schedules with writers, readers and sweepers only
splitting   topics with keys are split and merged
acking      consumers acknowledge rows, with and without transactions
moving      movers take rows of one topic, write to two others through staging manifests, and acknowledge in the same transaction
compacting  actors that compact and trim run beside the actors of another kind
backing     backups are taken and restored
instream    persistent topics are written and read
migrating   persistent topics are also migrated
"""


def drawn(rng: random.Random, trace: bool, only: str = "") -> Cast:
    """Return a world with all its actors. `only`: the name of a kind in KINDS; if empty, the shares of QUICK decide on the cast."""
    is_long, chance = rng.random() < LONG, rng.random()
    if not only:
        return _of(QUICK, chance)(rng, trace)
    longs, shorts = KINDS[only]
    return _of(longs if is_long else shorts, chance)(rng, trace)


def _of(shares: Sequence[Share], chance: float) -> Draw:
    for share, draw in shares[:-1]:
        chance -= share
        if chance < 0:
            return draw
    return shares[-1][1]
