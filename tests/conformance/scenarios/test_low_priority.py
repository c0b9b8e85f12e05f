"""Several processes can lower their priority at the same moment, although the kernel may refuse some of them at first."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")
LOWERS = f"""
import ctypes, os, sys
from pathlib import Path
from conformance.scenarios.low_priority import lower_priority
group = Path({str(AUTOGROUP)!r})
if group.exists():  # with CAP_SYS_ADMIN the kernel hears everybody at once: do without (capset, version 3)
    assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
print("up", flush=True)
sys.stdin.read()
lower_priority()
print(os.nice(0), group.read_text() if group.exists() else "")
"""


def test_all_at_once() -> None:
    reads, writes = os.pipe()
    with ExitStack() as ended, open(reads, "rb") as start, open(writes, "wb") as everybody:
        started = []
        for _ in range(4):
            command = [sys.executable, "-c", LOWERS]
            one = ended.enter_context(subprocess.Popen(command, stdin=start, stdout=subprocess.PIPE, text=True))
            ended.callback(one.kill)
            started.append(one)
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "up\n"
        everybody.close()  # all processes read this pipe, so its end lets them continue at the same moment
        for one in started:
            said, _ = one.communicate()
            assert one.returncode == 0
            assert int(said.split()[0]) >= 15
            assert "nice 15" in said or not AUTOGROUP.exists()
