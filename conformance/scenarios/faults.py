"""The faults of all scenarios, which strike processes, connections, disks and clocks. Each fault has one name.

Plans, crash points and random kills all use these names. `tests/conformance/scenarios/test_scenarios.py` checks that
`make chaos` strikes with each of them.
"""

from __future__ import annotations

from enum import StrEnum


class Fault(StrEnum):
    """The kinds of fault. The first four strike processes.

    KILL: SIGKILL. STOP: SIGSTOP, and SIGCONT later. A process that is resumed after another process took over its work is a
    zombie. TWIN: another process does the same work at the same time. FAIL: a store call raises; the call may have been sent or
    not.

    The next five strike connections. CUT: a connection is closed, and can be opened again at once. REFUSE: a connection is closed,
    and cannot be opened again for a while. DELAY: traffic is delayed in each direction. LOSE_REPLY: the store does the request, but
    the reply is lost. EXPIRE: there is no traffic until the session has expired.

    FILL: the disk is full. SHIFT: a clock jumps.
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
