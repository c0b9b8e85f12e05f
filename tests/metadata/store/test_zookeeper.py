"""Tests of risks that only ZooKeeper has: sessions, lost connections and replies, eras, access control, the bytes of znodes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from conformance.proxy import TcpProxy
from conformance.servers import LOCAL, ZooKeeperServer, free_ports
from metadata.common.clock import SystemClock
from metadata.common.errors import ConfigurationError, SessionLost, Unavailable, ValueTooLarge
from metadata.records import paths
from metadata.records.paths import LOG, Key
from metadata.store import open_store
from metadata.store.contract import ABSENT, Append, IndexEntry, Put, Record, View, decide
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root
from metadata.store.zookeeper_paths import ERA_SIZE
from metadata.store.zookeeper_session import Outcome, Request, Session
from metadata.store.zookeeper_watch import LIST_SECONDS

A = Key("/a", "")


@pytest.fixture
def root(zk_url: str) -> str:
    return hosts_and_root(zk_url)[1]


@pytest.fixture
def store(zookeeper: ZooKeeperServer, root: str) -> Iterator[ZooKeeperStore]:
    with ZooKeeperStore(zookeeper.hosts, root) as opened:
        yield opened


@pytest.fixture
def proxy(zookeeper: ZooKeeperServer) -> Iterator[TcpProxy]:
    with TcpProxy(LOCAL, zookeeper.port) as opened:
        yield opened


@pytest.fixture
def far(proxy: TcpProxy, root: str, store: ZooKeeperStore) -> Iterator[ZooKeeperStore]:
    """A session through the proxy, on the same records as `store`."""
    with ZooKeeperStore(proxy.hosts, root) as opened:
        yield opened


@contextmanager
def raw(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def expire(store: ZooKeeperStore) -> None:
    """End the session of the store on the server, and wait until the store has noticed the end. Another connection takes the
    session over and closes it.

    The take-over ends the store's own connection. The store connects again, and takes the session back if the close is late. In
    this case the function tries again.
    """
    session, client_id = store._session, store._session.client().client_id
    until = time.monotonic() + 60
    while session.id == client_id[0]:
        assert time.monotonic() < until, "no other connection could close the session"
        thief = KazooClient(session.hosts, client_id=client_id)
        thief.start_async().wait(10)
        thief.stop()
        thief.close()
        with session._changed:
            session._changed.wait_for(lambda: session.id != client_id[0], 1)


class TestSessions:
    def test_a_view_dies_with_its_session(self, store: ZooKeeperStore) -> None:
        made = store.put(A, b"x")
        store.put(Key("/e", ""), b"x", ephemeral=True)
        view = store.view()
        assert view.get(A) == made
        expire(store)
        for read in (
            lambda: view.get(A),
            lambda: view.keys(LOG.range()),
            lambda: view.keys(paths.TOPICS),
            lambda: view.scan_index("i", "", "z"),
            view.now_ms,
        ):
            with pytest.raises(SessionLost):
                read()
        assert store.view().get(A) == made
        assert store.view().get(Key("/e", "")) is None

    def test_decide_starts_over(self, store: ZooKeeperStore) -> None:
        store.put(A, b"x")
        views: list[View] = []

        def body(view: View) -> bytes:
            views.append(view)
            first = view.get(A)
            if len(views) < 3:
                expire(store)
            second = view.get(A)
            assert first is not None
            assert second is not None
            return first.value + second.value

        assert decide(store, body) == b"xx"
        assert len(views) == 3

    def test_decide_gives_up(self, store: ZooKeeperStore) -> None:
        def body(view: View) -> None:
            expire(store)
            view.get(A)

        with pytest.raises(SessionLost):
            decide(store, body, attempts=2)

    def test_the_clock_is_the_servers_and_one_measurement_serves_many_views(self, store: ZooKeeperStore) -> None:
        first = store.view().now_ms()
        assert abs(first - time.time() * 1000) < 5000
        with raw(store._session.hosts) as client:
            path = store._session.root + "/clock"
            version = client.exists(path).version
            assert store.view().now_ms() >= first
            assert client.exists(path).version == version
            expire(store)
            decide(store, lambda view: view.now_ms())
            assert client.exists(path).version == version + 1

    def test_a_fork_gets_a_session_of_its_own(self, store: ZooKeeperStore) -> None:
        store.put(A, b"parent", expect=ABSENT)
        mine = store.view()
        child = os.fork()
        if child == 0:
            try:
                store.put(A, b"child", expect=0)
                code = 0 if store.view().get(A).value == b"child" else 2
                store.close()
                os._exit(code)
            except BaseException:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        found = mine.get(A)
        assert found is not None
        assert found.value == b"child"


class TestAway:
    def test_an_unreachable_server_at_the_start_is_an_error(self) -> None:
        (port,) = free_ports(1)
        began = time.monotonic()
        with pytest.raises(Unavailable, match=f"{LOCAL}:{port}.*servers run") as caught:
            ZooKeeperStore(f"{LOCAL}:{port}", "/x", connect_seconds=0.5)
        assert time.monotonic() - began < 5
        assert "0.5 s" in str(caught.value)


def test_a_connection_that_is_not_answered_leaves_time_for_another(proxy: TcpProxy, root: str, store: ZooKeeperStore) -> None:
    """A starting server may accept a connection and never answer it. The store then opens another connection in time."""
    store.put(A, b"a", expect=ABSENT)
    proxy.mute()
    with ZooKeeperStore(proxy.hosts, root) as far:
        assert far.view().get(A) is not None


def test_a_server_that_answers_slowly_is_reached(proxy: TcpProxy, root: str, store: ZooKeeperStore) -> None:
    """An answer takes 2.4 s. The first connection times out after 2 s; the second would time out after 4 s."""
    session = Session(proxy.hosts, root, clock=SystemClock(), connect_seconds=8, session_seconds=10)
    with proxy.delay(1.2):  # the proxy delays each direction by 1.2 s
        assert session.client().connected
    session.close()


def test_a_session_that_is_closed_while_a_call_waits_for_the_server_stays_closed(proxy: TcpProxy, root: str) -> None:
    """The waiting call must not start another client, which nobody would end."""
    session = Session(proxy.hosts, root, clock=SystemClock(), connect_seconds=10, session_seconds=10)
    client: Any = session.client()
    errors: list[Unavailable] = []

    def call() -> None:
        with pytest.raises(Unavailable) as caught:
            session.client()
        errors.append(caught.value)

    def wait_for(true: Callable[[], Any]) -> None:
        until = time.monotonic() + 10
        while not true():
            assert time.monotonic() < until
            time.sleep(0.001)

    with proxy.refuse():
        proxy.cut()
        wait_for(lambda: not client.connected)
        waiting = threading.Thread(target=call)
        waiting.start()
        wait_for(lambda: session._changed._waiters)  # type: ignore[attr-defined]
        session.close()
        waiting.join(5)
    assert "was closed" in errors[0].message
    assert session._client is client, "no other client was started"


def test_numbers_are_not_used_again_after_the_server_began_again(tmp_path: Path) -> None:
    """The server is stopped and started, then killed and started. The next number is still unused, because the server's disk has
    all acknowledged numbers.
    """
    with ZooKeeperServer(tmp_path) as server, ZooKeeperStore(server.hosts, "/again") as store:
        numbers: list[int] = []
        for end in (server.stop, server.kill):
            numbers += [store.append(LOG, b"x").number for _ in range(3)]
            for path in store.view().keys(LOG.range()):
                store.delete(Key(path, "log"))
            end()
            server.start()
        assert store.view().keys(LOG.range()) == []
        numbers.append(store.append(LOG, b"x").number)
        assert numbers == sorted(set(numbers))


class TestEras:
    def test_the_next_era_opens_when_one_is_full(self, zookeeper: ZooKeeperServer, root: str) -> None:
        with ZooKeeperStore(zookeeper.hosts, root, era_full=5) as one, ZooKeeperStore(zookeeper.hosts, root, era_full=5) as other:
            made = [(one if n % 3 else other).append(LOG, b"%d" % n) for n in range(30)]
            numbers = [record.number for record in made]
            assert numbers == sorted(set(numbers))
            assert numbers[-1] // ERA_SIZE >= 5
            assert all(number % ERA_SIZE <= 6 for number in numbers)
            assert one.view().scan(LOG.range()) == made
            assert other.view().scan(LOG.range(numbers[7], numbers[20])) == made[7:21]
            assert one.view().keys(LOG.range(numbers[29])) == [made[29].key.path]
            assert one.view().keys(LOG.range(0, numbers[0])) == [made[0].key.path]

    def test_a_suspended_process_never_appends_below_a_newer_era(
        self, zookeeper: ZooKeeperServer, root: str, store: ZooKeeperStore
    ) -> None:
        store.append(LOG, b"it knows era 0 now")
        with ZooKeeperStore(zookeeper.hosts, root, era_full=2) as other:
            numbers = [other.append(LOG, b"x").number for _ in range(6)]
        assert store.append(LOG, b"late").number > numbers[-1]

    def test_a_new_process_knows_how_full_an_era_is(self, zookeeper: ZooKeeperServer, root: str) -> None:
        for _ in range(7):
            with ZooKeeperStore(zookeeper.hosts, root, era_full=3) as store:
                number = store.append(LOG, b"x").number
                store.delete(LOG.key(number))
        assert number // ERA_SIZE == 3

    def test_sequences_under_one_folder_share_its_eras(self, zookeeper: ZooKeeperServer, root: str) -> None:
        with ZooKeeperStore(zookeeper.hosts, root, era_full=4) as store:
            made: dict[str, list[Record]] = {"s1": [], "s10": []}
            for n in range(12):
                name = "s10" if n % 2 else "s1"
                made[name].append(store.append(paths.Prefix(f"/ev/{name}", name), b"%d" % n))
            for name, records in made.items():
                assert store.view().scan(paths.Prefix(f"/ev/{name}", name).range()) == records

    def test_a_skip_that_is_near_opens_no_era(self, zookeeper: ZooKeeperServer, root: str, store: ZooKeeperStore) -> None:
        """Each migration of a persistent topic skips numbers. A skip to a near number stays in the era of the log. If each skip
        opened an era, later lists would read more eras.
        """
        before = store.append(LOG, b"it knows where the sequence stands")
        with ZooKeeperStore(zookeeper.hosts, root) as other:
            for to in (1_000, 6_000, 5_000):
                other.skip(LOG, to)
        made = store.append(LOG, b"x")
        assert made.number == 6_000
        assert store.view().scan(LOG.range()) == [before, made]
        with raw(zookeeper.hosts) as client:
            assert client.get_children(f"{root}/log") == ["0000000000"]
        store.skip(LOG, 10**6)
        assert store.append(LOG, b"x").number == ERA_SIZE + 1

    def test_a_skip_that_is_near_is_one_multi_for_each_thousand(self, root: str, store: ZooKeeperStore) -> None:
        store.append(LOG, b"x")
        asked: list[str] = []
        flight, multi = store._session.flight, store._session.multi

        def counted(requests: Sequence[Request], session: int | None = None) -> list[Outcome]:
            asked.append("flight")
            return flight(requests, session)

        def written(fill: Callable[[Any], None]) -> list[Any]:
            asked.append("multi")
            return multi(fill)

        store._session.flight, store._session.multi = counted, written  # type: ignore[method-assign]
        store.skip(LOG, 10_000)
        assert (asked.count("multi"), asked.count("flight")) == (10, 5)
        assert store.append(LOG, b"x").number == 10_000

    def test_a_skip_is_near_only_within_its_era(self, zookeeper: ZooKeeperServer, root: str) -> None:
        with ZooKeeperStore(zookeeper.hosts, root, era_full=10) as store:
            store.append(LOG, b"x")
            store.skip(LOG, 11)
            assert store.append(LOG, b"x").number == ERA_SIZE + 1

    def test_a_list_over_eras_is_one_round_trip(self, zookeeper: ZooKeeperServer, root: str, store: ZooKeeperStore) -> None:
        """A restore or a migration gives a log a new era. Only the first list of all eras takes a second round trip."""
        made = [store.append(LOG, b"x")]
        with ZooKeeperStore(zookeeper.hosts, root) as other:
            for to in (10**6, 10**11):
                other.skip(LOG, to)
                made.append(other.append(LOG, b"x"))
        flights: list[int] = []
        flight = store._session.flight

        def counted(requests: Sequence[Request], session: int | None = None) -> list[Outcome]:
            flights.append(len(requests))
            return flight(requests, session)

        store._session.flight = counted  # type: ignore[method-assign]
        for trips in (2, 1, 1):
            flights.clear()
            assert store.view().keys(LOG.range()) == [record.key.path for record in made]
            assert len(flights) == trips
        assert store.view().keys(LOG.range(made[1].number)) == [record.key.path for record in made[1:]]
        store.skip(LOG, 10**12)
        made.append(store.append(LOG, b"x"))
        assert store.view().keys(LOG.range()) == [record.key.path for record in made]


class TestZnodes:
    def test_the_bytes_of_a_record(self, store: ZooKeeperStore) -> None:
        store.put(paths.CLUSTER, b'{"format":1}')
        store.put(paths.header("0_1"), b'{"state":"OPEN"}', indexes=(IndexEntry(paths.TXN_BY_DEADLINE, "5"),))
        store.append(LOG, b"r")
        root = store._session.root
        with raw(store._session.hosts) as client:
            assert client.get(f"{root}/cluster")[0] == b'{"format":1}'
            data = client.get(f"{root}/txn/id/0_1")[0]
            assert data == b'{"state":"OPEN"}\n#{"i":[["idx:txn-by-deadline","5"]],"p":"0_1"}'
            assert client.get(f"{root}/txn/id")[0] == b""
            assert client.get_children(f"{root}/idx/!idx%3Atxn-by-deadline") == ["5,%2Ftxn%2Fid%2F0_1"]
            assert client.get_children(f"{root}/log/0000000000") == ["log-0000000001"]

    def test_a_write_with_expected_versions_is_one_multi(self, store: ZooKeeperStore) -> None:
        def writes() -> None:
            made, _ = store.write(Put(A, b"1", ABSENT, (IndexEntry("i", "1"),)), Append(LOG, b"x"))
            assert made is not None
            store.write(Put(A, b"2", made, (IndexEntry("i", "2"),)), Append(LOG, b"y"))

        writes()  # the first writes create the folders
        store.delete(A)
        assert requests(store, writes) == 2

    def test_a_view_is_made_fresh_in_the_flight_of_its_first_read(self, store: ZooKeeperStore) -> None:
        store.append(LOG, b"x")
        view = store.view()
        assert requests(store, lambda: view.get_many([A, LOG.key(1)])) == 2
        assert requests(store, lambda: view.get_many([A, LOG.key(1)])) == 1
        assert requests(store, lambda: view.keys(LOG.range())) == 2

    def test_a_group_that_is_too_big(self, store: ZooKeeperStore) -> None:
        store.put(A, b"1")
        with pytest.raises(ValueTooLarge, match="2 writes"):
            store.write(Put(A, b"x" * 600_000, 0), Put(Key("/b", ""), b"x" * 600_000, ABSENT))
        assert store.put(A, b"2", expect=0).version == 1

    def test_a_long_list_in_several_flights(self, store: ZooKeeperStore) -> None:
        keys = [Key(f"/many/{n:05d}", "") for n in range(4500)]
        for start in range(0, len(keys), 500):
            store.write(*[Put(key, b"v", ABSENT) for key in keys[start : start + 500]])
        assert [r.key for r in store.view().scan(paths.KeyRange("/many/", "/many/~", ""))] == keys

    def test_a_missing_chroot_is_not_made_unless_asked(self, zk_url: str) -> None:
        with pytest.raises(ConfigurationError, match="txnsegment init"):
            open_store(zk_url, create=False)
        open_store(zk_url).close()
        open_store(zk_url, create=False).close()


def requests(store: ZooKeeperStore, act: Callable[[], object]) -> int:
    """Return the number of requests that `act` sends. The client numbers its requests."""
    connection = store._session.client()._connection
    before = connection._xid
    act()
    return int(connection._xid - before)


class TestWatches:
    def test_a_new_connection_and_a_new_session_wake(self, far: ZooKeeperStore, proxy: TcpProxy, store: ZooKeeperStore) -> None:
        key_woken, log_woken = threading.Event(), threading.Event()
        watches = [far.watch(A, key_woken.set), far.watch(LOG, log_woken.set)]
        for lose in (proxy.cut, lambda: expire(far), lambda: None):
            key_woken.clear()
            log_woken.clear()
            lose()
            store.put(A, b"x")
            store.append(LOG, b"x")
            assert key_woken.wait(10)
            assert log_woken.wait(10)
            far.view().get(A)  # after this read the client is connected again and has set its watches
        for watch in watches:
            watch.close()

    def test_more_watches_than_a_socket_pair_takes_wake_ups(
        self, far: ZooKeeperStore, proxy: TcpProxy, store: ZooKeeperStore
    ) -> None:
        """After a reconnect the client's thread sets all watches again. For each watch the thread writes a byte into a socket pair,
        which holds 278 bytes. Only this thread reads the socket pair. Formerly the thread hung with more than 278 watches. Here 401
        watches are set again, and a change still wakes its watch (docs/correctness.md, cluster suite, --faults 100 --seed 13, fault
        51).
        """
        woken = threading.Event()
        watches = [far.watch(Key(f"/other/{i}", ""), lambda: None) for i in range(400)]
        watches.append(far.watch(A, woken.set))
        for _ in range(2):
            woken.clear()
            proxy.cut()
            store.put(A, b"x")
            assert woken.wait(10)
            assert far.view().get(A) is not None
        for watch in watches:
            watch.close()

    def test_an_append_wakes_the_watches_of_its_sequence_alone(self, far: ZooKeeperStore, store: ZooKeeperStore) -> None:
        """The events of all segments are in one folder. A commit to one topic must not wake the readers of all topics."""
        mine, other = paths.segment_events("segment://public/default/t/0"), paths.segment_events("segment://public/default/u/0")
        mine_woken, other_woken = threading.Semaphore(0), list[None]()
        watches = [far.watch(mine, mine_woken.release), far.watch(other, lambda: other_woken.append(None))]
        for _ in range(5):
            store.append(mine, b"x")
            assert mine_woken.acquire(timeout=10)
        assert len(other_woken) <= 1, "once when the watch begins; after that no record of its sequence was appended"
        before = len(other_woken)
        store.append(other, b"x")
        store.append(mine, b"x")
        while len(other_woken) == before:
            assert mine_woken.acquire(timeout=10)
        for watch in watches:
            watch.close()

    def test_a_deletion_wakes_no_watch_of_a_sequence(self, far: ZooKeeperStore, store: ZooKeeperStore) -> None:
        """Each fold deletes many records of the log and of the events. No reader has anything to read then."""
        woken = threading.Semaphore(0)
        made = [store.append(LOG, b"x") for _ in range(5)]
        watch = far.watch(LOG, woken.release)
        assert woken.acquire(timeout=10), "the watch begins"
        for record in made:
            store.delete(record.key)
            far.view().keys(LOG.range())
        store.append(LOG, b"x")
        assert woken.acquire(timeout=10), "an append"
        assert not woken.acquire(blocking=False)
        watch.close()

    def test_the_watches_of_one_folder_cost_one_request_for_each_change(self, far: ZooKeeperStore, store: ZooKeeperStore) -> None:
        """A reader watches the events of each of its segments. All of them are in one folder, which is listed once for a change."""
        woken = threading.Semaphore(0)
        sequences = [paths.segment_events(f"segment://public/default/t/{i}") for i in range(20)]
        store.append(sequences[0], b"x")
        watches = [far.watch(sequence, woken.release) for sequence in sequences]
        assert woken.acquire(timeout=10), "the watch of the sequence with a record begins"

        def change() -> None:
            store.append(sequences[7], b"x")
            assert woken.acquire(timeout=10)

        assert requests(far, change) <= 2
        for watch in watches:
            watch.close()

    def test_many_commits_to_other_topics_cost_a_reader_few_requests(self, far: ZooKeeperStore, store: ZooKeeperStore) -> None:
        mine, other = paths.segment_events("segment://public/default/t/0"), paths.segment_events("segment://public/default/u/0")
        woken = threading.Event()
        store.append(mine, b"x")
        watch = far.watch(mine, woken.set)
        assert woken.wait(10), "the watch begins"
        began = time.monotonic()
        sent = requests(far, lambda: [store.append(other, b"x") for _ in range(100)])
        assert sent <= 2 + (time.monotonic() - began) / LIST_SECONDS
        woken.clear()
        store.append(mine, b"x")
        assert woken.wait(10)
        watch.close()

    def test_a_watch_that_begins_while_its_client_is_replaced_keeps_waking(
        self, far: ZooKeeperStore, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The client may be replaced between the check that a server answers and the first request of the watch. Formerly the watch
        was then set through the client that had ended, and nothing woke its callback until the next connection.
        """
        session = far._session
        get = session.client

        def replaced() -> KazooClient:
            ended = get()
            ended.stop()
            assert get() is not ended
            return ended

        woken = threading.Semaphore(0)
        store.append(LOG, b"x")
        with monkeypatch.context() as patch:
            patch.setattr(session, "client", replaced)
            watch = far.watch(LOG, woken.release)
        assert woken.acquire(timeout=10), "the watch begins"
        for _ in range(3):
            store.append(LOG, b"x")
            assert woken.acquire(timeout=10)
        watch.close()

    def test_eras_are_followed(self, zookeeper: ZooKeeperServer, root: str, store: ZooKeeperStore) -> None:
        woken = threading.Event()
        watch = store.watch(LOG, woken.set)
        with ZooKeeperStore(zookeeper.hosts, root, era_full=2) as other:
            for _ in range(9):
                woken.clear()
                other.append(LOG, b"x")
                assert woken.wait(10)
        watch.close()


class TestCredentials:
    def test_digest_gives_all_to_the_creator_only(
        self, zookeeper: ZooKeeperServer, zk_url: str, root: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TXNSEGMENT_ZK_AUTH", "digest:ann:se:cret")
        with open_store(zk_url) as store:
            store.write(Put(A, b"x", ABSENT, (IndexEntry("i", "k"),)), Append(LOG, b"y"))
            store.view().now_ms()
        with raw(zookeeper.hosts) as client:
            for path in ("", "/a", "/idx/!i/k,%2Fa", "/log/0000000000/log-0000000001", "/era/log", "/clock"):
                with pytest.raises(NoAuthError):
                    client.get(root + path)
        with open_store(zk_url) as store:
            assert store.view().get(A) is not None
        for other in ("digest:bob:secret", ""):
            monkeypatch.setenv("TXNSEGMENT_ZK_AUTH", other)
            with pytest.raises(ConfigurationError, match="refuses access"):
                open_store(zk_url)

    def test_from_a_file(self, zk_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "auth").write_text("# ours\nTXNSEGMENT_ZK_AUTH=digest:ann:secret\n")
        monkeypatch.setenv("TXNSEGMENT_ZK_AUTH_FILE", str(tmp_path / "auth"))
        with open_store(zk_url) as store:
            store.put(A, b"x")
        monkeypatch.delenv("TXNSEGMENT_ZK_AUTH_FILE")
        with pytest.raises(ConfigurationError, match="credentials"):
            open_store(zk_url)

    def test_records_of_someone_else_are_refused_one_by_one(
        self, zk_url: str, store: ZooKeeperStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TXNSEGMENT_ZK_AUTH", "digest:ann:secret")
        with open_store(zk_url) as anns:
            anns.put(A, b"x")
            anns.append(LOG, b"x")
        acts: list[Callable[[], object]] = [
            lambda: store.view().get(A),
            lambda: store.put(A, b"y"),
            lambda: store.append(LOG, b"y"),
        ]
        for act in acts:
            with pytest.raises(ConfigurationError, match="credentials"):
                act()

    @pytest.mark.parametrize(
        ("name", "value", "says"),
        [
            ("TXNSEGMENT_ZK_AUTH", "ann:secret", "digest:user:password"),
            ("TXNSEGMENT_ZK_AUTH", "digest:secret", "digest:user:password"),
            ("TXNSEGMENT_ZK_AUTH_FILE", "no/such/secret/file", "cannot be read"),
            ("TXNSEGMENT_ZK_SASL_PASSWORD", "secret", "MECHANISM"),
            ("TXNSEGMENT_ZK_TLS_CA", "no/such/file", "TLS_CA"),
        ],
    )
    def test_bad_settings_are_refused(self, zk_url: str, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str) -> None:
        monkeypatch.setenv(name, value)
        with pytest.raises(ConfigurationError, match=says) as caught:
            open_store(zk_url)
        assert "ann:secret" not in str(caught.value)
