"""What the scenarios do to processes, connections, disks and clocks: one word for each, whoever is struck and by what means.

A plan, a crash point and a random kill all say what they do in these words. `tests/conformance/chaos/test_scenarios.py` holds that
every one of them is met by a scenario.
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """KILL: SIGKILL. STOP: SIGSTOP, and SIGCONT some time later; if a successor has taken over meanwhile, the one that wakes is a
    zombie. TWIN: another process does the same at the same time. FAIL: a call to the store raises, sent or not.

    Of connections: CUT (closed, and open again at once), REFUSE (not open again for a while), DELAY (each way), LOSE_REPLY (the
    request is done), EXPIRE (silence until the session is over). Of the disk FILL, of a clock SHIFT.
    """

    KILL = "kill"
    STOP = "stop"
    TWIN = "twin"
    FAIL = "fail"
    CUT = "cut"
    REFUSE = "refuse"
    DELAY = "delay"
    LOSE_REPLY = "lose reply"
    EXPIRE = "expire"
    FILL = "fill"
    SHIFT = "shift"
