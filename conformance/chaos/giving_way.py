"""A load that leaves most of the processor to the others: else readers beside it show who gets a core, not who waits for whom."""

from __future__ import annotations

import os
from pathlib import Path

_NICE = 15
"""A thirtieth of the weight, not less: who holds a lock of the store must get on, or the readers wait for him all the same."""
_AUTOGROUP = Path("/proc/self/autogroup")


def give_way() -> None:
    """Let the other processes go first. Linux may schedule sessions against each other (sched_autogroup), and niceness then counts
    only within one: such a process needs a session of its own, whose niceness is set apart.
    """
    os.nice(_NICE)
    if _AUTOGROUP.exists():
        os.setsid()
        _AUTOGROUP.write_text(str(_NICE))
