"""The open connections of a client: one to each broker, shared by all threads."""

from __future__ import annotations

import os
import random
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pulsar_protocol.channel import MAY_BE_DONE, Channel
from pulsar_protocol.connection import Authenticate
from pulsar_protocol.errors import ConnectionLost, PulsarError, Retriable, TimedOut, Unreachable
from pulsar_protocol.retries import Pauses, growing, passes, repeat
from pulsar_protocol.service import Service

FIRST_SECONDS: Final = 5.0
"""The time in which the first connection of a client must be made. Later connections have the time limit of their request."""
_OTHER_HOST: Final = (ConnectionLost, TimedOut, Retriable)
"""The errors of a connection after which the next host is tried."""


@dataclass
class _Place:
    """The connection to one broker or proxy, with its own lock. So a broker that does not answer blocks only the callers that need
    its connection.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    channel: Channel | None = None


class Connections:
    """The open connections of one client. `seconds`: the limit of each request. `silence_seconds`: see `Channel`. `pauses`: the
    pauses between the tries of the first connection. `order`: puts the hosts of a URL in the order in which they are tried.
    """

    def __init__(
        self,
        *,
        authenticate: Authenticate | None,
        tls: Callable[[], ssl.SSLContext],
        seconds: float,
        silence_seconds: float,
        pauses: Pauses = growing,
        order: Callable[[list[tuple[str, int]]], None] = random.shuffle,
    ) -> None:
        self._authenticate, self._tls, self._order = authenticate, tls, order
        self._seconds, self._silence, self._pauses = seconds, silence_seconds, pauses
        self.reached = False
        """Whether the cluster has been reached, by this client or by another process."""
        self._first_until: float | None = None
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._places: dict[tuple[Service, str | None], _Place] = {}
        self.closed = threading.Event()

    def get(self, service: Service, through_proxy_to: str | None = None) -> Channel:
        """Return a connection to one of the hosts. Open one if none is open. Raises ConnectionLost or TimedOut if no host can be
        reached, Unreachable if the cluster was never reached, or AuthenticationFailed.
        """
        if os.getpid() != self._process:  # a forked child and its parent would read from one socket
            raise PulsarError(
                "The connections of this PulsarClient belong to another process.",
                advice="Make one in each process.",
            )
        with self._guard:
            self._check()
            place = self._places.setdefault((service, through_proxy_to), _Place())
        with place.lock:
            if place.channel is None or not place.channel.alive:
                if not self.reached:
                    place.channel = self._first(service, through_proxy_to)
                    self.reached = True
                else:
                    place.channel = self._open(service, through_proxy_to, self._seconds)
            if self.closed.is_set():  # `close` did not see this connection, because it was still being made
                place.channel.close()
            self._check()
            return place.channel

    def _first(self, service: Service, through_proxy_to: str | None) -> Channel:
        """Make the first connection, within `FIRST_SECONDS`. After this time each further call tries once. Raises Unreachable."""
        now = time.monotonic()
        if self._first_until is None:
            self._first_until = now + min(FIRST_SECONDS, self._seconds)
        left = max(0.0, self._first_until - now)
        hosts = ", ".join(f"{host}:{port}" for host, port in service.hosts)
        try:
            return repeat(
                lambda rest: self._open(service, through_proxy_to, rest or min(FIRST_SECONDS, self._seconds)),
                left,
                pauses=self._pauses,
                stop=self.closed,
                when=lambda error: passes(error) and not self.reached,
            )
        except ConnectionLost as error:
            self._check()
            if self.reached:  # another thread has reached the cluster meanwhile
                raise
            raise Unreachable(
                f"The Pulsar cluster at {hosts} cannot be reached: {error.message}",
                advice="Check the host, the port and the scheme of the service URL (pulsar:// is for the plain port, 6650, and "
                f"pulsar+ssl:// for the encrypted one, 6651). {error.advice.removesuffix(MAY_BE_DONE)}",
            ) from None

    def _open(self, service: Service, through_proxy_to: str | None, connect_seconds: float) -> Channel:
        hosts = list(service.hosts)
        self._order(hosts)
        for host, port in hosts[:-1]:
            try:
                return self._to(host, port, service.tls, through_proxy_to, connect_seconds)
            except _OTHER_HOST:
                self._check()
        return self._to(*hosts[-1], service.tls, through_proxy_to, connect_seconds)

    def _to(self, host: str, port: int, encrypted: bool, through_proxy_to: str | None, connect_seconds: float) -> Channel:
        return Channel(
            host,
            port,
            authenticate=self._authenticate,
            tls=self._tls() if encrypted else None,
            through_proxy_to=through_proxy_to,
            seconds=self._seconds,
            silence_seconds=self._silence,
            connect_seconds=connect_seconds,
        )

    def _check(self) -> None:
        if self.closed.is_set():
            raise ConnectionLost("The client was closed.", advice="Make a new PulsarClient.")

    def close(self) -> None:
        """Close all connections. Requests that wait fail with ConnectionLost. Idempotent, and final."""
        with self._guard:
            self.closed.set()
            places, self._places = [*self._places.values()], {}
        for place in places:
            if place.channel is not None:
                place.channel.close()
