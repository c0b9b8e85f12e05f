"""The servers' time. A session measures it as the mtime of a znode that it has just written, which is set by the leader's clock."""

from __future__ import annotations

import logging
from typing import NamedTuple

log = logging.getLogger(__name__)

TIME_SECONDS = 10.0
"""Maximum age of a measurement. It is short, because a leader's clock may be set at any time."""
LEAP_MS = 10_000
"""A clock change of at least this many ms is logged. (A measurement lags by the duration of its request.)"""


class ServerTime(NamedTuple):
    """The servers' time at a moment of the local monotonic clock (`at`, seconds), as a session measured it."""

    session: int
    ms: int
    at: float

    def now_ms(self, monotonic: float) -> int:
        return self.ms + int((monotonic - self.at) * 1000)


def learned(known: ServerTime | None, measured: ServerTime, began: float, hosts: str) -> ServerTime:
    """Return the time to use after a measurement whose request was sent after `began`.

    If the previous time agrees with the measurement within the duration of the request, the previous time stays in use. So a slow
    reply does not set the session's time back. If they disagree, the leader's clock was set or another server leads. Then the
    measurement replaces the previous time.
    """
    if known is None:
        return measured
    off = measured.ms - known.now_ms(measured.at)
    if off <= 0 <= off + int((measured.at - began) * 1000):
        return measured._replace(ms=known.now_ms(measured.at))
    if abs(off) >= LEAP_MS:
        log.warning("The clock of ZooKeeper at %s has moved by %s ms: another server leads, or its clock was set.", hosts, off)
    return measured
