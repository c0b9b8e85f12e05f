"""A broker of Pulsar's binary protocol that answers from a script, for faults that a real broker does not show on demand.

with FakeBroker() as broker:
    broker.on("lookup_topic", refuse(6), hang_up, answer("lookup_topic_response", response=1, ..))
    PulsarClient(broker.url).broker_of("topic://..")
    assert broker.count("lookup_topic") == 3

The n-th request of a kind gets the n-th action of the script for its kind. If the script has fewer actions, the request gets the
last one. A request of a kind without a script gets no answer. `connect` is accepted and `ping` is answered, unless a script says
otherwise.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from pulsar_protocol.frames import FrameParser, encode
from pulsar_protocol.messages import command, name_of

PATIENCE = 20.0
"""Seconds after which a test that waits for a request fails."""
FEATURES = {"supports_scalable_topics": True, "supports_tc_metadata_discovery": True}


@dataclass(frozen=True)
class Asked:
    """A request that arrived. `connection`: the number of its connection, from 0. `entry`: the bytes of the entry that came with it
    (empty: none).
    """

    connection: int
    name: str
    body: Any
    entry: bytes


class Peer:
    """One connection of a client."""

    def __init__(self, number: int, plain: socket.socket) -> None:
        self.number, self.socket = number, plain

    def send(self, name: str, entry: bytes = b"", **fields: object) -> None:
        self.raw(encode(command(name, **fields), entry))

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


Action = Callable[[Peer, Any], None]
"""What the broker does with a request: it gets the connection and the message of the request."""


def answer(name: str, **fields: object) -> Action:
    """Return the action that answers with this command and the `request_id` of the request."""
    return lambda peer, body: peer.send(name, request_id=body.request_id, **fields)


def refuse(code: int, message: str = "scripted") -> Action:
    return lambda peer, body: peer.send("error", request_id=getattr(body, "request_id", 0), error=code, message=message)


def hang_up(peer: Peer, body: Any) -> None:
    peer.close()


def silent(peer: Peer, body: Any) -> None:
    """Answer nothing."""


def accept(**fields: object) -> Action:
    """Return the action that accepts the connection."""
    given = {"server_version": "fake", "protocol_version": 21, "feature_flags": FEATURES} | fields
    return lambda peer, body: peer.send("connected", **given)


class FakeBroker:
    """Listens on a port of the loopback interface. `tls`: encrypts the connections."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._scripts: dict[str, list[Action]] = {"connect": [accept()], "ping": [lambda peer, body: peer.send("pong")]}
        self._changed = threading.Condition()
        self._asked: list[Asked] = []
        self._peers: list[Peer] = []
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.hosts = f"127.0.0.1:{self.port}"
        self.url = f"pulsar{'+ssl' if tls else ''}://{self.hosts}"
        self._start(self._accept)

    def on(self, name: str, *actions: Action) -> None:
        """Set the script for the next requests of a kind."""
        with self._changed:
            self._scripts[name] = list(actions)

    def asked(self, name: str) -> list[Asked]:
        """Return the requests of a kind so far."""
        with self._changed:
            return [one for one in self._asked if one.name == name]

    def count(self, name: str) -> int:
        return len(self.asked(name))

    def wait(self, name: str, count: int = 1) -> list[Asked]:
        """Wait until this many requests of a kind have arrived. Return all requests of the kind."""
        with self._changed:
            found = self._changed.wait_for(lambda: sum(one.name == name for one in self._asked) >= count, PATIENCE)
        assert found, f"{count} {name} were expected; there were {[one.name for one in self._asked]}"
        return self.asked(name)

    @property
    def connections(self) -> list[Peer]:
        with self._changed:
            return list(self._peers)

    def drop(self) -> None:
        """Close all connections; new ones are accepted."""
        for peer in self.connections:
            peer.close()

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        with self._changed:
            self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return  # the listener was closed
            self._start(self._serve, plain)

    def _serve(self, plain: socket.socket) -> None:
        try:
            if self._tls is not None:
                plain = self._tls.wrap_socket(plain, server_side=True)
        except OSError:
            plain.close()  # the client did not trust the certificate, which its test expects
            return
        with self._changed:
            peer = Peer(len(self._peers), plain)
            self._peers.append(peer)
            if self._closed:
                peer.close()
        parser = FrameParser(1 << 30)
        with contextlib.suppress(OSError, ValueError):  # the client or this broker has closed the connection
            while data := plain.recv(65536):
                for frame in parser.feed(data):
                    self._take(peer, frame.command, frame.rest)
        peer.close()

    def _take(self, peer: Peer, base: Any, rest: bytes) -> None:
        name = name_of(base)
        assert name is not None
        body = getattr(base, name)
        with self._changed:
            self._asked.append(Asked(peer.number, name, body, rest))
            script = self._scripts.get(name, [silent])
            action = script.pop(0) if len(script) > 1 else script[0]
            self._changed.notify_all()
        action(peer, body)

    def close(self) -> None:
        with self._changed:
            self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread of the fake broker did not end"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
