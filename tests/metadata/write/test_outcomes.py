"""The error of a commit states the true outcome, even after a lost reply, a store outage or a late retry."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from conformance.harness.faulty_store import Call, FaultyStore
from conformance.proxy import TcpProxy
from conformance.servers import ZooKeeperServer
from ledgers.storage import LedgerStorage
from metadata.client.client import client
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.errors import OutcomeUnknown, TxnConflict, TxnSegmentError, Unavailable, UnknownOutcome
from metadata.read.reading import LogSelection
from metadata.records.cluster_records import Settings
from metadata.records.names import topic_name
from metadata.records.paths import TXN_BY_FINAL_STATE
from metadata.records.records import Header, State
from metadata.store.contract import Put, Record, Write
from metadata.store.sqlite import SqliteStore
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root
from tests.support.bench import At, Bench, T
from txnsegment import Cluster as Face
from txnsegment import connect


class Breaking:
    """A fault policy of a store. `deciding`: carries out the write that decides a transaction. `away`: no call is answered."""

    def __init__(self) -> None:
        self.away = False
        self.deciding: Callable[[Callable[[], list[Record | None]]], list[Record | None]] = lambda write: write()

    def __call__(self, call: Call, go: Callable[[], Any]) -> Any:
        if self.away and call.kind in ("view", "write"):
            raise Unavailable("The store is away; nothing was done.")
        return self.deciding(go) if any(map(_decides, call.writes)) else go()

    def lose_reply_and_go_away(self, write: Callable[[], list[Record | None]]) -> list[Record | None]:
        write()
        self.away = True
        raise UnknownOutcome("The reply was lost.")


def _decides(write: Write) -> bool:
    return (
        isinstance(write, Put) and write.key.path.startswith("/txn/id/") and Header.from_bytes(write.value).state is State.COMMITTED
    )


def numbers(cluster: Face) -> int:
    reading = cluster.client.buffer.read(LogSelection(("topic://public/default/t",)))
    return sum(found.rows for s in reading.segments for found in s.ledgers(0, reading.cut))


def rows(count: int) -> pa.Table:
    return pa.table({"n": list(range(count))})


@pytest.fixture
def breaking(tmp_path: Path) -> Iterator[tuple[Face, Breaking, str]]:
    url = f"file://{tmp_path}/cluster"
    with connect(url) as setup:
        setup.topics.create("t")
        inner = setup.client.cluster
        breaking = Breaking()
        store = FaultyStore(SqliteStore(f"{tmp_path}/cluster"), breaking)
        face = Face(client(Cluster(url, store, inner.storage, inner.settings)))
        yield face, breaking, url
        breaking.away = False
        face.client.close()


def test_a_commit_with_a_lost_reply_is_not_reported_as_failed(breaking: tuple[Face, Breaking, str]) -> None:
    face, store, url = breaking
    store.deciding = store.lose_reply_and_go_away
    txn = face.begin(app="a", version=1)
    txn.append("t", rows(3))
    with pytest.raises(OutcomeUnknown, match="may have committed") as caught:
        txn.commit()
    assert isinstance(caught.value.__cause__, Unavailable)
    with connect(url) as other:
        assert numbers(other) == 3
    store.away = False
    assert txn.commit().skipped
    with connect(url) as other:
        assert numbers(other) == 3


def test_a_store_outage_before_the_deciding_cas_raises_unavailable(breaking: tuple[Face, Breaking, str]) -> None:
    face, store, url = breaking

    def away(write: Callable[[], list[Record | None]]) -> list[Record | None]:
        raise Unavailable("The store is away; nothing was done.")

    store.deciding = away
    txn = face.begin(app="a", version=1)
    txn.append("t", rows(3))
    with pytest.raises(Unavailable):
        txn.commit()
    with connect(url) as other:
        assert numbers(other) == 0


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


def test_zookeeper_is_lost_at_the_deciding_cas(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """The reply to the deciding CAS is lost, and the connection stays broken. The error says that the outcome is unknown."""
    url, settings = f"zk://{zookeeper.hosts}/lost", Settings()
    setup = Face(client(open_cluster(url, ledgers=f"file://{tmp_path}/ledgers", settings=settings)))
    setup.topics.create("t")
    first = setup.begin()  # this commit creates the folders, so that the deciding CAS of the next commit is one request
    first.append("t", rows(1))
    first.commit()
    failed: list[BaseException] = []
    with TcpProxy("127.0.0.1", zookeeper.port) as proxy, ExitStack() as broken:
        inner = ZooKeeperStore(*hosts_and_root(f"zk://{proxy.hosts}/lost"))
        breaking = Breaking()
        face = Face(client(Cluster(url, FaultyStore(inner, breaking), LedgerStorage(f"file://{tmp_path}/ledgers"), settings)))

        def breaks(write: Callable[[], list[Record | None]]) -> list[Record | None]:
            broken.enter_context(proxy.drop_replies())
            inner._session._connect_seconds = 0.1  # the client gives up soon, because no server answers
            return write()

        breaking.deciding = breaks
        txn = face.begin(app="a", version=1)
        txn.append("t", rows(3))

        def commit() -> None:
            try:
                txn.commit()
            except TxnSegmentError as error:
                failed.append(error)

        thread = threading.Thread(target=commit)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        assert proxy.wait_dropped()
        face.client.close()
    assert [type(e) for e in failed] == [OutcomeUnknown]
    assert numbers(setup) == 4
    again = setup.begin(app="a", version=1)
    again.append("t", rows(3))
    assert again.commit().skipped
    assert numbers(setup) == 4
    setup.client.close()


# --- late retries ---------------------------------------------------------------------------------------------------


def test_a_random_application_never_opens_twice(breaking: tuple[Face, Breaking, str]) -> None:
    """The first commit loses its reply. Then a sweep deletes the application record and the header of this commit, so its outcome
    is unknown. A second commit must not open a transaction.
    """
    face, store, url = breaking
    store.deciding = store.lose_reply_and_go_away
    txn = face.begin()
    txn.append("t", rows(3))
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    store.away, store.deciding = False, lambda write: write()
    with connect(url) as other:
        assert numbers(other) == 3
        retired = other.client.cluster
        retired.settings = retired.settings.model_copy(update={"header_retention_ms": 0})
        retired.clock.sleep(0.005)
        for _ in range(3):
            other.client.sweeper.sweep()
        assert not retired.store.view().scan_index(TXN_BY_FINAL_STATE, "", "~")
    for _ in range(2):
        with pytest.raises(OutcomeUnknown, match="forgotten"):
            txn.commit()
    with connect(url) as other:
        assert numbers(other) == 3


def test_a_random_application_that_certainly_failed_runs_again(breaking: tuple[Face, Breaking, str]) -> None:
    """The first commit certainly failed. A second commit opens a transaction, even if a record of the first commit is left."""
    face, store, url = breaking
    txn = face.begin()
    txn.append("t", rows(3))
    store.away = True
    with pytest.raises(Unavailable):
        txn.commit()
    store.away = False
    txn.commit()
    with connect(url) as other:
        assert numbers(other) == 3


def test_a_retried_write_set_whose_application_is_absent() -> None:
    """The application record expires after the commit. A retried commit in the coordinator then has an unknown outcome, and writes
    no row.
    """
    bench = Bench()
    work = bench.work(random=True, app="r")
    bench.party().coordinator.commit(work)
    again = dataclasses.replace(work, retried=True)
    assert bench.party().coordinator.commit(again).skipped
    bench.old()
    for _ in range(3):
        bench.party().sweeper.sweep()
    assert not bench.kept("/txn/app/")
    with pytest.raises(OutcomeUnknown):
        bench.party().coordinator.commit(again)
    assert len(bench.read()) == 3
    bench.finish()


# --- the routing key ------------------------------------------------------------------------------------------------


def test_a_write_without_a_key_cannot_commit_into_a_topic_that_got_one(breaking: tuple[Face, Breaking, str]) -> None:
    face, _, url = breaking
    txn = face.begin(app="a", version=1)
    txn.append("t", rows(3))
    with connect(url) as other:
        other.client.topics.evolve(topic_name("t"), StructType([StructField("n", LongType())]), key="n")
        with pytest.raises(TxnConflict, match=r"routed without a key.*by 'n'"):
            txn.commit()
        assert not other.transactions.list("OPEN")
        assert numbers(other) == 0


def test_the_key_is_set_at_every_moment_of_a_commit() -> None:
    """Another process sets the topic's key at each step of a commit without a key. The rows of this commit then precede all rows
    that are routed by the key, or are not committed.
    """
    k, refused = 0, 0
    while True:
        bench = Bench()
        registered_before = False

        def meanwhile(bench: Bench = bench) -> None:
            nonlocal registered_before
            registered_before = bool(bench.kept("/log/"))
            bench.party().topics.evolve(topic_name(T), StructType([StructField("n", LongType())]), key="n")

        gate = At(k, meanwhile=meanwhile)
        work = bench.work(1)
        try:
            bench.party(gate).coordinator.commit(work)
            assert registered_before or not gate.hit, gate.hit
        except TxnConflict:
            refused += 1
            assert not bench.read()
        bench.finish()
        if not gate.hit:
            break
        k += 1
    assert refused
