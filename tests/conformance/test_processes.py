"""No process outlives a run. A session of processes (`setsid`) ends with all of its processes, and a watcher ends the children of a
killed process.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from conformance.processes import Session, processes, send

FAMILY = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], process_group=0)"
WAITS = f"{FAMILY}; print('up', flush=True); time.sleep(600)"
STARTER = """
import signal, sys, time
from pathlib import Path
from conformance.processes import Session, left_behind
folder = Path(sys.argv[1])
folder.mkdir()
left_behind(folder)
session = Session([sys.executable, "-c", sys.argv[2]], folder / "log")
while "up" not in session.tail():
    time.sleep(0.01)
print(session.pid, flush=True)
signal.pause()
"""


def up(session: Session) -> None:
    while "up" not in session.tail():
        assert session.running()


def of_session(pid: int) -> list[int]:
    return [one.pid for one in processes() if one.session == pid and one.state != "Z"]


def test_a_session_contains_all_processes_it_started(tmp_path: Path) -> None:
    with Session([sys.executable, "-c", WAITS], tmp_path / "log") as session:
        up(session)
        assert len(session.members()) == 2, "the process in its own process group is a member, too"
        session.send(signal.SIGSTOP)
        patience = time.monotonic() + 30
        # a process may still run for a moment after the signal
        while {one.state for one in processes() if one.session == session.pid} != {"T"}:
            assert time.monotonic() < patience
    assert of_session(session.pid) == []


def test_processes_left_by_the_first_one_of_a_session_are_killed(tmp_path: Path) -> None:
    session = Session([sys.executable, "-c", f"{FAMILY}; sys.exit(3)"], tmp_path / "log")
    assert session.wait(60) == 3
    assert of_session(session.pid) == []


def test_a_process_that_is_gone_gets_no_signal(tmp_path: Path) -> None:
    session = Session([sys.executable, "-c", ""], tmp_path / "log")
    assert session.wait(60) == 0
    assert not send(session.pid, signal.SIGCONT)


def test_nothing_outlives_a_killed_process(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(folder), WAITS], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    members = of_session(pid)
    assert len(members) == 2
    descriptors = [os.pidfd_open(one) for one in members]
    starter.kill()
    starter.wait()
    starter.stdout.close()
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 60)[0], "a process of the session outlives the killed starter"
        os.close(descriptor)
    deadline = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < deadline
