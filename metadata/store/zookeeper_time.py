"""The time of the ZooKeeper servers. A session measures the time: it writes a znode and takes the znode's mtime from the reply. The
leader sets the mtime from its clock.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

log = logging.getLogger(__name__)

TIME_SECONDS = 10.0
"""Maximum age of a measurement in seconds. It is short, because the leader's clock may be set at any time."""
LEAP_MS = 10_000
"""A change of the servers' clock by at least this many ms is logged. (Smaller changes may come from the duration of a request.)"""


class ServerTime(NamedTuple):
    """A measurement of the servers' time. `ms`: the time. `at`: when it was measured, in seconds of the local monotonic clock."""

    session: int
    ms: int
    at: float

    def now_ms(self, monotonic: float) -> int:
        return self.ms + int((monotonic - self.at) * 1000)


def learned(known: ServerTime | None, measured: ServerTime, began: float, hosts: str) -> ServerTime:
    """Return the time to use after the measurement `measured`, whose request was sent after `began`. `known`: the time used so far.

    If `known` agrees with the measurement within the duration of the request, it stays in use, so that a slow reply does not set
    the time back. Otherwise the leader's clock was set, or another server leads, and the measurement replaces `known`.
    """
    if known is None:
        return measured
    off = measured.ms - known.now_ms(measured.at)
    if off <= 0 <= off + int((measured.at - began) * 1000):
        return measured._replace(ms=known.now_ms(measured.at))
    if abs(off) >= LEAP_MS:
        log.warning("The clock of ZooKeeper at %s has moved by %s ms: another server leads, or its clock was set.", hosts, off)
    return measured
