"""Clocks. Callers pass a clock in, so that the simulator can control time."""

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
    """A source of time: wall time in ms since 1970 (`now_ms`), elapsed seconds (`monotonic`), waiting in seconds (`sleep`)."""

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


def wait(clock: Clock, event: threading.Event, seconds: float) -> None:
    """Wait until the event is set, but at most `seconds`. With a simulated clock: sleep for `seconds`, unless the event is set."""
    if isinstance(clock, SystemClock):
        event.wait(seconds)
    elif not event.is_set():
        clock.sleep(seconds)


@functools.cache
def boot_id() -> str:
    """Return an id of the epoch that the monotonic clock counts from. On Linux the epoch is the boot of the machine, and all
    processes of the machine get the same id. Elsewhere each process gets its own id.
    """
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return uuid.uuid4().hex


def running_ms(clock: Clock) -> int:
    """Return the time since boot in ms. For the system clock on Linux the kernel's uptime file is read, because libraries that
    change the clocks of a process do not change this file. Otherwise the clock's monotonic time is returned.
    """
    if type(clock) is SystemClock:
        with suppress(OSError):
            return int(float(_UPTIME.read_text().split()[0]) * 1000)
    return int(clock.monotonic() * 1000)
