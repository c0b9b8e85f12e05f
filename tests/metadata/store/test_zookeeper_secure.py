"""Tests of a real ZooKeeper with TLS, SASL and digest: whole clusters, accepted credentials, errors of refused credentials."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import KeeperState

from conformance.harness.spark_start import WORKERS, python_environment, spark_environment
from conformance.proxy import TcpProxy
from conformance.servers import LOCAL, ZooKeeperServer, free_ports
from metadata.client.client import shared_client
from metadata.common.errors import ConfigurationError
from metadata.records.paths import LOG, Key
from metadata.store import open_store
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root
from metadata.store.zookeeper_connection import PROBES, Connections
from metadata.store.zookeeper_credentials import VARIABLES, credentials
from metadata.store.zookeeper_session import Session, stat
from pyspark_txnsegment import DefaultSource
from tests.support.rows import rows
from txnsegment import connect

ROOT = Path(__file__).parents[3]
A = Key("/a", "")
QUICK = 8.0
"""A mistake must be reported within this many seconds, even on a busy machine. A call that waits in vain for a server takes
longer.
"""
SECRET, KEY_SECRET = "hunter2-of-sasl", "hunter2-of-key"
ROWS = [{"k": i, "v": f"row {i}"} for i in range(100)]

JOB = """
import sys
from pyspark.sql import SparkSession

url, log = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", log)
    .getOrCreate()
)
found = spark.read.format("txnsegment").option("serviceUrl", url).load("t")
found.explain(extended=True)
print("rows:", len(found.collect()))
spark.stop()
"""


# --- certificates ---


def openssl(folder: Path, *arguments: str) -> None:
    program = shutil.which("openssl")
    assert program, "These tests make certificates with openssl: install it (Debian, Ubuntu: apt install openssl)."
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def authority(folder: Path, name: str) -> None:
    made = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", "2")
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", *made)


def certificate(folder: Path, name: str, by: str, names: str) -> None:
    """Make the certificate `name.pem`, its key `name.key`, and `both-name.pem` with both, for a server."""
    openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
    (folder / f"{name}.ext").write_text(f"subjectAltName={names}\n")
    signed = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial", "-extfile", f"{name}.ext", "-days", "2")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    (folder / f"both-{name}.pem").write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.pem").read_text())


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("ours", "foreign"):
        authority(folder, name)
    certificate(folder, "server", "ours", f"IP:{LOCAL}")
    certificate(folder, "ann", "ours", "DNS:ann")
    certificate(folder, "eve", "foreign", "DNS:eve")
    openssl(folder, "pkcs8", "-topk8", "-in", "ann.key", "-out", "sealed.key", "-passout", f"pass:{KEY_SECRET}")
    (folder / "jaas.conf").write_text(
        f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_ann="{SECRET}" user_bob="{SECRET}"; }};\n'
    )
    return folder


# --- servers ---


@dataclass(frozen=True)
class Secure:
    """A server with a plain port and a TLS port. Both ports accept SASL."""

    server: ZooKeeperServer
    tls_hosts: str

    @property
    def hosts(self) -> str:
        return self.server.hosts


def serve(folder: Path, files: Path, **more: str) -> ZooKeeperServer:
    settings = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": str(free_ports(1)[0]),
        "secureClientPortAddress": LOCAL,
        "ssl.keyStore.location": str(files / "both-server.pem"),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(files / "ours.pem"),
        "ssl.trustStore.type": "PEM",
        **more,
    }
    return ZooKeeperServer(folder, settings=settings, java_options=[f"-Djava.security.auth.login.config={files / 'jaas.conf'}"])


@pytest.fixture(scope="module")
def secure(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    (port,) = free_ports(1)
    sasl = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with serve(tmp_path_factory.mktemp("secure"), files, **sasl, secureClientPort=str(port)) as server:
        yield Secure(server, f"{LOCAL}:{port}")


@pytest.fixture(scope="module")
def careless(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """A server that ignores credentials: it has no SASL provider and asks for no certificate."""
    (port,) = free_ports(1)
    settings = {"ssl.clientAuth": "none", "secureClientPort": str(port)}
    with serve(tmp_path_factory.mktemp("careless"), files, **settings) as server:
        yield Secure(server, f"{LOCAL}:{port}")


@pytest.fixture
def chroot(request: pytest.FixtureRequest) -> str:
    return f"/{abs(hash(request.node.nodeid)):x}"


class Environment:
    """The environment variables that configure the connection to ZooKeeper."""

    def __init__(self, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._files, self._monkeypatch = files, monkeypatch
        self.only()

    def only(self, **values: str) -> None:
        """Set these variables, given without their prefix, and unset all others. A variable with an empty value counts as unset."""
        for name in VARIABLES:
            self._monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            self._monkeypatch.setenv(f"TXNSEGMENT_ZK_{name}", value)

    def file(self, name: str) -> str:
        return str(self._files / name)

    def tls(self, who: str = "ann", ca: str = "ours", **more: str) -> None:
        own = {"TLS_CERT": self.file(f"{who}.pem"), "TLS_KEY": self.file(f"{who}.key")} if who else {}
        self.only(TLS_CA=self.file(f"{ca}.pem"), **(own | more))

    def sasl(self, username: str = "ann", password: str = SECRET, **more: str) -> None:
        self.only(SASL_MECHANISM="DIGEST-MD5", SASL_USERNAME=username, SASL_PASSWORD=password, **more)


@pytest.fixture
def environment(files: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    return Environment(files, monkeypatch)


# --- a cluster, and access by other sessions ---


def commit_and_read_back(url: str, ledgers: Path) -> None:
    """Make a cluster and commit a row. Read the row in a second session that knows only the URL."""
    with connect(url, ledgers=ledgers.as_uri()) as cluster:
        cluster.topics.create("t", segments=2, key="k")
        with cluster.begin(app="a", version=1) as txn:
            txn.append("t", pa.Table.from_pylist(ROWS))
            assert txn.commit().rows == len(ROWS)
    with connect(url) as cluster:
        assert sorted(rows(cluster, "t"), key=lambda row: row["k"]) == ROWS
        with cluster.begin(app="a", version=1) as again:
            again.append("t", pa.Table.from_pylist(ROWS))
            assert again.commit().skipped


def closed_to_everyone_else(secure: Secure, url: str, scheme: str) -> None:
    """Check that every znode of the cluster has an owner of this scheme, and that an anonymous session cannot use it."""
    root = hosts_and_root(url)[1]
    with open_store(url) as store:
        assert isinstance(store, ZooKeeperStore)
        mine = store._session.client()
        found = [root]
        for path in found:
            found += [f"{path}/{name}" for name in mine.get_children(path)]
            owners = mine.get_acls(path)[0]
            assert {owner.id.scheme for owner in owners} == {scheme}, path
    assert len(found) > 20
    anonymous = KazooClient(secure.hosts)
    anonymous.start()
    try:
        for path in found:
            for act in (
                anonymous.get,
                anonymous.get_children,
                lambda path: anonymous.set(path, b"x"),
                lambda path: anonymous.create(f"{path}/x"),
            ):
                with pytest.raises(NoAuthError):
                    act(path)
    finally:
        anonymous.stop()
        anonymous.close()


def refused(url: str, *says: str) -> str:
    """Check that opening the cluster quickly raises a ConfigurationError with these texts and without secrets. Return its text."""
    began = time.monotonic()
    with pytest.raises(ConfigurationError) as caught:
        connect(url)
    took = time.monotonic() - began
    text = str(caught.value)
    for part in says:
        assert part in text, text
    assert caught.value.advice
    assert "hunter2" not in text
    assert took < QUICK, f"{took:.1f} s"
    return text


@contextmanager
def relay(port: int, context: ssl.SSLContext | None, *, break_first: bool = False) -> Iterator[str]:
    """Yield the `host:port` of a relay to a plain port. With a context the relay terminates TLS, as a service mesh or stunnel does,
    and sends many replies in one TLS record. `break_first`: the relay closes the first connection at the client's first request
    after connecting.
    """
    loop, up, where, breaks = asyncio.new_event_loop(), threading.Event(), list[int](), [break_first]

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = await reader.readexactly(4)
        writer.write(length + await reader.readexactly(int.from_bytes(length)))

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOCAL, port)
        if breaks[0]:
            breaks[0] = False
            await one(reader, back)
            await one(there, writer)
            await reader.readexactly(1)
            writer.close()
            back.close()
            return
        await asyncio.gather(pump(reader, back), pump(there, writer))

    async def listen() -> None:
        server = await asyncio.start_server(accepted, LOCAL, 0, ssl=context)
        where.append(server.sockets[0].getsockname()[1])
        up.set()

    def run() -> None:
        loop.run_until_complete(listen())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert up.wait(QUICK)
    try:
        yield f"{LOCAL}:{where[0]}"
        assert not breaks[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(QUICK)


class TestTls:
    def test_a_secured_cluster_commits_and_reads_back(
        self, secure: Secure, environment: Environment, chroot: str, tmp_path: Path
    ) -> None:
        environment.tls()
        url = f"zk://{secure.tls_hosts}{chroot}"
        commit_and_read_back(url, tmp_path)
        closed_to_everyone_else(secure, url, "x509")

    def test_an_encrypted_key_and_a_digest_besides(
        self, secure: Secure, environment: Environment, chroot: str, tmp_path: Path
    ) -> None:
        (tmp_path / "auth").write_text(
            f"# ours\nTXNSEGMENT_ZK_AUTH = digest:ann:hunter2\nTXNSEGMENT_ZK_TLS_KEY_PASSWORD={KEY_SECRET}\n"
        )
        environment.tls(TLS_KEY=environment.file("sealed.key"), AUTH_FILE=str(tmp_path / "auth"))
        with open_store(f"zk://{secure.tls_hosts}{chroot}") as store:
            store.put(A, b"x")
        environment.only(AUTH="digest:ann:hunter2")  # the digest user alone may read the record, without the certificate
        with open_store(f"zk://{secure.hosts}{chroot}") as store:
            assert store.view().get(A)

    def test_long_replies_and_many_at_once(self, secure: Secure, environment: Environment, chroot: str) -> None:
        environment.tls(who="", ca="ours", TLS_CERT=environment.file("both-ann.pem"))
        with open_store(f"zk://{secure.tls_hosts}{chroot}") as store:
            long = bytes(range(256)) * 3000
            store.put(A, long)
            for i in range(300):
                store.append(LOG, b"%d" % i)
            for _ in range(5):
                found = store.view().get(A)
                assert found is not None
                assert found.value == long
                assert len(store.view().scan(LOG.range())) == 300

    def test_many_replies_in_one_record(self, secure: Secure, files: Path, environment: Environment, chroot: str) -> None:
        environment.tls(who="")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files / "server.pem", files / "server.key")
        with relay(secure.server.port, context) as hosts, open_store(f"zk://{hosts}{chroot}") as store:
            assert isinstance(store, ZooKeeperStore)
            store.put(A, b"x")
            began = time.monotonic()
            for _ in range(20):
                assert len(store._session.flight([stat(chroot)] * 100)) == 100
            assert time.monotonic() - began < 2 * QUICK  # a reply that stays in the buffer would wait for the next ping, about 3 s

    def test_certificates_that_are_not_trusted(self, secure: Secure, environment: Environment, chroot: str) -> None:
        url = f"zk://{secure.tls_hosts}{chroot}"
        environment.tls(ca="foreign")
        refused(url, "its certificate is not trusted", "TXNSEGMENT_ZK_TLS_CA")
        environment.only(TLS_CA="system")
        refused(url, "its certificate is not trusted", "TXNSEGMENT_ZK_TLS_CA")
        environment.tls(who="eve")
        refused(url, "does not accept the client certificate", "TXNSEGMENT_ZK_TLS_CERT", "TXNSEGMENT_ZK_TLS_KEY")
        environment.tls(who="")
        refused(url, "does not accept the client certificate, or got none", "TXNSEGMENT_ZK_TLS_CERT")
        environment.tls()
        refused(url.replace(LOCAL, "localhost"), "another name", "localhost", "subjectAltName")

    def test_the_wrong_port(self, secure: Secure, environment: Environment, chroot: str) -> None:
        refused(f"zk://{secure.tls_hosts}{chroot}", "it speaks TLS", "TXNSEGMENT_ZK_TLS_CA")
        environment.tls()
        refused(f"zk://{secure.hosts}{chroot}", "does not speak TLS", "secureClientPort")

    def test_a_connection_that_is_not_answered_leaves_time_for_another(
        self, secure: Secure, environment: Environment, chroot: str
    ) -> None:
        environment.tls()
        with TcpProxy(LOCAL, int(secure.tls_hosts.rpartition(":")[2])) as proxy:
            proxy.mute()
            with open_store(f"zk://{proxy.hosts}{chroot}") as store:
                store.put(A, b"x")

    def test_a_busy_port_with_an_unknown_protocol_is_probed_again(self, secure: Secure) -> None:
        with TcpProxy(LOCAL, int(secure.tls_hosts.rpartition(":")[2])) as proxy:
            connections = Connections(None, refused=lambda: None, answer_seconds=1.0)
            proxy.mute(1000)
            for _ in range(2):
                connections.create_connection((LOCAL, proxy.port), LOCAL, 5.0).close()
                assert connections.refusal is None
            proxy.mute(0)
            for _ in range(PROBES - 1):  # a busy server may leave a probe without an answer, so the test repeats the probe
                connections.create_connection((LOCAL, proxy.port), LOCAL, 5.0).close()
                if connections.refusal is not None:
                    break
            assert "it speaks TLS on this port" in str(connections.refusal)

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            ({"TLS_CA": "gone.pem"}, ("TLS_CA", "no file", "gone.pem")),
            ({"TLS_CA": "."}, ("TLS_CA", "cannot be read")),
            ({"TLS_CA": "jaas.conf"}, ("TLS_CA", "no certificate", "jaas.conf")),
            ({"TLS_CERT": "ann.pem", "TLS_KEY": "ann.key"}, ("TLS_CA", "system")),
            ({"TLS_CA": "ours.pem", "TLS_KEY": "ann.key"}, ("TLS_KEY", "TLS_CERT", "is not")),
            ({"TLS_CA": "ours.pem", "TLS_CERT": "gone.pem"}, ("TLS_CERT", "no file")),
            ({"TLS_CA": "ours.pem", "TLS_CERT": "ann.pem", "TLS_KEY": "gone.key"}, ("TLS_KEY", "no file")),
            ({"TLS_CA": "ours.pem", "TLS_CERT": "ann.pem"}, ("TLS_CERT", "TLS_KEY is not set")),
            ({"TLS_CA": "ours.pem", "TLS_CERT": "ann.pem", "TLS_KEY": "eve.key"}, ("TLS_KEY", "not the key of")),
            ({"TLS_CA": "ours.pem", "TLS_CERT": "ann.pem", "TLS_KEY": "jaas.conf"}, ("TLS_KEY", "PEM")),
            ({"TLS_CA": "ours.pem", "TLS_CERT": "ann.pem", "TLS_KEY": "sealed.key"}, ("TLS_KEY", "encrypted", "TLS_KEY_PASSWORD")),
        ],
    )
    def test_bad_certificate_files_are_refused(
        self, secure: Secure, environment: Environment, chroot: str, values: dict[str, str], says: tuple[str, ...]
    ) -> None:
        environment.only(**{name: environment.file(value) for name, value in values.items()})
        refused(f"zk://{secure.tls_hosts}{chroot}", *says)

    def test_the_wrong_password_of_a_key(self, secure: Secure, environment: Environment, chroot: str) -> None:
        environment.tls(TLS_KEY=environment.file("sealed.key"), TLS_KEY_PASSWORD="hunter2-wrong")
        refused(f"zk://{secure.tls_hosts}{chroot}", "not opened by TXNSEGMENT_ZK_TLS_KEY_PASSWORD")

    def test_a_server_without_client_authentication_is_refused(
        self, careless: Secure, environment: Environment, chroot: str
    ) -> None:
        environment.tls()
        refused(f"zk://{careless.tls_hosts}{chroot}", "authenticates no user", "TLS_CERT", "ssl.clientAuth", "TXNSEGMENT_ZK_AUTH")
        environment.tls(who="", AUTH="digest:ann:hunter2")
        with open_store(f"zk://{careless.tls_hosts}{chroot}") as store:
            store.put(A, b"x")


class TestSasl:
    def test_a_secured_cluster_commits_and_reads_back(
        self, secure: Secure, environment: Environment, chroot: str, tmp_path: Path
    ) -> None:
        environment.sasl()
        url = f"zk://{secure.hosts}{chroot}"
        commit_and_read_back(url, tmp_path)
        closed_to_everyone_else(secure, url, "sasl")
        environment.sasl(username="bob")
        refused(url, "belong to another user", "TXNSEGMENT_ZK_SASL_USERNAME")
        environment.only()
        refused(url, "no credentials are set", "TXNSEGMENT_ZK_SASL_")

    def test_sasl_works_within_tls(self, secure: Secure, environment: Environment, chroot: str, tmp_path: Path) -> None:
        environment.tls(SASL_MECHANISM="DIGEST-MD5", SASL_USERNAME="ann", SASL_PASSWORD=SECRET)
        commit_and_read_back(f"zk://{secure.tls_hosts}{chroot}", tmp_path)

    @pytest.mark.parametrize(("username", "password"), [("ann", "hunter2-wrong"), ("nobody", SECRET)])
    def test_wrong_credentials_are_refused(
        self, secure: Secure, environment: Environment, chroot: str, username: str, password: str
    ) -> None:
        environment.sasl(username, password)
        refused(f"zk://{secure.hosts}{chroot}", "TXNSEGMENT_ZK_SASL_USERNAME", "TXNSEGMENT_ZK_SASL_PASSWORD", "wrong")

    def test_a_connection_that_breaks_in_the_exchange_is_no_wrong_password(
        self, secure: Secure, environment: Environment, chroot: str
    ) -> None:
        environment.sasl()
        with relay(secure.server.port, None, break_first=True) as hosts, open_store(f"zk://{hosts}{chroot}") as store:
            store.put(A, b"x")

    def test_a_late_caller_does_not_wait_for_an_abandoned_connection(
        self, secure: Secure, monkeypatch: pytest.MonkeyPatch, environment: Environment, chroot: str
    ) -> None:
        """The first connection breaks. kazoo shows the state AUTH_FAILED only for a moment, and then CLOSED, which is also the
        state before connecting. A caller that looks only then does not wait for this connection: it connects again, and can write.
        """
        environment.sasl()
        failed = threading.Event()
        hears = Session._state_changed

        def heard(session: Session, client: KazooClient, connections: Connections, state: str) -> None:
            hears(session, client, connections, state)
            if client.client_state == KeeperState.AUTH_FAILED:
                failed.set()

        class Late(threading.Condition):
            """A condition whose waiter checks its predicate only after AUTH_FAILED has passed."""

            def wait_for(self, predicate: Any, timeout: float | None = None) -> Any:
                first = not failed.is_set()
                if first:
                    self.release()
                    assert failed.wait(QUICK)
                    while predicate.args[0].client_state == KeeperState.AUTH_FAILED:
                        time.sleep(0.001)  # the test waits for the next state
                    self.acquire()
                return super().wait_for(predicate, timeout)

        begins = Session._begin_process

        def begun(session: Session) -> None:
            begins(session)
            session._changed = Late()

        monkeypatch.setattr(Session, "_state_changed", heard)
        monkeypatch.setattr(Session, "_begin_process", begun)
        with relay(secure.server.port, None, break_first=True) as hosts, open_store(f"zk://{hosts}{chroot}") as store:
            store.put(A, b"x")

    def test_servers_that_do_no_sasl(
        self, zookeeper: ZooKeeperServer, careless: Secure, environment: Environment, chroot: str
    ) -> None:
        environment.sasl()
        refused(f"zk://{zookeeper.hosts}{chroot}", "does not support SASL", "TXNSEGMENT_ZK_SASL_")
        refused(f"zk://{careless.hosts}{chroot}", "authenticates no user", "SASLAuthenticationProvider")

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            ({"SASL_USERNAME": "ann", "SASL_PASSWORD": SECRET}, ("SASL_MECHANISM is not set", "DIGEST-MD5")),
            ({"SASL_MECHANISM": "PLAIN"}, ("SASL_MECHANISM is 'PLAIN'", "DIGEST-MD5")),
            ({"SASL_MECHANISM": "DIGEST-MD5", "SASL_USERNAME": "ann"}, ("SASL_PASSWORD is not set",)),
            ({"SASL_MECHANISM": "GSSAPI", "SASL_USERNAME": "ann"}, ("SASL_USERNAME", "kinit")),
            ({"SASL_MECHANISM": "GSSAPI"}, ("package kerberos", "pip install")),
            ({"SASL_USER": "ann"}, ("no variable TXNSEGMENT_ZK_SASL_USER", "Did you mean TXNSEGMENT_ZK_SASL_USERNAME?")),
        ],
    )
    def test_bad_settings_are_refused(
        self,
        secure: Secure,
        monkeypatch: pytest.MonkeyPatch,
        environment: Environment,
        values: dict[str, str],
        says: tuple[str, ...],
    ) -> None:
        environment.only(**values)
        refused(f"zk://{secure.hosts}/none", *says)

    def test_without_pure_sasl(self, secure: Secure, monkeypatch: pytest.MonkeyPatch, environment: Environment) -> None:
        environment.sasl()
        for name in ("puresasl", "puresasl.mechanisms"):
            monkeypatch.setitem(sys.modules, name, None)  # an import of this module now fails, as if the module were not installed
        refused(f"zk://{secure.hosts}/none", "pure-sasl", "extra sasl", "pip install 'txnsegment[sasl]'")


class TestDigest:
    def test_a_secured_cluster_commits_and_reads_back(
        self, secure: Secure, environment: Environment, chroot: str, tmp_path: Path
    ) -> None:
        environment.only(AUTH="digest:ann:hunter2:with:colons")
        url = f"zk://{secure.hosts}{chroot}"
        commit_and_read_back(url, tmp_path)
        closed_to_everyone_else(secure, url, "digest")
        for other in ("digest:ann:hunter2", "digest:bob:hunter2:with:colons"):
            environment.only(AUTH=other)
            refused(url, "belong to another user", "TXNSEGMENT_ZK_AUTH")

    @pytest.mark.parametrize(
        ("lines", "says"),
        [
            ("TXNSEGMENT_ZK_AUTH=ann:hunter2", ("TXNSEGMENT_ZK_AUTH", "digest:user:password")),
            ("# ours\n\ndigest:ann:hunter2", ("TXNSEGMENT_ZK_AUTH_FILE", "line 3", "TXNSEGMENT_ZK_AUTH=")),
            ("PASSWORD=hunter2", ("TXNSEGMENT_ZK_AUTH_FILE", "line 1")),
            ("TXNSEGMENT_ZK_AUHT=digest:ann:hunter2", ("no variable TXNSEGMENT_ZK_AUHT", "Did you mean TXNSEGMENT_ZK_AUTH?")),
        ],
    )
    def test_a_bad_file(self, secure: Secure, environment: Environment, tmp_path: Path, lines: str, says: tuple[str, ...]) -> None:
        (tmp_path / "auth").write_text(lines)
        environment.only(AUTH_FILE=str(tmp_path / "auth"))
        refused(f"zk://{secure.hosts}/none", *says)


class TestSecrets:
    def test_no_credential_is_logged_shown_or_pickled(
        self, secure: Secure, environment: Environment, chroot: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        sealed = environment.file("sealed.key")
        more = {"TLS_KEY": sealed, "TLS_KEY_PASSWORD": KEY_SECRET, "AUTH": "digest:ann:hunter2-of-digest"}
        environment.tls(SASL_MECHANISM="DIGEST-MD5", SASL_USERNAME="ann", SASL_PASSWORD=SECRET, **more)
        url = f"zk://{secure.tls_hosts}{chroot}"
        with caplog.at_level(1):
            logging.getLogger("kazoo").setLevel(1)
            commit_and_read_back(url, tmp_path)
        logging.getLogger("kazoo").setLevel(logging.NOTSET)
        told = "\n".join(f"{record.getMessage()} {record.args!r} {record.exc_text}" for record in caplog.records)
        assert "Sending request" in told  # kazoo logs its requests
        assert "hunter2" not in told

        source = DefaultSource({"serviceUrl": url, "topic": "t"})
        schema = source.schema()
        reader, writer = source.reader(schema), source.writer(schema, False)
        sent = [source, reader, writer, source.streamReader(schema), source.streamWriter(schema, False), *reader.partitions()]
        assert len(sent) > 5
        for one in sent:
            assert b"hunter2" not in pickle.dumps(one), one
            assert "hunter2" not in repr(one)
        shared_client(url).close()
        with connect(url) as cluster:
            client = cluster.client.cluster
            for one in (cluster, client, client.store, cluster.settings, cluster.topics.describe("t")):
                assert "hunter2" not in repr(one) + str(one)

    @pytest.mark.slow
    def test_spark_shows_none(self, secure: Secure, environment: Environment, chroot: str, tmp_path: Path) -> None:
        """A Spark job prints no secret in its plans, its output and its event log."""
        environment.tls(SASL_MECHANISM="DIGEST-MD5", SASL_USERNAME="ann", SASL_PASSWORD=SECRET, AUTH="digest:ann:hunter2-of-digest")
        url, log = f"zk://{secure.tls_hosts}{chroot}", tmp_path / "log"
        log.mkdir()
        (tmp_path / "job.py").write_text(JOB)
        commit_and_read_back(url, tmp_path / "ledgers")
        done = subprocess.run(
            [sys.executable, str(tmp_path / "job.py"), url, log.as_uri()],
            env={
                **os.environ,
                **spark_environment(warm=True),
                **python_environment(),
                "PYTHONPATH": os.pathsep.join([str(WORKERS), str(Path(__file__).parents[3])]),
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        events = "".join(file.read_text() for file in log.rglob("*") if file.is_file())
        assert "SparkListenerSQLExecutionStart" in events
        assert "Physical Plan" in done.stdout
        assert "rows: 100" in done.stdout
        assert "hunter2" not in done.stdout + done.stderr + events

    def test_credentials_neither_show_nor_pickle_themselves(self, environment: Environment) -> None:
        environment.tls(SASL_MECHANISM="DIGEST-MD5", SASL_USERNAME="ann", SASL_PASSWORD=SECRET, AUTH="digest:ann:hunter2-of-digest")
        ours = credentials()
        assert repr(ours) == ("Credentials(by TXNSEGMENT_ZK_AUTH, TXNSEGMENT_ZK_SASL_USERNAME, TXNSEGMENT_ZK_TLS_CERT, TLS)")
        with pytest.raises(ConfigurationError, match="not pickled"):
            pickle.dumps(ours)

    def test_every_variable_is_in_the_manual(self) -> None:
        page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
        assert [name for name in VARIABLES if f"`{name}`" not in page] == []
