"""Ports of servers: a process that takes a port has it alone until the process ends."""

from __future__ import annotations

import socket
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from conformance.ports import Ports, below
from conformance.servers import LOCAL, free_ports
from metadata.common.errors import Unavailable

MANY = 400
"""The number of ports that a process takes, of about 22,000. Two random choices would have about seven ports in common."""
TAKES = f"import sys; from conformance.servers import free_ports; print(*free_ports({MANY}), flush=True); sys.stdin.read()"


def test_processes_share_no_port() -> None:
    command = [sys.executable, "-c", TAKES]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    chosen = [{*free_ports(MANY), *free_ports(MANY)}]
    for one in started:
        assert one.stdout is not None
        chosen.append({int(port) for port in one.stdout.readline().split()})
    for one in started:
        one.communicate()
        assert one.returncode == 0
    assert [len(ports) for ports in chosen] == [2 * MANY, MANY, MANY, MANY]
    assert all(one.isdisjoint(other) for one, other in combinations(chosen, 2))


def test_a_port_in_use_is_not_given(tmp_path: Path) -> None:
    """`take` does not return a port while a socket is bound to it, with or without `listen`. It returns a port only once."""
    (port,) = free_ports(1)
    ports = Ports(tmp_path / "locks", [port])
    with socket.socket() as bound:
        bound.bind((LOCAL, port))
        with pytest.raises(Unavailable, match="there are 0 among 1"):
            ports.take(1)
        bound.listen()
        with pytest.raises(Unavailable):
            ports.take(1)
    assert ports.take(1) == [port]
    with pytest.raises(Unavailable, match=r"End servers"):
        ports.take(1)


@pytest.mark.parametrize(
    ("told", "chosen"),
    [
        ("32768\t60999\n", range(10_000, 32_768)),
        ("49152\t65535\n", range(10_000, 49_152)),
        ("18192\t65535\n", range(10_000, 18_192)),
        ("10240\t65535\n", range(10_000, 32_768)),
        ("1024\t65535\n", range(10_000, 32_768)),
        (None, range(10_000, 32_768)),
    ],
)
def test_ports_lie_below_the_ephemeral_range_if_enough_are_free(told: str | None, chosen: range) -> None:
    assert below(told) == chosen
