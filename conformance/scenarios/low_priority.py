"""A load at low priority leaves most of the processor to the readers beside it: else those show who gets a core, not who waits."""

from __future__ import annotations

import os
import time
from pathlib import Path

_NICE = 15
"""A thirtieth of the weight, not less: who holds a lock of the store must get on, or the readers wait for him all the same."""
_AUTOGROUP = Path("/proc/self/autogroup")
_SECONDS = 60.0
"""For hundreds of processes that ask at once."""


def lower_priority() -> None:
    """Let the other processes go first. Linux may schedule sessions against each other (sched_autogroup), and niceness then counts
    only within one: such a process needs a session of its own, whose niceness is set apart. Raises BlockingIOError if the kernel
    refuses that for a minute.
    """
    os.nice(_NICE)
    if _AUTOGROUP.exists():
        os.setsid()
        until = time.monotonic() + _SECONDS
        while True:
            try:
                _AUTOGROUP.write_text(str(_NICE))
                return
            except BlockingIOError:  # of all processes without CAP_SYS_ADMIN the kernel hears one in 100 ms (sched/autogroup.c)
                if time.monotonic() > until:
                    raise
            time.sleep(0.05)
