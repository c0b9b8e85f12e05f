"""Ports of 127.0.0.1 for servers that bind them only later: a JVM is up after seconds, and may come back to its port after an end.

They lie below those that the kernel gives to whoever asks for any port, so that no client and no proxy gets one in between. Each
is this process's until it ends: others of the same user and temporary folder that choose here (a second pytest worker, another
clone) see its lock and choose another.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from metadata.common.errors import Unavailable

LOCAL = "127.0.0.1"
_FIRST = 10_000
_LOWEST = 32_768
"""Where the range of the kernel begins, unless Linux says so of itself; other systems begin higher."""
_ENOUGH = 8_192
"""Of ports to choose from: a process gives none back before it ends."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens on, held until this process ends. Raises Unavailable."""
    return _ports().take(count)


def below(ephemeral: str | None) -> range:
    """The ports to choose from. `ephemeral`: the kernel's own, as Linux tells them ("32768 60999"); None: it does not."""
    lowest = int(ephemeral.split()[0]) if ephemeral else _LOWEST
    found = range(_FIRST, lowest)
    return found if len(found) >= _ENOUGH else range(_FIRST, _LOWEST)  # the kernel keeps (nearly) none back: as good as others


class Ports:
    """Some ports, and who holds them: the process that has locked byte N of the file `locks` holds port N.

    A process loses its locks on a file as soon as it closes that file anywhere: only one `Ports` of a process may open it.
    """

    def __init__(self, locks: Path, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._held: set[int] = set()
        self._guard = threading.Lock()
        self._locks = os.open(locks, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, count: int) -> list[int]:
        """So many of them that nobody listens on, held until this process ends. Raises Unavailable."""
        with self._guard:
            found = list(islice(self._free(), count))
        if len(found) < count:
            raise Unavailable(
                f"{count} free ports of {LOCAL} are needed, and there are {len(found)} among {len(self._numbers)}.",
                advice="End servers that are not needed.",
            )
        return found

    def _free(self) -> Iterator[int]:
        """In no order: a server that goes on to the next port because its own is in use must not meet the next one of ours."""
        for port in random.SystemRandom().sample(self._numbers, len(self._numbers)):
            if port not in self._held and self._lock(port):
                if _unused(port):
                    self._held.add(port)
                    yield port
                else:
                    fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, port)

    def _lock(self, port: int) -> bool:
        """Whether no other process holds it. (Our own locks never refuse us.)"""
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):  # as POSIX has it, one or the other
            return False
        return True


def _unused(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind((LOCAL, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


@cache
def _ports() -> Ports:
    told = _EPHEMERAL.read_text() if _EPHEMERAL.exists() else None
    return Ports(Path(tempfile.gettempdir()) / f"txnsegment-ports-{os.getuid()}", below(told))
