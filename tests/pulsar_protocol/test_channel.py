"""One connection over a socket: every request ends by an answer, an error or its deadline, whatever the broker does."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from pulsar_protocol.channel import Channel
from pulsar_protocol.connection import Delivery
from pulsar_protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    ProtocolError,
    PulsarError,
    Retriable,
    TimedOut,
    TopicMissing,
)
from pulsar_protocol.frames import encode
from pulsar_protocol.messages import command
from tests.support.fake_broker import PATIENCE, FakeBroker, Peer, accept, answer, hang_up, refuse, silent

SHORT = 0.1
"""Seconds of a deadline that must pass in the test."""


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


def connect(broker: FakeBroker, **options: Any) -> Channel:
    return Channel("127.0.0.1", broker.port, **({"seconds": PATIENCE} | options))


PARTITIONS = answer("partition_metadata_response", partitions=3)


def partitions(channel: Channel, topic: str = "persistent://a/b/c", **options: Any) -> int:
    return int(channel.ask("partition_metadata", topic=topic, **options).partitions)


# --- the connection itself ---


def test_a_port_without_a_listener_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port} cannot be reached"):
        Channel("127.0.0.1", port)


def test_a_broker_that_says_nothing_ends_the_attempt_at_its_deadline(broker: FakeBroker) -> None:
    broker.on("connect", silent)
    with pytest.raises(TimedOut, match=r"Connecting: .* did not answer within 0\.1 s"):
        connect(broker, seconds=SHORT)


def test_a_broker_that_greets_when_the_connection_has_just_ended_is_ignored(broker: FakeBroker) -> None:
    """The attempt reaches its deadline, or is closed, while the reader takes the greeting. The caller has its error already."""
    with connect(broker) as channel:
        greeting = channel._ready.result(0)
    channel._ready = Future()
    channel._ready.set_exception(ConnectionLost("It was closed."))
    channel._take(greeting)
    with pytest.raises(ConnectionLost, match="It was closed"):
        channel._ready.result(0)


def test_a_broker_that_closes_at_once_ends_the_attempt(broker: FakeBroker) -> None:
    broker.on("connect", hang_up)
    with pytest.raises(ConnectionLost, match="closed the connection"):
        connect(broker)


@pytest.mark.parametrize(("code", "kind"), [(3, AuthenticationFailed), (6, Retriable)])
def test_a_refused_connection_is_the_error_of_the_broker(broker: FakeBroker, code: int, kind: type[PulsarError]) -> None:
    broker.on("connect", refuse(code))
    with pytest.raises(kind, match=r"Connecting to 127.0.0.1") as caught:
        connect(broker)
    assert caught.value.code == code


def test_a_web_port_is_recognised(broker: FakeBroker) -> None:
    broker.on("connect", lambda peer, body: peer.raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    with pytest.raises(ProtocolError, match="not its web port"):
        connect(broker)


def test_credentials_of_a_challenge_are_sent_by_the_connection(broker: FakeBroker) -> None:
    broker.on("connect", lambda peer, body: peer.send("auth_challenge", challenge={"auth_method_name": "token"}))
    broker.on("auth_response", accept())
    tokens = iter([b"one", b"two"])
    with connect(broker, authenticate=lambda challenge: ("token", next(tokens))):
        (response,) = broker.asked("auth_response")
        assert response.body.response.auth_data == b"two"


def test_an_error_of_the_credentials_ends_the_connection_with_it(broker: FakeBroker) -> None:
    def authenticate(challenge: bytes) -> tuple[str, bytes]:
        if challenge:
            raise AuthenticationFailed("The token is gone.", advice="Write it again.")
        return "token", b"x"

    broker.on("partition_metadata", lambda peer, body: peer.send("auth_challenge", challenge={"auth_data": b"again"}))
    with connect(broker, authenticate=authenticate) as channel, pytest.raises(AuthenticationFailed, match="The token is gone"):
        partitions(channel)


# --- requests ---


def test_a_request_gets_its_answer(broker: FakeBroker) -> None:
    broker.on("partition_metadata", PARTITIONS)
    with connect(broker) as channel:
        assert partitions(channel) == 3


def test_a_request_without_an_answer_ends_at_its_deadline_and_the_connection_lives(broker: FakeBroker) -> None:
    broker.on("partition_metadata", silent, PARTITIONS)
    with connect(broker) as channel:
        with pytest.raises(TimedOut, match=r"partition metadata of persistent://a/b/c: .* within 0\.1 s"):
            partitions(channel, seconds=SHORT)
        assert partitions(channel) == 3


def test_an_answer_after_the_deadline_is_not_given_to_the_next_request(broker: FakeBroker) -> None:
    late: list[int] = []
    broker.on("partition_metadata", lambda peer, body: late.append(body.request_id), lambda peer, body: both(peer, body))

    def both(peer: Peer, body: Any) -> None:
        peer.send("partition_metadata_response", request_id=late[0], partitions=1)
        peer.send("partition_metadata_response", request_id=body.request_id, partitions=2)

    with connect(broker) as channel:
        with pytest.raises(TimedOut):
            partitions(channel, seconds=SHORT)
        assert partitions(channel) == 2


def test_an_error_in_an_answer_and_an_error_command_are_the_same(broker: FakeBroker) -> None:
    broker.on("partition_metadata", answer("partition_metadata_response", response=1, error=11, message="none"), refuse(11, "none"))
    with connect(broker) as channel:
        for _ in range(2):
            with pytest.raises(TopicMissing, match=r"partition metadata of persistent://a/b/c: .*TopicNotFound: none") as caught:
                partitions(channel)
            assert caught.value.code == 11


def test_an_error_of_one_request_leaves_the_others_waiting(broker: FakeBroker) -> None:
    waiting: list[Any] = []

    def last_first(peer: Peer, body: Any) -> None:
        waiting.append(body)
        if len(waiting) == 3:
            peer.send("error", request_id=waiting[1].request_id, error=6, message="wait")
            for one in (waiting[2], waiting[0]):
                peer.send("partition_metadata_response", request_id=one.request_id, partitions=int(one.topic[-1]))

    broker.on("partition_metadata", last_first)
    with connect(broker) as channel, ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(partitions, channel, f"persistent://a/b/{number}") for number in range(3)]
        results = [one.exception() or one.result() for one in asked]
    failed = [one for one in results if isinstance(one, Retriable)]
    assert len(failed) == 1
    assert all(result == number for number, result in enumerate(results) if result not in failed)


def test_many_threads_get_each_their_own_answer(broker: FakeBroker) -> None:
    def by_name(peer: Peer, body: Any) -> None:
        peer.send("partition_metadata_response", request_id=body.request_id, partitions=int(body.topic.rpartition("/")[2]))

    broker.on("partition_metadata", by_name)
    with connect(broker) as channel, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda number: partitions(channel, f"persistent://a/b/{number}"), range(500))) == list(range(500))


def test_frames_of_many_threads_are_not_mixed(broker: FakeBroker) -> None:
    entries = [bytes([number]) * (200_000 + number) for number in range(40)]
    with connect(broker) as channel, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: channel.send(entries[number], producer_id=number, sequence_id=0), range(40)))
        sent = broker.wait("send", 40)
    assert {one.body.producer_id: one.entry for one in sent} == dict(enumerate(entries))


# --- the end of a connection ---


def test_a_lost_connection_ends_all_requests_that_wait(broker: FakeBroker) -> None:
    with connect(broker) as channel, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(partitions, channel) for _ in range(4)]
        broker.wait("partition_metadata", 4)
        broker.drop()
        errors = [one.exception(PATIENCE) for one in asked]
    assert all(isinstance(error, ConnectionLost) for error in errors)
    assert len({id(error) for error in errors}) == 4, "each thread must raise an error of its own"


def test_close_ends_all_requests_that_wait(broker: FakeBroker) -> None:
    channel = connect(broker)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(partitions, channel) for _ in range(2)]
        broker.wait("partition_metadata", 2)
        channel.close()
        channel.close()
        assert [type(one.exception(PATIENCE)) for one in asked] == [ConnectionLost, ConnectionLost]
    with pytest.raises(ConnectionLost, match="was closed"):
        partitions(channel)
    with pytest.raises(ConnectionLost, match="was closed"):
        channel.add("consumer", lambda event: None)
    assert not channel.alive


def test_close_ends_the_reading_thread(broker: FakeBroker) -> None:
    channel = connect(broker)
    name = f"txnsegment-pulsar-{channel.address}"
    assert name in {one.name for one in threading.enumerate()}
    channel.close()
    assert name not in {one.name for one in threading.enumerate()}


def test_a_failed_connection_leaves_no_thread(broker: FakeBroker) -> None:
    broker.on("connect", refuse(3))
    with pytest.raises(AuthenticationFailed):
        connect(broker)
    assert f"txnsegment-pulsar-{broker.hosts}" not in {one.name for one in threading.enumerate()}


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        bytes.fromhex("00000007 00000003 ffffff"),
        encode(command("connected", server_version="again")),
    ],
)
def test_bytes_that_are_not_the_protocol_end_the_connection(broker: FakeBroker, data: bytes) -> None:
    broker.on("partition_metadata", lambda peer, body: peer.raw(data))
    with connect(broker) as channel:
        with pytest.raises(ProtocolError):
            partitions(channel)
        assert not channel.alive


# --- keep-alive ---


def test_a_silent_broker_is_asked_and_then_given_up(broker: FakeBroker) -> None:
    broker.on("ping", silent)
    with connect(broker, silence_seconds=0.3) as channel:
        with pytest.raises(ConnectionLost, match=r"was silent for 0\.6 s"):
            partitions(channel)
        assert broker.count("ping") == 1


def test_a_broker_that_answers_pings_is_kept(broker: FakeBroker) -> None:
    with connect(broker, silence_seconds=0.3) as channel:
        broker.wait("ping", 3)
        broker.on("partition_metadata", PARTITIONS)
        assert partitions(channel) == 3


def test_a_ping_of_the_broker_is_answered(broker: FakeBroker) -> None:
    with connect(broker):
        broker.connections[0].send("ping")
        assert len(broker.wait("pong")) == 1


# --- deliveries ---


def test_deliveries_go_to_their_handler_in_order(broker: FakeBroker) -> None:
    seen: queue.Queue[Delivery | PulsarError] = queue.Queue()
    other: queue.Queue[Delivery | PulsarError] = queue.Queue()
    with connect(broker) as channel:
        mine, others = channel.add("consumer", seen.put), channel.add("consumer", other.put)
        peer = broker.connections[0]
        for number in range(1000):
            peer.send("message", bytes([number % 256]), consumer_id=mine if number % 2 else others)
        peer.send("message", b"", consumer_id=12345)  # a consumer that was closed
        entries = [one.entry[0] for one in (seen.get(timeout=PATIENCE) for _ in range(500)) if isinstance(one, Delivery)]
        assert entries == [number % 256 for number in range(1, 1000, 2)]
        channel.remove("consumer", others)
    lost = seen.get(timeout=PATIENCE)
    assert isinstance(lost, ConnectionLost)
    kept = [other.get_nowait() for _ in range(other.qsize())]
    assert not any(isinstance(one, PulsarError) for one in kept), "a handler that was removed was called"


def test_a_flood_does_not_stop_requests(broker: FakeBroker) -> None:
    def flood(peer: Peer, body: Any) -> None:
        for _ in range(200):
            peer.send("message", bytes(50_000), consumer_id=1)
        PARTITIONS(peer, body)

    broker.on("partition_metadata", flood)
    with connect(broker) as channel:
        assert partitions(channel) == 3


def test_a_handler_that_fails_ends_the_connection_for_all(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(event: object) -> None:
        raise KeyError("handler")

    reported: queue.Queue[type[BaseException]] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", lambda found: reported.put(found.exc_type))
    seen: queue.Queue[Delivery | PulsarError] = queue.Queue()
    with connect(broker) as channel:
        number = channel.add("consumer", wrong)
        channel.add("consumer", seen.put)
        broker.on("partition_metadata", lambda peer, body: peer.send("message", consumer_id=number))
        with pytest.raises(ProtocolError, match="KeyError"):
            partitions(channel)
        assert reported.get(timeout=PATIENCE) is KeyError
        assert isinstance(seen.get(timeout=PATIENCE), ProtocolError), "the other handler hears of the end"
        assert channel._socket.fileno() == -1, "the socket is closed"


# --- a broker that takes no bytes ---


def test_a_broker_that_takes_no_bytes_ends_the_send_at_its_deadline() -> None:
    release = threading.Event()
    with FakeBroker() as broker:
        broker.on("partition_metadata", lambda peer, body: release.wait(PATIENCE) and None)
        with connect(broker, seconds=1.0) as channel:
            channel.tell("partition_metadata", request_id=99, topic="x")
            with pytest.raises(TimedOut, match=r"took no bytes within 1 s"):
                channel.send(bytes(64_000_000), producer_id=1, sequence_id=0)
            assert not channel.alive, "a part of a frame was sent"
            release.set()
