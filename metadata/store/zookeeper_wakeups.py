"""Wake-ups of kazoo's thread by a counter in place of a socket pair.

kazoo writes a byte to the pair for each request, and its thread reads one byte for each request it sends. A pair holds 278 bytes on
Linux. When the pair is full, the next writer waits for the reader. If the writer is kazoo's thread itself, which sets all watches
again after a reconnect, that is a deadlock.
"""

from __future__ import annotations

import socket
import threading


class WakeUps:
    """Both ends of the channel in one object, with the methods that kazoo calls on its sockets. The channel is readable while it
    holds bytes that were sent and not received. Sending never blocks.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._count = 0
        """Bytes sent and not received. While it is above 0, one byte lies in the sockets."""
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
        """Receive at most `size` bytes, or none if there are none; kazoo reads only when there are."""
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
