"""The deletion of a topic by a broker's REST interface. A server stands in for the broker, because a real one refuses rarely."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import cast

import pytest

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.rest import Refused
from txnsegment.pulsar.refused import ADMIN_VARIABLE
from txnsegment.pulsar.topics import PulsarTopics

BUSY = (500, b'{"reason": "KeeperException$NotEmptyException: Directory not empty"}')
DONE = (204, b"")
MISSING = (404, b'{"reason": "no such topic"}')
DENIED = (409, b'{"reason": "it has producers"}')


class Client:
    """A stand-in for the client of a cluster that has every topic."""

    def layout(self, topic: str) -> None:
        pass


class Answers:
    """The answers to the next requests, and how many requests came."""

    def __init__(self) -> None:
        self.next: list[tuple[int, bytes]] = []
        self.count = 0


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    made = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            made.count += 1
            status, body = made.next.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        running = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        running.start()
        monkeypatch.setenv(ADMIN_VARIABLE, f"http://127.0.0.1:{server.server_port}")
        yield made
        server.shutdown()
        running.join()


@pytest.mark.parametrize("last", [DONE, MISSING], ids=["the third deletes", "an earlier one has deleted"])
def test_a_deletion_is_repeated_while_the_broker_writes_records_of_the_topic(answers: Answers, last: tuple[int, bytes]) -> None:
    answers.next = [BUSY, BUSY, last]
    PulsarTopics(cast("PulsarClient", Client())).delete("orders")
    assert answers.count == 3


def test_a_deletion_that_the_broker_refuses_is_an_error_at_once(answers: Answers) -> None:
    answers.next = [DENIED]
    with pytest.raises(Refused, match="it has producers"):
        PulsarTopics(cast("PulsarClient", Client())).delete("orders")
    assert answers.count == 1
