"""Tests of the command `txnsegment pulsar start`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.processes import processes

pytestmark = pytest.mark.pulsar
STARTER = "org.apache.pulsar.PulsarStandaloneStarter"


def test_the_command_ends_with_its_broker(tmp_path: Path) -> None:
    words = [
        str(Path(sys.executable).with_name("txnsegment")),
        "pulsar",
        "start",
        "--port",
        "0",
        "--web-port",
        "0",
        "--data",
        str(tmp_path / "data"),
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        try:
            assert command.stdout is not None
            assert command.stderr is not None
            assert "starts" in command.stdout.readline()
            assert "serves on pulsar://" in command.stdout.readline()
            (broker,) = (one.pid for one in processes() if one.parent == command.pid and STARTER in one.command())
            os.kill(broker, signal.SIGKILL)
            assert command.wait(60) == 1
            assert f"The broker has ended. The end of its log, {tmp_path}" in command.stderr.read()
        finally:
            command.terminate()
