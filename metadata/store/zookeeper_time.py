"""The servers' time as a session measures it: the mtime of a znode that it has just written, which is the leader's clock."""

from __future__ import annotations

import logging
from typing import NamedTuple

log = logging.getLogger(__name__)

TIME_SECONDS = 10.0
"""So long a measurement is used: a leader's clock may be set under it."""
LEAP_MS = 10_000
"""A clock that moves by so much is worth a warning. (What was measured is behind by as long as the answer took.)"""


class ServerTime(NamedTuple):
    """The servers' time at a moment of our monotonic clock (`at`, seconds), as a session measured it."""

    session: int
    ms: int
    at: float

    def now_ms(self, monotonic: float) -> int:
        return self.ms + int((monotonic - self.at) * 1000)


def learned(known: ServerTime | None, measured: ServerTime, began: float, hosts: str) -> ServerTime:
    """What counts after a measurement whose request was sent after `began`.

    What was known goes on if the leader may mean the same, so that the time of a session does not go back by an answer that took
    long. If not, the leader's clock was set, or another server leads: then its time counts, which everybody is told from now on.
    """
    if known is None:
        return measured
    off = measured.ms - known.now_ms(measured.at)
    if off <= 0 <= off + int((measured.at - began) * 1000):
        return measured._replace(ms=known.now_ms(measured.at))
    if abs(off) >= LEAP_MS:
        log.warning("The clock of ZooKeeper at %s has moved by %s ms: another server leads, or its clock was set.", hosts, off)
    return measured
