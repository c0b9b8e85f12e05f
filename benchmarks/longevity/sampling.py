"""Samples the resources of each process of a soak: memory, file descriptors, threads. Reads /proc."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from conformance.processes import PROC, Found, processes
from conformance.zookeeper_server import ZooKeeperServer

FIELDS = ("s", "group", "pid", "rss", "anon", "descriptors", "threads")
Line = tuple[str, int, int, int, int, int]


def sample(sessions: Mapping[str, int], server: int | None) -> Iterator[Line]:
    """Yield a line for each running process: its group, its id, and its resources (bytes and counts). `sessions`: name of a group
    -> id of the operating-system session whose processes are the group. The session `driver` has three groups: the JVM, the Python
    program and the Python workers.
    """
    names = {pid: name for name, pid in sessions.items()}
    for one in processes():
        if one.state == "Z":
            continue
        group = "ZooKeeper server" if one.pid == server else _group(one, names.get(one.session))
        if group is not None:
            with suppress(FileNotFoundError, ProcessLookupError):  # the process ended meanwhile
                if (held := _held(one.pid)) is not None:
                    yield group, one.pid, *held


def _group(one: Found, session: str | None) -> str | None:
    if session != "driver":
        return session
    command = one.command()
    if one.pid == one.session:
        return "driver, Python"
    if command and command[0].endswith("java"):
        return "driver, JVM"
    return "driver, Python workers"


def _held(pid: int) -> tuple[int, int, int, int] | None:
    """Return the resources of a process; None if the process is ending and has released its memory."""
    status = dict(re.findall(r"^(\w+):\s+(\d+)", (PROC / str(pid) / "status").read_text(), re.MULTILINE))
    if "VmRSS" not in status:
        return None
    descriptors = sum(1 for _ in (PROC / str(pid) / "fd").iterdir())
    return int(status["VmRSS"]) * 1024, int(status["RssAnon"]) * 1024, descriptors, int(status["Threads"])


def znodes(server: ZooKeeperServer) -> int | None:
    """Return the number of the server's znodes; None if the server does not answer."""
    found = re.search(r"^Node count: (\d+)", server.ask("srvr"), re.MULTILINE)
    return int(found[1]) if found else None
