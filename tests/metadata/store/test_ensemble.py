"""Three real ZooKeeper servers. A view on any of them shows all writes acknowledged before it began, and one server may die."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from conformance.servers import ZooKeeperEnsemble, ZooKeeperServer
from metadata.common.errors import Unavailable, UnknownOutcome
from metadata.records.paths import LOG, Key
from metadata.store.contract import ABSENT
from metadata.store.zookeeper import ZooKeeperStore

A = Key("/a", "")
LATE = 200
"""The number of records of 100 kB that a suspended follower must receive after it resumes."""
SLOW_SECONDS = 120.0
"""The seconds after which the leader drops a silent follower, and after which a client gives up its session with a silent server.
"""
SETTINGS = {"syncLimit": f"{2 * SLOW_SECONDS:.0f}", "maxSessionTimeout": f"{1000 * SLOW_SECONDS:.0f}"}
"""The unit of `syncLimit` is a tick, which is half a second."""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"), settings=SETTINGS) as running:
        yield running


def test_a_view_on_any_server_shows_the_last_acknowledged_write(ensemble: ZooKeeperEnsemble) -> None:
    """The reads of a view begin with a write, which brings the view's server up to date. With ZooKeeper's `sync` instead, readers
    on the leader would sometimes fail this test.
    """
    stores = [ZooKeeperStore(server.hosts, "/fresh") for server in ensemble.servers]
    record = stores[0].put(A, b"0")
    for n in range(1, 600):
        record = stores[n % 3].put(A, b"%d" % n, expect=record)
        assert stores[(n + 1 + n // 3 % 2) % 3].view().get(A) == record
    for n in range(100):
        appended = stores[n % 3].append(LOG, b"x")
        assert stores[(n + 1 + n // 3 % 2) % 3].view().keys(LOG.range())[-1] == appended.key.path
    for store in stores:
        store.close()


def test_a_view_on_a_lagging_server_shows_acknowledged_writes(ensemble: ZooKeeperEnsemble) -> None:
    """A suspended follower resumes, and has not yet received the writes of the other servers. A view on it shows no old record,
    misses no existing record, and lists a log to its end.
    """
    other = ensemble.leader()
    server = next(each for each in ensemble.servers if each is not other)
    slow = partial(ZooKeeperStore, connect_seconds=SLOW_SECONDS, session_seconds=SLOW_SECONDS)
    with (
        slow(server.hosts, "/behind") as behind,
        slow(other.hosts, "/behind") as ahead,
        ThreadPoolExecutor(3) as readers,
    ):
        record = ahead.put(A, b"0")
        assert behind.view().get(A) == record
        before = connection(behind)
        server.suspend()
        try:
            for n in range(LATE):
                record = ahead.put(A, bytes(100_000) + b"%d" % n, expect=record)
            made = ahead.put(Key("/made", ""), b"1", expect=ABSENT)
            appended = ahead.append(LOG, b"x")
            asked = [
                readers.submit(lambda: behind.view().get(A)),
                readers.submit(lambda: behind.view().get(made.key)),
                readers.submit(lambda: behind.view().keys(LOG.range())),
            ]
            wait_until_sent(behind, {"MultiGet": 2, "GetChildren": 2})
        finally:
            server.resume()
        assert [each.result() for each in asked] == [record, made, [appended.key.path]]  # type: ignore[attr-defined]
        assert connection(behind) == before, "the session left the follower, so the follower did not answer as a lagging server"


def connection(store: ZooKeeperStore) -> tuple[int | None, object]:
    """Return the session id and the local address of the socket. Both stay the same until a reconnect."""
    return store._session.id, store._session.client()._connection._socket.getsockname()


def wait_until_sent(store: ZooKeeperStore, reads: dict[str, int], seconds: float = SLOW_SECONDS / 2) -> None:
    """Wait until the connection has sent at least this many reads of each kind, and waits for their answers."""
    client, until = store._session.client(), time.monotonic() + seconds
    while not (sent := Counter(type(request).__name__ for request, _, _ in tuple(client._pending))) >= Counter(reads):
        assert time.monotonic() < until, f"only {sent} were sent"
        time.sleep(0.005)


def test_a_session_moves_to_another_server_when_its_server_dies(ensemble: ZooKeeperEnsemble) -> None:
    with ZooKeeperStore(ensemble.hosts, "/dies", connect_seconds=SLOW_SECONDS, session_seconds=SLOW_SECONDS) as store:
        mine = store.put(Key("/leader", ""), b"me", expect=ABSENT, ephemeral=True)
        record = store.put(A, b"1")
        view = store.view()
        server = connected_to(ensemble, store)
        server.kill()
        assert view.get_many([A, mine.key]) == [record, mine]
        changed = put_until_known(store, record)
        server.start()
        assert view.get_many([A, mine.key]) == [changed, mine]


def connected_to(ensemble: ZooKeeperEnsemble, store: ZooKeeperStore) -> ZooKeeperServer:
    port = store._session.client()._connection._socket.getpeername()[1]
    (server,) = [server for server in ensemble.servers if server.port == port]
    return server


def put_until_known(store: ZooKeeperStore, record: object) -> object:
    """Write until the outcome is known. After a lost reply, read the record, as callers must."""
    while True:
        try:
            return store.put(A, b"2", expect=record)
        except UnknownOutcome:
            found = store.view().get(A)
            if found != record:
                return found
        except Unavailable:
            continue
