"""The connections of this process to Pulsar clusters. They are shared by all writes to the same cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from pulsar_protocol.client import PulsarClient

Connect = Callable[[], PulsarClient]
_guard: Final = threading.Lock()
_clients: dict[str, PulsarClient] = {}


def new_client(url: str) -> PulsarClient:
    """Return a client with connections of its own."""
    return PulsarClient(url)


def shared_client(url: str) -> PulsarClient:
    """Return the client of this process for a cluster."""
    with _guard:
        if url not in _clients:
            _clients[url] = new_client(url)
        return _clients[url]
