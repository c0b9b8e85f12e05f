"""The faults of all scenarios, which strike processes, connections, disks and clocks. Each fault has one name.

Plans, crash points and random kills all use these names. `tests/conformance/scenarios/test_scenarios.py` checks that a
scenario meets each of them.
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """KILL: SIGKILL. STOP: SIGSTOP, and SIGCONT later; a process that is resumed after a successor has taken over is a zombie.
    TWIN: another process does the same work at the same time. FAIL: a store call raises, whether it was sent or not.

    Faults of connections: CUT (closed, and open again at once), REFUSE (not open again for a while), DELAY (in each direction),
    LOSE_REPLY (the request is done), EXPIRE (no traffic until the session has expired). FILL: the disk is full. SHIFT: a clock
    jumps.
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
