"""The state of one connection to a broker, without I/O: bytes in, events out.

    connection = Connection(authenticate=lambda challenge: ("token", b".."))
    socket.sendall(connection.hello())
    for event in connection.feed(socket.recv(65536)):
        if isinstance(event, Reply):
            socket.sendall(event.data)

The caller sends `Reply.data` at once, completes the request of an `Answer`, and gives a `Delivery` to the producer, consumer,
session or watch that it names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from pulsar_protocol.errors import ProtocolError, broker_error
from pulsar_protocol.frames import FrameParser, encode
from pulsar_protocol.messages import command, name_of

PROTOCOL_VERSION: Final = 21
CLIENT_VERSION: Final = "txnsegment"
_ROOM: Final = 64 * 1024
"""The bytes that a frame may have in addition to a message of the greatest size: its command and metadata."""
Target = Literal["producer", "consumer", "session", "watch"]
_DELIVERIES: Final[dict[str, tuple[Target, str]]] = {
    "send_receipt": ("producer", "producer_id"),
    "send_error": ("producer", "producer_id"),
    "close_producer": ("producer", "producer_id"),
    "message": ("consumer", "consumer_id"),
    "close_consumer": ("consumer", "consumer_id"),
    "reached_end_of_topic": ("consumer", "consumer_id"),
    "active_consumer_change": ("consumer", "consumer_id"),
    "scalable_topic_assignment_update": ("consumer", "consumer_id"),
    "scalable_topic_update": ("session", "session_id"),
    "watch_tc_assignments_update": ("watch", "watch_id"),
    "watch_scalable_topics_update": ("watch", "watch_id"),
}
"""The commands that the broker sends to a producer, a consumer, a watch, or a session that reads a layout. For each command: the
kind of its receiver, and the field that has the receiver's id.
"""


@dataclass(frozen=True, slots=True)
class Ready:
    """The broker accepted the connection. `max_message_size`: in bytes. `scalable`: whether the broker has scalable topics.
    `discovers_coordinators`: whether the broker tells where the transaction coordinators are.
    """

    server: str
    max_message_size: int
    scalable: bool
    discovers_coordinators: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """Bytes to send at once: the answer to a ping or to an authentication challenge."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request. `name`: the name of the command. `body`: its message."""

    request_id: int
    name: str
    body: Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """The broker's error for a request. `request_id` is None for an error of the whole connection, such as a wrong token."""

    request_id: int | None
    code: int
    message: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """A command for a producer, consumer, session or watch. `entry`: the entry of a `message`, otherwise empty."""

    target: Target
    id: int
    name: str
    body: Any
    entry: bytes


Event = Ready | Reply | Answer | Refusal | Delivery
Authenticate = Callable[[bytes], tuple[str, bytes]]
"""Returns the name of the authentication method and its data. The argument is the broker's challenge (empty at the start)."""


class Connection:
    """One connection. `authenticate`: see `Authenticate`; None: no authentication. `through_proxy_to`: the `host:port` of the
    broker to which a proxy forwards; empty: a proxy chooses the broker; None: a proxy answers lookups itself. A broker ignores this
    value.
    """

    def __init__(self, authenticate: Authenticate | None = None, through_proxy_to: str | None = None) -> None:
        self._authenticate = authenticate
        self._proxied = through_proxy_to
        self._parser = FrameParser()
        self._ids = itertools.count(1)
        self.ready: Ready | None = None

    def next_id(self) -> int:
        """Return a number that no request, producer, consumer or watch of this connection has."""
        return next(self._ids)

    def hello(self) -> bytes:
        """Return the first bytes to send."""
        method, data = ("none", b"") if self._authenticate is None else self._authenticate(b"")
        flags = {
            "supports_auth_refresh": True,
            "supports_broker_entry_metadata": False,
            "supports_topic_watchers": True,
            "supports_scalable_topics": True,
            "supports_tc_metadata_discovery": True,
        }
        return encode(
            command(
                "connect",
                client_version=CLIENT_VERSION,
                protocol_version=PROTOCOL_VERSION,
                auth_method_name=method,
                auth_data=data or None,
                proxy_to_broker_url=self._proxied,
                feature_flags=flags,
            )
        )

    def feed(self, data: bytes) -> list[Event]:
        """Take bytes from the broker. Return the events in their order. Raises ProtocolError."""
        return [event for frame in self._parser.feed(data) for event in self._events(frame.command, frame.rest)]

    def _events(self, base: Any, rest: bytes) -> list[Event]:
        name = name_of(base)
        if name is None:
            return []  # a newer broker may send commands that this client has not asked for
        body = getattr(base, name)
        if name == "ping":
            return [Reply(encode(command("pong")))]
        if name == "pong":
            return []
        if name == "auth_challenge":
            return [self._challenged(body)]
        if name == "connected":
            return [self._connected(body)]
        if self.ready is None and name != "error":
            raise ProtocolError(f"The broker sent {name} before it accepted the connection.", advice="Check the service URL.")
        if name == "error":
            of_request = self.ready is not None
            return [Refusal(body.request_id if of_request else None, body.error, body.message)]
        if name in _DELIVERIES:
            target, field = _DELIVERIES[name]
            return [Delivery(target, getattr(body, field), name, body, rest)]
        if "request_id" not in body.DESCRIPTOR.fields_by_name:
            raise ProtocolError(f"The broker sent {name}, which only clients send.", advice="Check the service URL.")
        return [Answer(body.request_id, name, body)]

    def _connected(self, body: Any) -> Ready:
        if self.ready is not None:
            raise ProtocolError("The broker accepted the connection twice.", advice="Check the proxy between client and broker.")
        if body.max_message_size:
            self._parser.limit = max(self._parser.limit, body.max_message_size + _ROOM)
        flags = body.feature_flags
        size = body.max_message_size or 5 * 1024 * 1024
        self.ready = Ready(body.server_version, size, flags.supports_scalable_topics, flags.supports_tc_metadata_discovery)
        return self.ready

    def _challenged(self, body: Any) -> Reply:
        if self._authenticate is None:
            raise broker_error(3, "the broker asked for credentials", "Connecting")
        method, data = self._authenticate(bytes(body.challenge.auth_data))
        response = {"auth_method_name": method, "auth_data": data}
        answer = command("auth_response", client_version=CLIENT_VERSION, protocol_version=PROTOCOL_VERSION, response=response)
        return Reply(encode(answer))
