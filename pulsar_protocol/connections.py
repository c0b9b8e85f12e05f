"""The open connections of a client: one to each broker, shared by all threads."""

from __future__ import annotations

import os
import random
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pulsar_protocol.channel import Channel
from pulsar_protocol.connection import Authenticate
from pulsar_protocol.errors import ConnectionLost, PulsarError, Retriable, TimedOut
from pulsar_protocol.service import Service

_OTHER_HOST: Final = (ConnectionLost, TimedOut, Retriable)
"""The errors of a connection after which the next host is tried."""


@dataclass
class _Place:
    """The connection of one key, with its own lock. So a broker that does not answer blocks only callers with its key."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    channel: Channel | None = None


class Connections:
    """`seconds`: the limit of each request. `silence_seconds`: see `Channel`. `order`: puts the hosts of a URL in
    the order in which they are tried.
    """

    def __init__(
        self,
        *,
        authenticate: Authenticate | None,
        tls: Callable[[], ssl.SSLContext],
        seconds: float,
        silence_seconds: float,
        order: Callable[[list[tuple[str, int]]], None] = random.shuffle,
    ) -> None:
        self._authenticate, self._tls, self._order = authenticate, tls, order
        self._seconds, self._silence = seconds, silence_seconds
        self._process = os.getpid()
        self._guard = threading.Lock()
        self._places: dict[tuple[Service, str | None], _Place] = {}
        self.closed = threading.Event()

    def get(self, service: Service, through_proxy_to: str | None = None) -> Channel:
        """Return a connection to one of the hosts, opened if there is none that lives. Raises ConnectionLost or TimedOut if none
        can be reached, AuthenticationFailed.
        """
        if os.getpid() != self._process:  # two processes would read from one socket
            raise PulsarError(
                "The connections of this PulsarClient belong to another process.",
                advice="Make one in each process.",
            )
        with self._guard:
            self._check()
            place = self._places.setdefault((service, through_proxy_to), _Place())
        with place.lock:
            if place.channel is None or not place.channel.alive:
                place.channel = self._open(service, through_proxy_to)
            if self.closed.is_set():  # `close` did not see this connection, because it was still being made
                place.channel.close()
            self._check()
            return place.channel

    def _open(self, service: Service, through_proxy_to: str | None) -> Channel:
        hosts = list(service.hosts)
        self._order(hosts)
        for host, port in hosts[:-1]:
            try:
                return self._to(host, port, service.tls, through_proxy_to)
            except _OTHER_HOST:
                self._check()
        return self._to(*hosts[-1], service.tls, through_proxy_to)

    def _to(self, host: str, port: int, encrypted: bool, through_proxy_to: str | None) -> Channel:
        return Channel(
            host,
            port,
            authenticate=self._authenticate,
            tls=self._tls() if encrypted else None,
            through_proxy_to=through_proxy_to,
            seconds=self._seconds,
            silence_seconds=self._silence,
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
