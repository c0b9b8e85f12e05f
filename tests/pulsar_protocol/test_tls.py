"""Encrypted connections. Client and broker check each other's certificates. Large frames pass in both directions at once."""

from __future__ import annotations

import queue
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pulsar_protocol.auth import TLS_CA, TLS_CERT, TLS_KEY, TOKEN, BadCredentials, connect
from pulsar_protocol.channel import Channel
from pulsar_protocol.connection import Delivery
from pulsar_protocol.errors import AuthenticationFailed, ConnectionLost, PulsarError
from tests.support.certificates import Certificate, certificate
from tests.support.fake_broker import PATIENCE, FakeBroker, Peer, answer

TOPIC = "persistent://a/b/c"
PARTITIONS = answer("partition_metadata_response", partitions=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def own(folder: Path) -> Certificate:
    return certificate(folder, "broker")


@pytest.fixture(scope="module")
def of_client(folder: Path) -> Certificate:
    return certificate(folder, "client")


@pytest.fixture
def broker(own: Certificate) -> Iterator[FakeBroker]:
    with FakeBroker(own.server()) as made:
        made.on("partition_metadata", PARTITIONS)
        yield made


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (TLS_CA, TLS_CERT, TLS_KEY, TOKEN):
        monkeypatch.delenv(name, raising=False)


def test_the_authority_of_the_environment_is_trusted(broker: FakeBroker, own: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TLS_CA, str(own.file))
    monkeypatch.setenv(TOKEN, "word")
    with connect(broker.url) as client:
        assert client.partitions(TOPIC) == 2
    assert broker.asked("connect")[0].body.auth_data == b"word"


def test_a_broker_that_is_not_trusted_never_sees_the_token(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "word")
    with connect(broker.url) as client, pytest.raises(AuthenticationFailed, match=f"not trusted.*{TLS_CA}"):
        client.partitions(TOPIC)
    assert broker.count("connect") == 0


def test_a_certificate_of_another_host_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = certificate(folder, "foreign", "127.0.0.99")
    monkeypatch.setenv(TLS_CA, str(foreign.file))
    with FakeBroker(foreign.server()) as broker, connect(broker.url) as client:
        with pytest.raises(AuthenticationFailed, match="IP address mismatch"):
            client.partitions(TOPIC)
        assert broker.count("connect") == 0


def test_a_plain_port_behind_an_encrypted_url_is_an_error(own: Certificate) -> None:
    with FakeBroker() as broker, pytest.raises(ConnectionLost, match="cannot be reached"):
        Channel("127.0.0.1", broker.port, tls=own.trusted(), seconds=0.2)


def test_an_encrypted_port_behind_a_plain_url_is_an_error(broker: FakeBroker) -> None:
    with pytest.raises(PulsarError):
        Channel("127.0.0.1", broker.port, seconds=PATIENCE)
    assert broker.count("connect") == 0


@pytest.mark.parametrize("one_file", [False, True])
def test_the_certificate_of_the_client_is_its_authentication(
    own: Certificate, of_client: Certificate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_file: bool
) -> None:
    monkeypatch.setenv(TLS_CA, str(own.file))
    if one_file:
        both = tmp_path / "both.pem"
        both.write_text(of_client.key.read_text() + of_client.file.read_text())
        monkeypatch.setenv(TLS_CERT, str(both))
    else:
        monkeypatch.setenv(TLS_CERT, str(of_client.file))
        monkeypatch.setenv(TLS_KEY, str(of_client.key))
    with FakeBroker(own.server(of_client)) as broker:
        broker.on("partition_metadata", PARTITIONS)
        with connect(broker.url) as client:
            assert client.partitions(TOPIC) == 2
        assert broker.asked("connect")[0].body.auth_method_name == "tls"


def test_a_client_without_the_certificate_that_is_needed_is_told(
    own: Certificate, of_client: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TLS_CA, str(own.file))
    with (
        FakeBroker(own.server(of_client)) as broker,
        connect(broker.url, seconds=PATIENCE, pauses=lambda: iter([2 * PATIENCE])) as client,
    ):
        with pytest.raises(ConnectionLost, match=TLS_CERT):
            client.partitions(TOPIC)
        assert broker.count("connect") == 0


def test_a_key_with_a_password_is_refused_and_not_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = certificate(folder, "locked", password="secret-word")
    monkeypatch.setenv(TLS_CERT, str(locked.file))
    monkeypatch.setenv(TLS_KEY, str(locked.key))
    with pytest.raises(BadCredentials, match=f"The key of {TLS_CERT} has a password"):
        connect("pulsar+ssl://nowhere")


def test_the_encrypted_url_of_a_broker_is_used(broker: FakeBroker, own: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TLS_CA, str(own.file))
    urls = {"broker_service_url": "pulsar://127.0.0.1:1", "broker_service_url_tls": broker.url}
    broker.on("lookup_topic", answer("lookup_topic_response", response=1, **urls))
    with connect(broker.url) as client:
        assert client.broker_of(TOPIC).address == broker.hosts


def test_large_frames_pass_in_both_directions_at_once(broker: FakeBroker, own: Certificate) -> None:
    entries = [bytes([number]) * 300_000 for number in range(20)]

    def echo(peer: Peer, body: object) -> None:
        (asked,) = [one for one in broker.asked("send") if one.body is body]
        peer.send("message", asked.entry, consumer_id=1)

    broker.on("send", echo)
    seen: queue.Queue[Delivery | PulsarError] = queue.Queue()
    with Channel("127.0.0.1", broker.port, tls=own.trusted(), seconds=PATIENCE) as channel, ThreadPoolExecutor(4) as pool:
        assert channel.add("consumer", seen.put) == 1
        list(pool.map(lambda entry: channel.send(entry, producer_id=1, sequence_id=0), entries))
        back = [seen.get(timeout=PATIENCE) for _ in entries]
    assert sorted(one.entry for one in back if isinstance(one, Delivery)) == entries


def test_a_silent_broker_is_given_up(broker: FakeBroker, own: Certificate) -> None:
    broker.on("ping", lambda peer, body: None)
    broker.on("partition_metadata", lambda peer, body: None)
    tls = own.trusted()
    with Channel("127.0.0.1", broker.port, tls=tls, seconds=PATIENCE, silence_seconds=0.3) as channel:
        with pytest.raises(ConnectionLost, match="silent"):
            channel.ask("partition_metadata", topic=TOPIC)
        assert not channel.alive


def test_close_ends_a_request_that_waits(broker: FakeBroker, own: Certificate) -> None:
    broker.on("partition_metadata", lambda peer, body: None)
    channel = Channel("127.0.0.1", broker.port, tls=own.trusted(), seconds=PATIENCE)
    assert isinstance(channel._socket, ssl.SSLSocket)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(channel.ask, "partition_metadata", topic=TOPIC)
        broker.wait("partition_metadata")
        channel.close()
        assert isinstance(asked.exception(PATIENCE), ConnectionLost)
