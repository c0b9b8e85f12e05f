"""Writers that give way at the same moment all do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

AUTOGROUP = Path("/proc/self/autogroup")
GIVES_WAY = f"""
import os, sys
from pathlib import Path
from conformance.chaos.giving_way import give_way
group = Path({str(AUTOGROUP)!r})
print("up", flush=True)
sys.stdin.read()
give_way()
print(os.nice(0), group.read_text() if group.exists() else "")
"""
WITHOUT_POWER = ["setpriv", "--bounding-set=-sys_admin"] if AUTOGROUP.exists() and os.geteuid() == 0 else []
"""With CAP_SYS_ADMIN the kernel hears everybody at once."""


def test_all_at_once() -> None:
    reads, writes = os.pipe()
    command = [*WITHOUT_POWER, sys.executable, "-c", GIVES_WAY]
    started = [subprocess.Popen(command, stdin=reads, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    os.close(reads)
    for one in started:
        assert one.stdout is not None
        assert one.stdout.readline() == "up\n"
    os.close(writes)  # the end of what all of them read
    for one in started:
        said, _ = one.communicate()
        assert one.returncode == 0
        assert int(said.split()[0]) >= 15
        assert "nice 15" in said or not AUTOGROUP.exists()
