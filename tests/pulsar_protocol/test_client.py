"""Tests of a client of several brokers: redirects, proxies, lost connections, and which requests it repeats or never repeats."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pulsar_protocol.client import REDIRECTS, PulsarClient, TxnId
from pulsar_protocol.errors import (
    AuthenticationFailed,
    ConnectionLost,
    NotSupported,
    PulsarError,
    Retriable,
    TimedOut,
    TopicMissing,
    TransactionEnded,
)
from tests.support.fake_broker import PATIENCE, Action, FakeBroker, Peer, accept, answer, hang_up, refuse, silent

TOPIC = "persistent://a/b/c"
SCALABLE = "topic://a/b/c"
TXN = TxnId(1, 7)
BRIEF = 1.0
"""Seconds of a deadline that must pass in the test. A busy machine needs a part of them to connect."""


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


@pytest.fixture
def other() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


def client(*brokers: FakeBroker, **options: Any) -> PulsarClient:
    url = "pulsar://" + ",".join(one.hosts for one in brokers)
    return PulsarClient(url, **({"seconds": PATIENCE, "pauses": lambda: itertools.repeat(0.0)} | options))


def found(broker: FakeBroker, **fields: object) -> Action:
    """Return the action that answers a lookup: this broker has the topic."""
    return answer("lookup_topic_response", **({"response": 1, "broker_service_url": broker.url, "authoritative": True} | fields))


def redirect(broker: FakeBroker, *, authoritative: bool = False) -> Action:
    return found(broker, response=0, authoritative=authoritative)


def layout(peer: Peer, body: Any) -> None:
    dag = {"epoch": 4, "segments": [{"segment_id": 0, "hash_start": 0, "hash_end": 65535}]}
    peer.send("scalable_topic_update", session_id=body.session_id, dag=dag)


def assigned(*brokers: FakeBroker | str, parallelism: int | None = None) -> Action:
    """Return the action that answers the watch of coordinators: the n-th broker has the n-th coordinator."""
    urls = [one if isinstance(one, str) else one.url for one in brokers]
    assignments = [{"tc_id": number, "broker_service_url": url} for number, url in enumerate(urls)]
    snapshot = {"parallelism": len(brokers) if parallelism is None else parallelism, "assignments": assignments}
    return lambda peer, body: peer.send("watch_tc_assignments_update", watch_id=body.watch_id, snapshot=snapshot)


def session_error(code: int) -> Action:
    return lambda peer, body: peer.send("scalable_topic_update", session_id=body.session_id, error=code, message="scripted")


OPENED = answer("tc_client_connect_response")
BEGUN = answer("new_txn_response", txnid_most_bits=1, txnid_least_bits=7)
ENDED = answer("end_txn_response", txnid_most_bits=1, txnid_least_bits=7)
NO_COORDINATOR = answer("new_txn_response", error=20, message="moved")


def coordinators(*brokers: FakeBroker) -> None:
    """Let each broker run one transaction coordinator, and let it answer which broker runs which coordinator."""
    for one in brokers:
        one.on("watch_tc_assignments", assigned(*brokers))
        one.on("tc_client_connect_request", OPENED)
        one.on("new_txn", BEGUN)
        one.on("end_txn", ENDED)


# --- lookups over several brokers ---


def test_a_lookup_finds_the_broker_of_the_topic(broker: FakeBroker, other: FakeBroker) -> None:
    broker.on("lookup_topic", found(other))
    with client(broker) as made:
        assert made.broker_of(TOPIC).address == other.hosts
        (asked,) = broker.asked("lookup_topic")
        assert (asked.body.topic, asked.body.authoritative) == (TOPIC, False)


def test_a_redirect_is_followed_and_says_whether_it_was_authoritative(broker: FakeBroker, other: FakeBroker) -> None:
    broker.on("lookup_topic", redirect(other, authoritative=True))
    other.on("lookup_topic", found(broker))
    with client(broker) as made:
        assert made.broker_of(TOPIC).address == broker.hosts
    assert [one.body.authoritative for one in other.asked("lookup_topic")] == [True]
    assert len(broker.connections) == 1, "the connection of the first lookup is used again"


def test_brokers_that_redirect_to_each_other_are_given_up(broker: FakeBroker, other: FakeBroker) -> None:
    broker.on("lookup_topic", redirect(other))
    other.on("lookup_topic", redirect(broker))
    with client(broker) as made, pytest.raises(NotSupported, match=f"redirected {REDIRECTS} times"):
        made.broker_of(TOPIC)
    assert broker.count("lookup_topic") + other.count("lookup_topic") == REDIRECTS


def test_a_broker_without_a_plain_port_is_named(broker: FakeBroker) -> None:
    broker.on("lookup_topic", found(broker, broker_service_url=""))
    with client(broker) as made, pytest.raises(NotSupported, match=f"The broker of {TOPIC} has no plain port"):
        made.broker_of(TOPIC)


def test_a_topic_behind_a_proxy_is_reached_through_it(broker: FakeBroker) -> None:
    broker.on("lookup_topic", found(broker, broker_service_url="pulsar://inside-7:6650", proxy_through_service_url=True))
    with client(broker) as made:
        channel = made.broker_of(TOPIC)
        assert channel.address == broker.hosts
        assert made.broker_of(TOPIC) is channel
    hellos = [one.body for one in broker.asked("connect")]
    assert [one.proxy_to_broker_url for one in hellos if one.HasField("proxy_to_broker_url")] == ["inside-7:6650"]
    assert len(hellos) == 2


def test_a_layout_behind_a_proxy_is_asked_of_any_broker(broker: FakeBroker) -> None:
    broker.on("scalable_topic_lookup", layout)
    with client(broker) as made:
        made.layout(SCALABLE)
    (hello,) = [one.body for one in broker.asked("connect")]
    assert hello.HasField("proxy_to_broker_url")
    assert hello.proxy_to_broker_url == ""


def test_a_coordinator_behind_a_proxy_is_reached_through_it(broker: FakeBroker) -> None:
    coordinators(broker)
    broker.on("lookup_topic", found(broker, broker_service_url="pulsar://inside-7:6650", proxy_through_service_url=True))
    broker.on("watch_tc_assignments", assigned("pulsar://inside-8:6650"))
    with client(broker) as made:
        made.broker_of(TOPIC)
        assert made.begin(1000) == TXN
    (begun,) = broker.asked("new_txn")
    hello = next(one for one in broker.asked("connect") if one.connection == begun.connection)
    assert hello.body.proxy_to_broker_url == "inside-8:6650"


def test_a_coordinator_of_another_broker_is_reached_directly(broker: FakeBroker, other: FakeBroker) -> None:
    coordinators(broker, other)
    with client(broker) as made:
        assert made.begin(1000, coordinator=1) == TXN
    (begun,) = other.asked("new_txn")
    assert (begun.body.tc_id, begun.body.scalable, begun.body.txn_ttl_millis) == (1, True, 1000)
    assert not other.asked("connect")[0].body.HasField("proxy_to_broker_url")


def test_a_host_that_is_down_or_silent_or_not_ready_is_passed_over(broker: FakeBroker, other: FakeBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        gone = f"127.0.0.1:{reserved.getsockname()[1]}"
    other.on("connect", refuse(6))
    broker.on("partition_metadata", answer("partition_metadata_response", partitions=2))
    for _ in range(5):  # the client tries the hosts in a random order
        with PulsarClient(f"pulsar://{gone},{other.hosts},{broker.hosts}", seconds=PATIENCE) as made:
            assert made.partitions(TOPIC) == 2


def test_wrong_credentials_are_not_tried_on_the_next_host(broker: FakeBroker, other: FakeBroker) -> None:
    for one in (broker, other):
        one.on("connect", refuse(3))
    with client(broker, other) as made, pytest.raises(AuthenticationFailed):
        made.partitions(TOPIC)
    assert broker.count("connect") + other.count("connect") == 1


# --- what is repeated ---


def lookup(made: PulsarClient, broker: FakeBroker) -> object:
    return made.broker_of(TOPIC).address == broker.hosts


SAFE: dict[str, tuple[str, Action, Callable[[PulsarClient, FakeBroker], object]]] = {
    "layout": ("scalable_topic_lookup", layout, lambda made, broker: made.layout(SCALABLE).epoch == 4),
    "partitions": (
        "partition_metadata",
        answer("partition_metadata_response", partitions=2),
        lambda made, broker: made.partitions(TOPIC) == 2,
    ),
    "schema": (
        "get_schema",
        answer("get_schema_response", schema={"name": "s", "type": 1}),
        lambda made, broker: made.schema(TOPIC).name == "s",
    ),
}


@pytest.mark.parametrize("fault", [hang_up, refuse(6), refuse(14), refuse(1)], ids=["lost", "not ready", "too many", "metadata"])
@pytest.mark.parametrize("kind", SAFE)
def test_a_safe_request_is_repeated_after_an_error_that_passes(broker: FakeBroker, kind: str, fault: Action) -> None:
    name, good, call = SAFE[kind]
    if kind == "layout" and fault is not hang_up:
        fault = session_error(6)
    broker.on(name, fault, fault, good)
    with client(broker) as made:
        assert call(made, broker)
    assert broker.count(name) == 3


@pytest.mark.parametrize("fault", [hang_up, answer("lookup_topic_response", response=2, error=6, message="moves")])
def test_a_lookup_is_repeated_from_its_start(broker: FakeBroker, other: FakeBroker, fault: Action) -> None:
    broker.on("lookup_topic", redirect(other))
    other.on("lookup_topic", fault, found(other))
    with client(broker) as made:
        assert made.broker_of(TOPIC).address == other.hosts
    assert (broker.count("lookup_topic"), other.count("lookup_topic")) == (2, 2)


def test_a_registration_of_a_schema_is_repeated(broker: FakeBroker) -> None:
    broker.on("lookup_topic", found(broker))
    broker.on("get_or_create_schema", hang_up, answer("get_or_create_schema_response", schema_version=b"v"))
    with client(broker) as made:
        assert made.register(TOPIC, None) == b"v"
    assert broker.count("get_or_create_schema") == 2


def test_a_topic_without_a_schema_is_no_error(broker: FakeBroker) -> None:
    broker.on("get_schema", answer("get_schema_response", error_code=11, error_message="none"))
    with client(broker) as made:
        assert made.schema(TOPIC) is None


def test_an_error_that_does_not_pass_is_raised_at_once(broker: FakeBroker) -> None:
    broker.on("scalable_topic_lookup", session_error(11))
    broker.on("partition_metadata", refuse(11))  # there is no topic of the older model, either
    with client(broker) as made, pytest.raises(TopicMissing, match=SCALABLE):
        made.layout(SCALABLE)
    assert broker.count("scalable_topic_lookup") == 1


def test_an_error_that_stays_is_raised_when_the_next_pause_would_pass_the_deadline(broker: FakeBroker) -> None:
    broker.on("partition_metadata", refuse(6))
    with client(broker, pauses=lambda: iter([0.0, 0.0, 2 * PATIENCE])) as made, pytest.raises(Retriable):
        made.partitions(TOPIC)
    assert broker.count("partition_metadata") == 3


@pytest.mark.parametrize("name", ["scalable_topic_lookup", "partition_metadata"])
def test_a_request_without_an_answer_is_not_repeated(broker: FakeBroker, name: str) -> None:
    broker.on(name, silent)
    with client(broker, seconds=BRIEF) as made, pytest.raises(TimedOut, match="did not answer within"):
        SAFE["layout" if name.startswith("scalable") else "partitions"][2](made, broker)
    assert broker.count(name) == 1


def test_a_broker_that_comes_back_is_found_again() -> None:
    with FakeBroker() as first:
        first.on("partition_metadata", answer("partition_metadata_response", partitions=2))
        with client(first) as made:
            assert made.partitions(TOPIC) == 2
            first.drop()
            assert made.partitions(TOPIC) == 2
            assert len(first.connections) == 2


# --- transactions ---


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (hang_up, ConnectionLost),
        (answer("new_txn_response", error=1, message="store"), Retriable),
        (answer("new_txn_response", error=6, message="starts"), Retriable),
        (refuse(0), PulsarError),
    ],
)
def test_begin_is_sent_once_when_its_outcome_is_unknown(broker: FakeBroker, fault: Action, kind: type[PulsarError]) -> None:
    coordinators(broker)
    broker.on("new_txn", fault, BEGUN)
    with client(broker) as made:
        with pytest.raises(kind):
            made.begin(1000)
        assert broker.count("new_txn") == 1
        assert made.begin(1000) == TXN, "the next one finds the coordinator again"


def test_begin_without_an_answer_is_sent_once(broker: FakeBroker) -> None:
    coordinators(broker)
    broker.on("new_txn", silent)
    with client(broker, seconds=BRIEF) as made, pytest.raises(TimedOut):
        made.begin(1000)
    assert broker.count("new_txn") == 1


def test_begin_is_sent_again_when_the_broker_does_not_have_the_coordinator(broker: FakeBroker, other: FakeBroker) -> None:
    coordinators(broker, other)
    broker.on("watch_tc_assignments", assigned(broker), assigned(other))
    broker.on("new_txn", NO_COORDINATOR)
    with client(broker) as made:
        assert made.begin(1000) == TXN
    assert (broker.count("new_txn"), other.count("new_txn")) == (1, 1)
    assert broker.count("watch_tc_assignments") == 2


@pytest.mark.parametrize(
    "fault", [hang_up, answer("end_txn_response", error=20, message="moved"), answer("end_txn_response", error=0), refuse(6)]
)
def test_the_end_of_a_transaction_is_repeated_with_the_same_action(broker: FakeBroker, fault: Action) -> None:
    coordinators(broker, broker)
    broker.on("end_txn", fault, fault, ENDED)
    with client(broker) as made:
        made.end(TXN, commit=True)
    sent = [(one.body.txnid_most_bits, one.body.txnid_least_bits, one.body.txn_action) for one in broker.asked("end_txn")]
    assert sent == [(1, 7, 0)] * 3


def test_an_end_goes_to_the_broker_to_which_its_coordinator_moved(broker: FakeBroker, other: FakeBroker) -> None:
    coordinators(broker, other)
    broker.on("watch_tc_assignments", assigned(other, broker), assigned(broker, other))
    broker.on("end_txn", answer("end_txn_response", error=20, message="moved"))
    with client(broker) as made:
        made.end(TXN, commit=False)
    assert (broker.count("end_txn"), other.count("end_txn")) == (1, 1)
    assert other.asked("end_txn")[0].body.txn_action == 1


@pytest.mark.parametrize("code", [21, 24])
def test_a_transaction_that_has_ended_is_named_and_not_asked_again(broker: FakeBroker, code: int) -> None:
    coordinators(broker, broker)
    broker.on("end_txn", answer("end_txn_response", error=code, message="over"))
    with client(broker) as made, pytest.raises(TransactionEnded, match="transaction 1_7"):
        made.end(TXN, commit=True)
    assert broker.count("end_txn") == 1


def test_a_coordinator_is_opened_once_on_a_connection(broker: FakeBroker) -> None:
    coordinators(broker)
    with client(broker) as made:
        made.begin(1000)
        made.begin(1000)
        assert (broker.count("tc_client_connect_request"), broker.count("watch_tc_assignments")) == (1, 1)
        broker.drop()
        made.end(TxnId(0, 7), commit=True)
    assert broker.count("tc_client_connect_request") == 2


def test_a_coordinator_is_opened_again_after_its_broker_did_not_have_it(broker: FakeBroker) -> None:
    coordinators(broker, broker)
    broker.on("end_txn", answer("end_txn_response", error=20, message="starts"), ENDED)
    with client(broker) as made:
        made.end(TXN, commit=True)
    assert (broker.count("tc_client_connect_request"), broker.count("watch_tc_assignments")) == (2, 2)
    assert len({one.connection for one in broker.asked("end_txn")}) == 1


def test_a_coordinator_that_no_broker_has_now_is_waited_for(broker: FakeBroker) -> None:
    coordinators(broker)
    broker.on("watch_tc_assignments", assigned(broker, parallelism=2), assigned(broker, broker))
    with client(broker) as made:
        made.end(TXN, commit=True)
    assert broker.count("watch_tc_assignments") == 2


def test_a_coordinator_that_the_cluster_does_not_have_is_an_error_at_once(broker: FakeBroker) -> None:
    coordinators(broker)
    with client(broker) as made, pytest.raises(NotSupported, match="no transaction coordinator 1; it has 1"):
        made.end(TXN, commit=True)
    assert broker.count("watch_tc_assignments") == 1


@pytest.mark.parametrize("call", [lambda made: made.begin(1000), lambda made: made.coordinators()])
def test_a_broker_without_transactions_in_metadata_is_named(broker: FakeBroker, call: Callable[[PulsarClient], object]) -> None:
    broker.on("connect", accept(server_version="Pulsar Server 4.0.1", feature_flags={}))
    with client(broker) as made, pytest.raises(NotSupported, match=r"Pulsar Server 4\.0\.1.*transactionCoordinatorEnabled"):
        call(made)


def test_a_broker_without_scalable_topics_is_named(broker: FakeBroker) -> None:
    broker.on("connect", accept(server_version="Pulsar Server 4.0.1", feature_flags={}))
    with client(broker) as made, pytest.raises(NotSupported, match=rf"{SCALABLE}: .*Pulsar Server 4\.0\.1.*no scalable topics"):
        made.layout(SCALABLE)


# --- threads, the end, other processes ---


def test_threads_share_one_connection(broker: FakeBroker) -> None:
    broker.on("partition_metadata", answer("partition_metadata_response", partitions=2))
    with client(broker) as made, ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda number: made.partitions(TOPIC), range(200))) == {2}
    assert len(broker.connections) == 1


def test_a_broker_that_does_not_answer_keeps_no_thread_from_the_others(broker: FakeBroker, other: FakeBroker) -> None:
    other.on("connect", silent)
    broker.on("partition_metadata", answer("partition_metadata_response", partitions=2))
    with client(broker) as made, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(made.channel, other.url)
        other.wait("connect")
        assert made.partitions(TOPIC) == 2
        assert not waiting.done()
        other.drop()
        assert isinstance(waiting.exception(PATIENCE), ConnectionLost)


def test_close_ends_requests_that_wait_for_an_answer(broker: FakeBroker) -> None:
    made = client(broker)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(made.partitions, TOPIC), pool.submit(made.layout, SCALABLE)]
        broker.wait("partition_metadata")
        broker.wait("scalable_topic_lookup")
        made.close()
        assert [type(one.exception(PATIENCE)) for one in asked] == [ConnectionLost, ConnectionLost]  # type: ignore[attr-defined]
    assert broker.count("partition_metadata") == 1


def test_close_ends_requests_that_wait_for_their_next_attempt(broker: FakeBroker) -> None:
    waits = threading.Event()

    def pauses() -> Iterator[float]:
        while True:
            waits.set()
            yield PATIENCE / 2

    broker.on("partition_metadata", refuse(6))
    made = client(broker, pauses=pauses, seconds=10 * PATIENCE)
    begun = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(made.partitions, TOPIC)
        assert waits.wait(PATIENCE)
        broker.wait("partition_metadata")
        made.close()
        assert isinstance(asked.exception(PATIENCE), PulsarError)
    assert time.monotonic() - begun < PATIENCE / 2


def test_a_connection_that_is_made_during_close_does_not_stay(broker: FakeBroker) -> None:
    go_on = threading.Event()
    broker.on("connect", lambda peer, body: go_on.wait(PATIENCE) and accept()(peer, body))
    made = client(broker)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(made.partitions, TOPIC)
        broker.wait("connect")
        made.close()
        go_on.set()
        assert isinstance(asked.exception(PATIENCE), ConnectionLost)
    assert f"txnsegment-pulsar-{broker.hosts}" not in {one.name for one in threading.enumerate()}
    assert broker.count("partition_metadata") == 0


def test_a_closed_client_says_so(broker: FakeBroker) -> None:
    made = client(broker)
    made.close()
    made.close()
    with pytest.raises(ConnectionLost, match="The client was closed"):
        made.partitions(TOPIC)
    assert broker.count("connect") == 0


def test_a_client_of_another_process_is_refused(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(broker) as made:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(PulsarError, match="another process"):
            made.partitions(TOPIC)
