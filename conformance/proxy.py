"""A TCP proxy that fails on command, between a real client and a real server: lost replies, cut connections, silence.

with TcpProxy("127.0.0.1", server.port) as proxy:
    store = open_store(f"zk://{proxy.hosts}/test")
    with proxy.drop_replies():      # what is sent now arrives; its answer is thrown away and the line is cut
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
"""Bytes of ZooKeeper's answer to a ping."""


class TcpProxy:
    """Listens on a free port of 127.0.0.1 and passes bytes both ways to one server. A context manager."""

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
        """Close all connections now. New ones are accepted."""
        with self._guard:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    @contextmanager
    def refuse(self) -> Iterator[None]:
        """Close all connections and accept none during the block: the server is away."""
        self._refusing = True
        self.cut()
        try:
            yield
        finally:
            self._refusing = False

    @contextmanager
    def drop_replies(self, longer_than: int = PING) -> Iterator[None]:
        """Requests arrive and are done; the first answer of more bytes than that is thrown away and its connection is cut.
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
        """Whatever is sent during the block, either way, arrives so many seconds later."""
        self._delay = seconds
        try:
            yield
        finally:
            self._delay = 0.0

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Nothing arrives during the block, either way, and no connection is closed: a network that swallows. New connections are
        accepted and hear nothing. What was swallowed arrives at the end of the block.
        """
        self._passing.clear()
        try:
            yield
        finally:
            self._passing.set()

    def mute(self, connections: int = 1) -> None:
        """The next so many connections are accepted and never hear anything: a server that has lost them."""
        self._mute = connections

    def ports(self) -> list[int]:
        """The local ports of its connections to the server, by which the server knows them."""
        with self._guard:
            return [int(server.getsockname()[1]) for _, server in self._pairs if server.fileno() != -1]

    def wait_dropped(self, seconds: float = 10.0) -> bool:
        """Whether an answer was thrown away within so many seconds since `drop_replies` began."""
        return self._dropped.wait(seconds)

    # --- passing bytes ---

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
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
            pass  # either side is gone: that is what the other side learns, below
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
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept
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
    """Both directions at once, so that a thread that waits in recv wakes."""
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
