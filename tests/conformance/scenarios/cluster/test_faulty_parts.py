"""Tests of the cluster suite's tools: a proxy that delays and drops, a clock that jumps, a full disk."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance.proxy import LOCAL, TcpProxy
from conformance.scenarios.cluster.clock_shim import VARIABLE, set_shift
from conformance.scenarios.cluster.disk import Disk
from conformance.servers import SparkCluster

ROOT = Path(__file__).parents[3]


@pytest.fixture
def ends() -> Iterator[tuple[TcpProxy, socket.socket, socket.socket]]:
    """A proxy, the socket of its client, and the socket of its server."""
    with socket.create_server((LOCAL, 0)) as listener, TcpProxy(LOCAL, listener.getsockname()[1]) as proxy:
        client = socket.create_connection((LOCAL, proxy.port))
        server, _ = listener.accept()
        with client, server:
            client.sendall(b"x")
            # the server has received the byte, so the proxy is connected to the client and to the server
            assert server.recv(1) == b"x"
            yield proxy, client, server


def test_silenced_bytes_arrive_in_the_end(ends: tuple[TcpProxy, socket.socket, socket.socket]) -> None:
    proxy, client, server = ends
    server.settimeout(0.2)
    with proxy.silence():
        client.sendall(b"hello")
        with pytest.raises(TimeoutError):
            server.recv(5)
    server.settimeout(30)
    assert server.recv(5) == b"hello"


def test_delayed_bytes_arrive_late(ends: tuple[TcpProxy, socket.socket, socket.socket]) -> None:
    proxy, client, server = ends
    with proxy.delay(0.3):
        began = time.monotonic()
        server.sendall(b"hello")
        assert client.recv(5) == b"hello"
    assert time.monotonic() - began >= 0.3


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"nothing of HTTP\r\n", None])
def test_a_master_that_does_not_answer_yet_has_no_workers(answer: bytes | None, tmp_path: Path) -> None:
    """The master closes the connection without an answer, in the middle of an answer, or after an answer that is not HTTP. If
    `answer` is None, the master resets the connection. In each case the cluster counts as one without workers.
    """
    cluster = SparkCluster(tmp_path)
    port = int(cluster.web.rpartition(":")[2])
    with socket.create_server((LOCAL, port)) as listener, ThreadPoolExecutor(1) as thread:
        alive = thread.submit(cluster.alive)
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            if answer is None:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            else:
                connection.sendall(answer)
        assert alive.result() == 0


def test_the_server_sees_the_port_of_the_proxy(ends: tuple[TcpProxy, socket.socket, socket.socket]) -> None:
    proxy, _, server = ends
    assert proxy.ports() == [server.getpeername()[1]]
    proxy.cut()
    assert proxy.ports() == []


CLOCK = """
import conformance.scenarios.cluster.clock_shim, sys, time
print(time.time(), time.time_ns() / 1e9, flush=True)
sys.stdin.readline()
print(time.time(), time.time_ns() / 1e9, flush=True)
"""


def test_a_clock_is_off_and_jumps(tmp_path: Path) -> None:
    file = tmp_path / "clock"
    set_shift(file, -7200)
    with subprocess.Popen(
        [sys.executable, "-c", CLOCK],
        env={**os.environ, VARIABLE: str(file)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        for shift in (-7200, 90):
            set_shift(file, shift)
            if shift == 90:
                process.stdin.write("\n")
                process.stdin.flush()
            for told in process.stdout.readline().split():
                assert abs(float(told) - time.time() - shift) < 30


@pytest.mark.parametrize("mounts", [True, False])
def test_nothing_fits_on_a_full_disk(mounts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write to a full disk fails: in a tmpfs that is shrunk to its content, and by a process limit if no file system can be
    mounted.
    """
    if not mounts:
        monkeypatch.setenv("PATH", str(tmp_path))  # the command `mount` is not on this path
    with Disk(tmp_path / "disk") as disk:
        assert disk.mounted or "no right to mount" in disk.how
        assert mounts or not disk.mounted
        file = disk.folder / "file"
        file.write_bytes(b"x" * 100_000)
        writes = f"import time; open({str(disk.folder / 'more')!r}, 'wb').write(b'x' * 1000000)"
        waits = (
            f"import sys; sys.stdin.readline()\ntry:\n    {writes}\nexcept OSError as e:\n    print(e.errno)\nelse:\n    print(0)"
        )
        for full in (True, False):
            child = subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            if full:
                with disk.full(lambda pid=child.pid: [pid]):
                    answer = child.communicate("\n")[0]
                assert int(answer) in (errno.ENOSPC, errno.EFBIG)
            else:
                assert int(child.communicate("\n")[0]) == 0
        assert file.read_bytes() == b"x" * 100_000
