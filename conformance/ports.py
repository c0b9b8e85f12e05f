"""Reserve ports of 127.0.0.1 for servers. A reserved port stays free while its server does not listen. That can be for seconds,
because a JVM starts slowly, or longer, because a test may stop a server and start it again on the same port.

The ports lie below the range from which the kernel chooses a port for a client or a proxy, so no other socket gets a port that is
reserved here. A process holds a lock on each of its ports until it ends. Other processes of the same user and temporary folder (a
second pytest worker, another clone) see the lock and choose another port.
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
"""Assumed start of the range of ports from which the kernel chooses, on systems that do not show this range. Only Linux shows it.
The ranges of other systems start higher.
"""
_ENOUGH = 8_192
"""Least number of ports to choose from. Many are needed, because a process keeps its ports until it ends."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Return `count` free ports of 127.0.0.1. This process holds them until it ends. Raises Unavailable if fewer are free."""
    return _ports().take(count)


def below(ephemeral: str | None) -> range:
    """Return the ports to choose from. `ephemeral`: the kernel's range in Linux's form ("32768 60999"); None: unknown."""
    lowest = int(ephemeral.split()[0]) if ephemeral else _LOWEST
    found = range(_FIRST, lowest)
    # If nearly all ports belong to the kernel's range, too few ports lie below that range. Then ports of the kernel's range are
    # taken, too.
    return found if len(found) >= _ENOUGH else range(_FIRST, _LOWEST)


class Ports:
    """A set of ports that processes share. The process that has locked byte N of the file `locks` holds port N.

    A process loses all its locks on a file when it closes any descriptor of the file. So a process may have only one `Ports`.
    """

    def __init__(self, locks: Path, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._held: set[int] = set()
        self._guard = threading.Lock()
        self._locks = os.open(locks, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self, count: int) -> list[int]:
        """Return `count` ports on which no process listens, held until this process ends. Raises Unavailable if there are fewer."""
        with self._guard:
            found = list(islice(self._free(), count))
        if len(found) < count:
            raise Unavailable(
                f"{count} free ports of {LOCAL} are needed, and there are {len(found)} among {len(self._numbers)}.",
                advice="End servers that are not needed.",
            )
        return found

    def _free(self) -> Iterator[int]:
        """Yield free ports in random order, so that they are hardly ever neighbours. A server whose port is in use may try the next
        higher number. That number must not be another port of this process.
        """
        for port in random.SystemRandom().sample(self._numbers, len(self._numbers)):
            if port not in self._held and self._lock(port):
                if _unused(port):
                    self._held.add(port)
                    yield port
                else:
                    fcntl.lockf(self._locks, fcntl.LOCK_UN, 1, port)

    def _lock(self, port: int) -> bool:
        """Lock a port. Return False if another process holds the port. This process can lock a port that it holds already."""
        try:
            fcntl.lockf(self._locks, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except (BlockingIOError, PermissionError):  # POSIX allows both errors for a lock that is held
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
