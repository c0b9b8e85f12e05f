"""Tests of the state of a connection: what is sent first, what is answered at once, and to whom each command of the broker goes."""

from __future__ import annotations

from typing import Any

import pytest

from pulsar_protocol.connection import PROTOCOL_VERSION, Answer, Connection, Delivery, Ready, Refusal, Reply
from pulsar_protocol.errors import AuthenticationFailed, ProtocolError
from pulsar_protocol.frames import MAX_FRAME, FrameParser, encode
from pulsar_protocol.messages import BaseCommand, command

ACCEPTED = {
    "server_version": "Pulsar Server 5.0.0",
    "protocol_version": 21,
    "max_message_size": 1000,
    "feature_flags": {"supports_scalable_topics": True, "supports_tc_metadata_discovery": True},
}


def ready() -> Connection:
    connection = Connection()
    connection.feed(encode(command("connected", **ACCEPTED)))
    return connection


def parsed(data: bytes) -> Any:
    (frame,) = FrameParser().feed(data)
    return frame.command


def test_the_hello_names_version_and_features_and_no_credentials() -> None:
    hello = parsed(Connection().hello()).connect
    assert (hello.protocol_version, hello.auth_method_name) == (PROTOCOL_VERSION, "none")
    assert not hello.HasField("auth_data")
    assert not hello.HasField("proxy_to_broker_url")
    assert hello.feature_flags.supports_scalable_topics
    assert hello.feature_flags.supports_tc_metadata_discovery
    assert hello.feature_flags.supports_auth_refresh


def test_the_hello_carries_credentials_and_the_broker_behind_a_proxy() -> None:
    asked = []
    connection = Connection(lambda challenge: (asked.append(challenge), ("token", b"secret"))[1], "broker-7:6650")
    hello = parsed(connection.hello()).connect
    assert (hello.auth_method_name, hello.auth_data, hello.proxy_to_broker_url) == ("token", b"secret", "broker-7:6650")
    assert asked == [b""]


def test_any_broker_behind_a_proxy_is_an_empty_text_and_not_a_missing_field() -> None:
    hello = parsed(Connection(through_proxy_to="").hello()).connect
    assert hello.HasField("proxy_to_broker_url")
    assert hello.proxy_to_broker_url == ""


def test_accepted_says_what_the_broker_can() -> None:
    connection = Connection()
    assert connection.feed(encode(command("connected", **ACCEPTED))) == [Ready("Pulsar Server 5.0.0", 1000, True, True)]
    assert connection.ready == Ready("Pulsar Server 5.0.0", 1000, True, True)


def test_an_old_broker_has_no_features_and_the_default_size_of_messages() -> None:
    assert Connection().feed(encode(command("connected", server_version="2.8"))) == [Ready("2.8", 5 * 1024 * 1024, False, False)]


def test_the_broker_raises_the_greatest_frame() -> None:
    entry = bytes(MAX_FRAME)
    message = encode(command("message", consumer_id=1), entry)
    with pytest.raises(ProtocolError, match="at most"):
        ready().feed(message)
    connection = Connection()
    connection.feed(encode(command("connected", **(ACCEPTED | {"max_message_size": 2 * MAX_FRAME}))))
    (event,) = connection.feed(message)
    assert isinstance(event, Delivery)
    assert event.entry == entry


def test_a_second_acceptance_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="twice"):
        ready().feed(encode(command("connected", **ACCEPTED)))


def test_a_ping_is_answered_with_a_pong_also_before_the_acceptance() -> None:
    for connection in (Connection(), ready()):
        (event,) = connection.feed(encode(command("ping")))
        assert isinstance(event, Reply)
        assert parsed(event.data).HasField("pong")


def test_a_pong_is_no_event() -> None:
    assert ready().feed(encode(command("pong"))) == []


def test_each_challenge_asks_for_the_credentials_again() -> None:
    tokens = iter([b"first", b"second", b"third"])
    seen = []
    connection = Connection(lambda challenge: (seen.append(challenge), ("token", next(tokens)))[1])
    assert parsed(connection.hello()).connect.auth_data == b"first"
    for number, token in enumerate([b"second", b"third"]):
        challenge = {"auth_method_name": "token", "auth_data": b"challenge %d" % number}
        (event,) = connection.feed(encode(command("auth_challenge", challenge=challenge)))
        assert isinstance(event, Reply)
        response = parsed(event.data).auth_response.response
        assert (response.auth_method_name, response.auth_data) == ("token", token)
    assert seen == [b"", b"challenge 0", b"challenge 1"]


def test_a_challenge_without_credentials_is_an_error() -> None:
    with pytest.raises(AuthenticationFailed, match="asked for credentials"):
        Connection().feed(encode(command("auth_challenge", challenge={"auth_data": b""})))


def test_an_error_before_the_acceptance_is_about_the_connection() -> None:
    assert Connection().feed(encode(command("error", request_id=0, error=3, message="no"))) == [Refusal(None, 3, "no")]


def test_an_error_after_the_acceptance_is_about_its_request() -> None:
    assert ready().feed(encode(command("error", request_id=9, error=6, message="wait"))) == [Refusal(9, 6, "wait")]


def test_an_answer_before_the_acceptance_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="lookup_topic_response before it accepted"):
        Connection().feed(encode(command("lookup_topic_response", request_id=1)))


def test_an_unknown_command_is_ignored_and_the_next_one_is_read() -> None:
    unknown = BaseCommand(type=20_000)
    events = ready().feed(encode(unknown, b"rest") + encode(command("success", request_id=3)))
    assert [event.request_id for event in events if isinstance(event, Answer)] == [3]
    assert len(events) == 1


@pytest.mark.parametrize("name", ["send", "flow", "connect", "scalable_topic_close"])
def test_a_command_that_only_clients_send_is_an_error(name: str) -> None:
    with pytest.raises(ProtocolError, match=f"sent {name}, which only clients send"):
        ready().feed(encode(command(name)))


def test_an_answer_has_the_number_of_its_request() -> None:
    (event,) = ready().feed(encode(command("partition_metadata_response", request_id=11, partitions=4)))
    assert isinstance(event, Answer)
    assert (event.request_id, event.name, event.body.partitions) == (11, "partition_metadata_response", 4)


@pytest.mark.parametrize(
    ("name", "target", "field"),
    [
        ("send_receipt", "producer", "producer_id"),
        ("send_error", "producer", "producer_id"),
        ("close_producer", "producer", "producer_id"),
        ("message", "consumer", "consumer_id"),
        ("close_consumer", "consumer", "consumer_id"),
        ("reached_end_of_topic", "consumer", "consumer_id"),
        ("active_consumer_change", "consumer", "consumer_id"),
        ("scalable_topic_assignment_update", "consumer", "consumer_id"),
        ("scalable_topic_update", "session", "session_id"),
        ("watch_tc_assignments_update", "watch", "watch_id"),
    ],
)
def test_a_delivery_names_whom_it_is_for(name: str, target: str, field: str) -> None:
    (event,) = ready().feed(encode(command(name, **{field: 42}), b"entry"))
    assert isinstance(event, Delivery)
    assert (event.target, event.id, event.name, event.entry) == (target, 42, name, b"entry")
    assert getattr(event.body, field) == 42


def test_events_keep_the_order_of_the_bytes() -> None:
    stream = b"".join(encode(command("send_receipt", producer_id=1, sequence_id=number)) for number in range(5))
    assert [event.body.sequence_id for event in ready().feed(stream) if isinstance(event, Delivery)] == [0, 1, 2, 3, 4]


def test_numbers_of_a_connection_are_never_used_twice() -> None:
    connection = Connection()
    assert len({connection.next_id() for _ in range(100)}) == 100
