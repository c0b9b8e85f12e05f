"""Lowers the priority of writers, so that most processor time is left to the readers. With equal priorities, the measured lag of
the readers would mostly be the time that they wait for a core.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_NICE = 15
"""The niceness of a writer. With it, the writer gets about a thirtieth of the normal share of processor time. With a smaller share,
a writer that holds a lock of the store would wait long for a core, and all readers would wait for the lock.
"""
_AUTOGROUP = Path("/proc/self/autogroup")
_SECONDS = 60.0
"""The longest wait for the kernel, in seconds. A minute is enough even if hundreds of processes lower their priority at once."""


def lower_priority() -> None:
    """Lower the priority of this process. Raises BlockingIOError if the kernel refuses that for a minute.

    If sched_autogroup is on, Linux divides processor time between sessions, and the niceness of a process counts only within its
    session. So this function then also starts a session for this process, and sets the niceness of that session.
    """
    os.nice(_NICE)
    if _AUTOGROUP.exists():
        os.setsid()
        until = time.monotonic() + _SECONDS
        while True:
            try:
                _AUTOGROUP.write_text(str(_NICE))
                return
            except BlockingIOError:  # the kernel accepts one unprivileged write in 100 ms (sched/autogroup.c)
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)
