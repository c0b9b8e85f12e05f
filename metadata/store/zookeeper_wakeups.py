"""How those who ask wake kazoo's thread: by a count, in place of a pair of sockets.

kazoo writes a byte to such a pair for each request, and its thread reads one for each that it sends. A pair takes 278 bytes on
Linux, then whoever writes the next one waits for the reader: for ever, if it is that thread itself, which sets all watches again
when a connection was made.
"""

from __future__ import annotations

import socket
import threading


class WakeUps:
    """Both ends in one, with the methods that kazoo uses of its sockets. It is readable while there are bytes that were sent and
    not received; nobody ever waits to send one.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._count = 0
        """Bytes sent and not received. While it is above 0, one byte lies in the sockets."""
        self._near, self._far = socket.socketpair()

    def fileno(self) -> int:
        return self._near.fileno()

    def send(self, data: bytes) -> int:
        """Raises OSError once it is closed."""
        with self._guard:
            if self._far.fileno() < 0:
                raise OSError("The client was closed.")
            if not self._count:
                self._far.send(b"\0")
            self._count += len(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        """At most so many; none if there are none: kazoo asks only if there are."""
        with self._guard:
            taken = min(size, self._count)
            self._count -= taken
            if taken and not self._count:
                self._near.recv(1)
        return bytes(taken)

    def close(self) -> None:
        """More than once, too: kazoo closes each end."""
        with self._guard:
            self._near.close()
            self._far.close()
