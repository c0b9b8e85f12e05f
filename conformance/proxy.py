"""A TCP proxy that fails on command, between a real client and a real server: lost replies, cut connections, silence.

with TcpProxy("127.0.0.1", server.port) as proxy:
    store = open_store(f"zk://{proxy.hosts}/test")
    with proxy.drop_replies():      # a request arrives; its answer is dropped and the connection is cut
        ...
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

LOCAL = "127.0.0.1"
PING = 20
"""Size of ZooKeeper's answer to a ping, in bytes."""


class TcpProxy:
    """Listens on a free port of 127.0.0.1 and passes bytes between its clients and one server. A context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server((LOCAL, 0))
        self.port = int(self._listener.getsockname()[1])
        self._guard = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._refusing = False
        self._dropping: int | None = None
        self._delay = 0.0
        self._mute = 0
        self._unheard: list[socket.socket] = []
        self._passing = threading.Event()
        self._passing.set()
        self._stopped = False
        self._dropped = threading.Event()
        self._threads: list[threading.Thread] = []
        self._spawn(self._accept)

    @property
    def hosts(self) -> str:
        """`host:port`, as a zk:// URL takes it."""
        return f"{LOCAL}:{self.port}"

    # --- failures ---

    def cut(self) -> None:
        """Close all connections now. New connections are accepted."""
        with self._guard:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    @contextmanager
    def refuse(self) -> Iterator[None]:
        """Close all connections and accept none during the block, as if the server were down."""
        self._refusing = True
        self.cut()
        try:
            yield
        finally:
            self._refusing = False

    @contextmanager
    def drop_replies(self, longer_than: int = PING) -> Iterator[None]:
        """On each connection, drop the first answer of more than `longer_than` bytes and cut the connection. The server has then
        executed the request.

        New connections are refused until the block ends. The default lets ZooKeeper's answers to pings pass.
        """
        self._dropped.clear()
        self._dropping = longer_than
        try:
            yield
        finally:
            self._dropping = None

    @contextmanager
    def delay(self, seconds: float) -> Iterator[None]:
        """Delay all bytes that are sent during the block, in both directions, by this number of seconds."""
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Hold back all bytes during the block, in both directions, and close no connection. New connections are accepted and get
        no bytes. The bytes arrive at the end of the block.
        """
        self._passing.clear()
        try:
            yield
        finally:
            self._passing.set()

    def mute(self, connections: int = 1) -> None:
        """Accept this number of further connections and never send them anything, as if the server had lost them."""
        self._mute = connections

    def ports(self) -> list[int]:
        """Return the local ports of the proxy's connections to the server. The server identifies the connections by these ports."""
        with self._guard:
            return [int(server.getsockname()[1]) for _, server in self._pairs if server.fileno() != -1]

    def wait_dropped(self, seconds: float = 10.0) -> bool:
        """Wait at most this number of seconds. Return whether `drop_replies` has dropped an answer since its block began."""
        return self._dropped.wait(seconds)

    # --- passing bytes ---

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the proxy was closed
            if self._stopped or self._refusing or self._dropping is not None:
                _close(client)
                continue
            if self._mute:
                self._mute -= 1
                self._unheard.append(client)
                continue
            try:
                server = socket.create_connection(self._target, timeout=5)
            except OSError:
                _close(client)
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._guard:
                self._pairs = [pair for pair in self._pairs if pair[0].fileno() != -1]
                self._pairs.append((client, server))
            self._spawn(self._pass, client, server, False)
            self._spawn(self._pass, server, client, True)

    def _pass(self, source: socket.socket, target: socket.socket, is_reply: bool) -> None:
        try:
            while part := source.recv(65536):
                if is_reply and self._dropping is not None and len(part) > self._dropping:
                    self._dropped.set()
                    break
                if self._delay:
                    time.sleep(self._delay)
                self._passing.wait()
                target.sendall(part)
        except OSError:
            pass  # One of the two connections is closed or broken. The `_close` below closes both, so the other side sees it, too.
        _close(source, target)

    def _spawn(self, run: object, *arguments: object) -> None:
        self._threads = [one for one in self._threads if one.is_alive()]
        thread = threading.Thread(target=run, args=arguments, name="txnsegment-proxy", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        self._stopped = True
        self._passing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in `accept`
        self._listener.close()
        self.cut()
        _close(*self._unheard)
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _close(*sockets: socket.socket) -> None:
    """Shut down and close the sockets. The shutdown of both directions wakes threads that wait in `recv`."""
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
