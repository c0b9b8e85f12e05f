"""The warm process runs the modules of Spark's Python processes, with the arguments, environment, folder and files of each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.harness.spark_start import WORKERS
from conformance.processes import Session, processes

CALLER = """
import sys
import calling
import warm

warm.NEEDED, warm.PREBUILT = {"json": ()}, "json"
sys.orig_argv[1:] = ["-m", *sys.argv[1:]]
calling.run_forked()
print("there was no warm process")
"""

CALLED = """
import os, sys
print(sys.argv[1:], os.environ["SHADE"], os.getcwd(), os.getsid(0), sys.stdin.read(), flush=True)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of callers that can import `called`."""
    (tmp_path / "called.py").write_text(CALLED)
    (tmp_path / "waiting.py").write_text("import sys\nprint('waits', flush=True)\nsys.stdin.read()\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(WORKERS), str(tmp_path)]), "SHADE": "blue"}


def test_callers_of_one_session_run_with_their_own_arguments_environments_folders_and_files(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    script = (
        f"{sys.executable} -c '{CALLER}' called one < first > first.out\n"
        f"cd other; SHADE=green {sys.executable} -c '{CALLER}' called two < ../second > ../second.out"
    )
    (tmp_path / "first").write_text("A")
    (tmp_path / "second").write_text("B")
    with Session(["bash", "-euc", script], tmp_path / "log", environment=environment, folder=tmp_path) as session:
        assert session.wait(60) == 0, session.tail()
    assert (tmp_path / "first.out").read_text() == f"['one'] blue {tmp_path} {session.pid} A\n"
    assert (tmp_path / "second.out").read_text() == f"['two'] green {tmp_path / 'other'} {session.pid} B\n"


def test_the_warm_process_ends_with_its_session(environment: dict[str, str], tmp_path: Path) -> None:
    script = f"sleep 60 | {sys.executable} -c '{CALLER}' waiting > out"
    with Session(["bash", "-euc", script], tmp_path / "log", environment=environment, folder=tmp_path) as session:
        until(lambda: (tmp_path / "out").exists() and "waits" in (tmp_path / "out").read_text())
        assert len(session.members()) >= 4  # the shell, the caller, the warm process, its child
        session.kill()
    assert session.members() == []


def test_the_warm_process_ends_after_its_last_child(environment: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", CALLER, "called"]
    ran = subprocess.run(command, env=environment, input="", capture_output=True, text=True, check=True, start_new_session=True)
    session = int(ran.stdout.split()[-1])
    until(lambda: not [one for one in processes() if one.session == session and one.state != "Z"])


def test_a_caller_whose_warm_process_was_killed_runs_its_module_itself(environment: dict[str, str], tmp_path: Path) -> None:
    killing = CALLER.replace("calling.run_forked()", "warm.serve = lambda listening: warm.os._exit(1)\ncalling.run_forked()")
    ran = subprocess.run(
        [sys.executable, "-c", killing, "called"],
        env=environment,
        input="",
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
        timeout=60,
    )
    assert ran.stdout == "there was no warm process\n"


def test_all_types_of_records_are_built_before_a_process_is_forked() -> None:
    """A type that is not built would be built by each child."""
    program = (
        "from conformance.harness.prebuilt import record_types\n"
        "print([one.__name__ for one in record_types() if not one.__pydantic_complete__], len(list(record_types())) > 30)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[] True\n"


def until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait until `true` returns true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)
