"""One party's wrong clock: shifts Python's `time.time` and `time.time_ns` by what a file says, from one call to the next.

The suite's environment imports this at every start of its Python (a line in a .pth file); nothing happens unless the environment
variable names the file. The shift counts for one party's driver and executors, and can jump while they run. It is a stand-in for
a machine with a wrong clock: the kernel's own times (of files, of the JVM) stay right.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "TXNSEGMENT_CONFORMANCE_CLOCK"
_SHIFT = struct.Struct("<q")
"""Nanoseconds."""


def set_shift(file: Path, seconds: float) -> None:
    """Set how far the clocks that read this file are wrong. One write changes the file, so that no process reads half a value."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(_SHIFT.pack(round(seconds * 1e9)))


def install(file: str) -> None:
    """Shift this process's clock from now on. Each call reads the current shift from the file."""
    real_ns = time.time_ns
    with open(file, "rb") as opened:
        shift = mmap.mmap(opened.fileno(), _SHIFT.size, access=mmap.ACCESS_READ)

    def time_ns() -> int:
        return real_ns() + int(_SHIFT.unpack_from(shift)[0])

    def seconds() -> float:
        return time_ns() / 1e9

    time.time_ns = time_ns
    time.time = seconds


if VARIABLE in os.environ:
    install(os.environ[VARIABLE])
