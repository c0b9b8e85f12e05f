"""The wrong clock of one party. Python's `time.time` and `time.time_ns` are shifted by the number of nanoseconds in a file, which
is read at each call.

Every Python of the deployment imports this module at its start, because of a line in a .pth file (`installation`). The clock is
shifted only if the environment variable TXNSEGMENT_CONFORMANCE_CLOCK names the file with the shift. The driver and the executors of
one party have the same file. The shift can be changed while they run. So the party behaves as if its machine had a wrong clock,
except that the times of files and of the JVM stay right.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "TXNSEGMENT_CONFORMANCE_CLOCK"
_SHIFT = struct.Struct("<q")
"""The content of the file: the shift in nanoseconds."""


def set_shift(file: Path, seconds: float) -> None:
    """Write the shift, in seconds, of the clocks that read this file. One write sets all bytes. So nobody reads half a value."""
    with file.open("r+b" if file.exists() else "w+b") as opened:
        opened.write(_SHIFT.pack(round(seconds * 1e9)))


def install(file: str) -> None:
    """Shift this process's clock from now on. Each call of `time.time` reads the current shift from `file`."""
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
