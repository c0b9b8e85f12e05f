"""Credentials come from the environment and appear nowhere else. A process has one client for a URL and its credentials, and a
forked child has its own.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import cloudpickle

from pulsar_protocol.auth import TLS_CA, TLS_CERT, TLS_KEY, TOKEN, TOKEN_FILE, BadCredentials, Credentials, connect, shared
from pulsar_protocol.errors import AuthenticationFailed, PulsarError
from pulsar_protocol.service import BadUrl
from tests.support.fake_broker import PATIENCE, FakeBroker, accept, answer, refuse

SECRET = "eyJhbGciOiJIUzI1NiJ9.secret"
TOPIC = "persistent://a/b/c"
ALL = (TOKEN, TOKEN_FILE, TLS_CA, TLS_CERT, TLS_KEY)


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALL:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        made.on("partition_metadata", answer("partition_metadata_response", partitions=2))
        yield made


def hello(broker: FakeBroker) -> tuple[str, bytes]:
    """Return the method and the data of the first connection's authentication."""
    body = broker.asked("connect")[0].body
    return body.auth_method_name, body.auth_data


# --- tokens ---


def test_without_credentials_none_are_sent(broker: FakeBroker) -> None:
    with connect(broker.url) as client:
        client.partitions(TOPIC)
    assert hello(broker) == ("none", b"")


def test_a_token_of_the_environment_is_sent(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, f" {SECRET}\n")
    with connect(broker.url) as client:
        client.partitions(TOPIC)
    assert hello(broker) == ("token", SECRET.encode())


def test_a_token_of_a_file_is_read_at_each_challenge(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    monkeypatch.setenv(TOKEN_FILE, str(file))
    with connect(broker.url, seconds=PATIENCE) as client:
        client.partitions(TOPIC)
        for number, token in enumerate(["second", "third"], 1):
            file.write_text(token)
            broker.connections[0].send("auth_challenge", challenge={"auth_method_name": "token", "auth_data": b"expired"})
            assert broker.wait("auth_response", number)[-1].body.response.auth_data == token.encode()
        broker.drop()
        file.write_text("fourth")
        client.partitions(TOPIC)
    assert hello(broker) == ("token", b"first")
    assert broker.asked("connect")[-1].body.auth_data == b"fourth"


def test_a_token_file_that_is_gone_ends_the_connection_with_its_name(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    monkeypatch.setenv(TOKEN_FILE, str(file))
    broker.on("partition_metadata", lambda peer, body: peer.send("auth_challenge", challenge={"auth_data": b"expired"}))
    with connect(broker.url, seconds=PATIENCE) as client:
        client.channel()
        file.unlink()
        with pytest.raises(BadCredentials, match=f"{file}, cannot be read"):
            client.partitions(TOPIC)


@pytest.mark.parametrize("text", [" ", "two words", "line\nline", "ä"])
def test_what_is_no_token_fails_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv(TOKEN, text)
    with pytest.raises(BadCredentials, match=f"{TOKEN} has no token"):
        connect("pulsar://nowhere")
    monkeypatch.delenv(TOKEN)
    (tmp_path / "token").write_text(text, encoding="utf-8")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    with pytest.raises(BadCredentials, match=f"{TOKEN_FILE}.* has no token"):
        connect("pulsar://nowhere")


def test_an_empty_variable_is_as_none(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALL:
        monkeypatch.setenv(name, "")
    with connect(broker.url) as client:
        client.partitions(TOPIC)
    assert hello(broker) == ("none", b"")


@pytest.mark.parametrize(
    ("set_", "message"),
    [
        ({TOKEN: SECRET, TOKEN_FILE: "/token"}, f"{TOKEN} and {TOKEN_FILE} are both set"),
        ({TLS_KEY: "/key"}, f"{TLS_KEY} is set without {TLS_CERT}"),
        ({TOKEN_FILE: "/no/such"}, f"{TOKEN_FILE}, /no/such, cannot be read: No such file"),
        ({TLS_CA: "/no/such"}, f"{TLS_CA}=/no/such cannot be used: No such file"),
        ({TLS_CERT: "/no/such"}, f"{TLS_CERT}=/no/such cannot be used: No such file"),
    ],
)
def test_what_cannot_be_used_fails_at_once(monkeypatch: pytest.MonkeyPatch, set_: dict[str, str], message: str) -> None:
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    for call in (connect, shared):
        with pytest.raises(BadCredentials, match=message):
            call("pulsar+ssl://nowhere")


def test_a_file_that_is_no_certificate_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("no certificate")
    for name in (TLS_CA, TLS_CERT):
        monkeypatch.setenv(name, str(tmp_path / "x"))
        with pytest.raises(BadCredentials, match=f"{name}={tmp_path}/x cannot be used"):
            connect("pulsar+ssl://nowhere")
        monkeypatch.delenv(name)


# --- a token appears nowhere ---


def test_no_error_has_the_token(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)
    texts = []
    for script in ([refuse(3)], [accept()]):
        broker.on("connect", *script)
        broker.on("partition_metadata", refuse(4))
        with connect(broker.url) as client, pytest.raises(PulsarError) as caught:
            client.partitions(TOPIC)
        texts += ["".join(traceback.format_exception(caught.value)), pickle.dumps(caught.value).decode("latin-1")]
        texts += [repr(client), repr(vars(client)), repr(Credentials.read())]
    assert not [text for text in texts if SECRET in text]


def test_a_url_with_a_secret_is_refused_without_showing_it() -> None:
    for url in (f"pulsar://user:{SECRET}@host:6650", f"pulsar://host:6650?token={SECRET}", f"pulsar://host:6650/?{SECRET}"):
        with pytest.raises(BadUrl, match="has no user, password, token") as caught:
            connect(url)
        assert SECRET not in str(caught.value)


def test_credentials_and_clients_are_not_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)
    with pytest.raises(TypeError, match="each process reads its own environment"):
        pickle.dumps(Credentials.read())
    with pytest.raises(TypeError, match="each process reads its own environment"):
        cloudpickle.dumps(Credentials.read().authenticate)
    with connect("pulsar://nowhere") as client, pytest.raises(TypeError, match="make one in each process"):
        cloudpickle.dumps(client)


def test_a_wrong_token_is_the_error_of_the_broker(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, SECRET)
    broker.on("connect", refuse(3, "Failed to authenticate token"))
    with connect(broker.url) as client, pytest.raises(AuthenticationFailed, match="Failed to authenticate token"):
        client.partitions(TOPIC)
    assert broker.count("connect") == 1


# --- the client of a process ---


def test_threads_get_the_same_client(broker: FakeBroker) -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = set(pool.map(lambda number: shared(broker.url), range(50)))
    (only,) = clients
    assert shared(broker.url + "/") is only
    only.close()


def test_a_closed_client_is_replaced(broker: FakeBroker) -> None:
    first = shared(broker.url)
    first.close()
    second = shared(broker.url)
    assert second is not first
    assert second.partitions(TOPIC) == 2
    second.close()


def test_other_credentials_get_another_client(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shared(broker.url)
    monkeypatch.setenv(TOKEN, SECRET)
    second = shared(broker.url)
    assert first is not second
    first.close()
    second.close()


def in_a_fork(code: str, broker: FakeBroker) -> str:
    """Run code in a new process, which may fork. Return what the code prints."""
    preamble = f"import os, sys\nfrom pulsar_protocol.auth import _SHARED, shared\nurl, topic = {broker.url!r}, {TOPIC!r}\n"
    done = subprocess.run([sys.executable, "-c", preamble + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_child_makes_its_own_client_and_leaves_that_of_its_parent(broker: FakeBroker) -> None:
    text = in_a_fork(
        """
parent = shared(url)
assert parent.partitions(topic) == 2
if (child := os.fork()) == 0:
    own = shared(url)
    assert own is not parent and own.partitions(topic) == 2
    try:
        parent.partitions(topic)
    except Exception as error:
        assert "another process" in str(error), error
    else:
        sys.exit(3)
    sys.exit(0)  # runs what is registered for the end of a process
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert parent.partitions(topic) == 2
print("alive")
""",
        broker,
    )
    assert text == "alive\n"
    assert len(broker.connections) == 2, "the parent kept its connection, and the child made one"


def test_a_fork_while_another_thread_asks_for_the_client_does_not_block_the_child(broker: FakeBroker) -> None:
    text = in_a_fork(
        """
with _SHARED.guard:  # as another thread of the parent holds it
    child = os.fork()
    if child == 0:
        print(shared(url).partitions(topic), flush=True)
        os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
        broker,
    )
    assert text == "2\n"


def test_the_end_of_a_process_closes_its_clients(broker: FakeBroker) -> None:
    text = in_a_fork(
        """
import atexit
client = shared(url)
client.partitions(topic)
atexit.unregister(_SHARED.close)
atexit.register(lambda: print("closed", client.closed))  # runs after what is registered later
atexit.register(_SHARED.close)
""",
        broker,
    )
    assert text == "closed True\n"
