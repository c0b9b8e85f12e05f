"""Lowers the priority of writers, so that most of the processor is left to the readers beside them. Otherwise the readers' lag
would measure the wait for a core.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_NICE = 15
"""The niceness of a writer: about a thirtieth of the normal processor share. With a smaller share, a writer that holds a lock of
the store would wait long for a core, and all readers would wait for the lock.
"""
_AUTOGROUP = Path("/proc/self/autogroup")
_SECONDS = 60.0
"""The longest wait for the kernel, in seconds. A minute is enough even if hundreds of processes lower their priority at once."""


def lower_priority() -> None:
    """Lower the priority of this process. Raises BlockingIOError if the kernel refuses that for a minute.

    With sched_autogroup, Linux divides the processor between sessions, and the niceness of a process counts only within its
    session. Then the process gets a session of its own, and the niceness of this session is set, too.
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
