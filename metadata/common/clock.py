"""Time is passed in wherever it is read, so that the simulator can move it."""

from __future__ import annotations

import functools
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_UPTIME = Path("/proc/uptime")


class Clock(Protocol):
    """Wall time in ms since 1970 (`now_ms`), elapsed seconds (`monotonic`), and waiting (`sleep`, seconds)."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)


@functools.cache
def boot_id() -> str:
    """Names what the monotonic clock counts from: the start of this machine, for all its processes alike, where it says so (Linux);
    elsewhere this process has a name of its own.
    """
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return uuid.uuid4().hex


def running_ms(clock: Clock) -> int:
    """For how long this machine has been running, in ms: as the kernel says in a file, which a library that shifts the clocks of a
    process does not reach; elsewhere, and for a clock that was given in place of the machine's, its monotonic one.
    """
    if type(clock) is SystemClock:
        with suppress(OSError):
            return int(float(_UPTIME.read_text().split()[0]) * 1000)
    return int(clock.monotonic() * 1000)
