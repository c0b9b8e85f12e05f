"""A channel that wakes kazoo's thread. It replaces the plain socket pair that kazoo would use. It counts the bytes that were sent,
and its own socket pair never holds more than one byte.

With a plain socket pair, kazoo writes one byte for each request, and kazoo's thread reads one byte for each request that it sends.
A socket pair holds 278 such bytes on Linux. When it is full, the next writer waits until kazoo's thread reads. After a reconnect
kazoo's thread sets all watches again, so it writes, too. If the socket pair is full then, the thread waits for itself: a deadlock.
"""

from __future__ import annotations

import socket
import threading


class WakeUps:
    """Both ends of the channel in one object, with the methods that kazoo calls on its sockets. The channel is readable while it
    has bytes that were sent and not received. `send` never blocks.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._count = 0
        """The number of bytes that were sent and not received. While it is above 0, the socket pair has one byte."""
        self._near, self._far = socket.socketpair()

    def fileno(self) -> int:
        return self._near.fileno()

    def send(self, data: bytes) -> int:
        """Send bytes. Raises OSError after `close`."""
        with self._guard:
            if self._far.fileno() < 0:
                raise OSError("The client was closed.")
            if not self._count:
                self._far.send(b"\0")
            self._count += len(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        """Receive at most `size` bytes. Return no bytes, without waiting, if there are none."""
        with self._guard:
            taken = min(size, self._count)
            self._count -= taken
            if taken and not self._count:
                self._near.recv(1)
        return bytes(taken)

    def close(self) -> None:
        """Close both ends. Idempotent, because kazoo closes each end."""
        with self._guard:
            self._near.close()
            self._far.close()
