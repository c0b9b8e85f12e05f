"""The first connection of a client. A wrong address fails soon. A client waits longer for a cluster that it has reached before."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pulsar_protocol import connections
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.errors import ConnectionLost, Unreachable
from pulsar_protocol.retries import passes
from tests.support.fake_broker import PATIENCE, FakeBroker, accept, answer, hang_up

TOPIC = "persistent://a/b/c"
PARTITIONS = answer("partition_metadata_response", partitions=2)


def client(url: str, **options: Any) -> PulsarClient:
    return PulsarClient(url, **({"seconds": 3 * PATIENCE, "pauses": lambda: itertools.repeat(0.01)} | options))


@pytest.fixture
def closed_url() -> Iterator[str]:
    """The URL of a port at which nobody listens. A socket holds the port, so that no other process takes it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"pulsar://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "FIRST_SECONDS", 0.2)


@pytest.mark.usefixtures("soon")
def test_an_address_without_a_broker_is_not_waited_for(closed_url: str) -> None:
    begun = time.monotonic()
    with client(closed_url) as made, pytest.raises(Unreachable, match="Connection refused") as found:
        made.partitions(TOPIC)
    assert time.monotonic() - begun < PATIENCE
    assert closed_url.removeprefix("pulsar://") in found.value.message
    assert "may have been done" not in found.value.advice
    assert not passes(found.value)


@pytest.mark.usefixtures("soon")
def test_later_requests_of_a_client_that_reached_nothing_try_once(closed_url: str) -> None:
    with client(closed_url, pauses=lambda: itertools.repeat(PATIENCE)) as made:
        for _ in range(3):
            begun = time.monotonic()
            with pytest.raises(Unreachable):
                made.partitions(TOPIC)
            assert time.monotonic() - begun < PATIENCE


def test_a_cluster_that_is_known_is_waited_for(closed_url: str) -> None:
    with client(closed_url, seconds=0.3).patient() as made, pytest.raises(ConnectionLost) as found:
        made.partitions(TOPIC)
    assert not isinstance(found.value, Unreachable)


def test_a_broker_that_starts_meanwhile_is_reached() -> None:
    with FakeBroker() as broker:
        broker.on("connect", hang_up, hang_up, accept())
        broker.on("partition_metadata", PARTITIONS)
        with client(broker.url) as made:
            assert made.partitions(TOPIC) == 2


@pytest.mark.usefixtures("soon")
def test_a_cluster_that_was_reached_is_waited_for() -> None:
    with FakeBroker() as broker:
        broker.on("partition_metadata", PARTITIONS)
        with client(broker.url) as made:
            assert made.partitions(TOPIC) == 2
            broker.on("connect", *[hang_up] * 100, accept())
            broker.drop()
            assert made.partitions(TOPIC) == 2
    assert broker.count("connect") > 50
