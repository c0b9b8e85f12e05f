"""The fault probabilities of one schedule, drawn from its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from conformance.simulator.store.faults import Fate

CHANCES = 1 << 20
"""The probability of a fate is a multiple of 1 / CHANCES."""


@dataclass(frozen=True)
class Plan:
    """The fault probabilities of one schedule. Some schedules have few faults and some have many. Each kind of fault is absent from
    many schedules. All fields except `fates` and `crashes` are probabilities:

    stay      the actor of the last step takes the next step, too
    torn      a list is read record by record
    slow      a reply is delayed
    lag       a read is answered by a replica that is behind
    doze      a thread pauses for a long time
    zombie    the thread's whole process pauses; this probability is a part of `doze`
    jump      the clock leaps, ahead or back
    dumb      the store does not tell the time
    deaf      a wake-up is lost
    fates     pairs (bound, fate), in ascending order of the bounds. Each step draws a number below CHANCES. The fate of the step is
              the first one whose bound is higher than this number; if there is none, the step succeeds
    crashes   the maximum number of crashes in the schedule
    """

    stay: float
    torn: float
    slow: float
    lag: float
    doze: float
    zombie: float
    jump: float
    deaf: float
    dumb: float
    fates: tuple[tuple[int, Fate], ...]
    crashes: int

    @classmethod
    def draw(cls, rng: random.Random, *, small: bool = False) -> Plan:
        """Draw the plan of a schedule. `small`: whether the schedule is short. In a short schedule faults are more frequent, since
        it has few steps, and fewer crashes are allowed.
        """
        often = 2.5 if small else 1.0

        def some(top: float) -> float:
            return often * rng.choice((0.0, 0.0, top / 4, top))

        rates = {
            Fate.CRASH_BEFORE: some(0.02),
            Fate.CRASH_AFTER: some(0.02),
            Fate.LOSE_REPLY: some(0.08),
            Fate.LOSE_REQUEST: some(0.04),
            Fate.LATE: some(0.04),
            Fate.SPLIT: some(0.10),
            Fate.SPLIT_CRASH: some(0.03),
            Fate.UNAVAILABLE: some(0.02),
            Fate.SESSION_LOST: some(0.02),
        }
        fates, total = [], 0.0
        for fate, rate in rates.items():
            total += rate
            if rate:
                fates.append((int(total * CHANCES), fate))
        doze = some(0.02)
        return cls(
            stay=rng.choice((0.0, 0.3, 0.7, 0.9, 0.95)),
            torn=rng.choice((0.0, 0.3, 1.0)),
            slow=rng.choice((0.0, 0.0, 0.3)),
            lag=rng.choice((0.0, 0.0, 0.0, 0.5, 0.9)),
            doze=doze,
            zombie=doze * rng.choice((0.0, 0.2)),
            jump=some(0.01),
            deaf=rng.choice((0.0, 0.3, 1.0)),
            fates=tuple(fates) if rng.random() < 0.8 else (),
            crashes=2 if small else 6,
            dumb=some(0.02),
        )
