"""A commit takes at most seven consecutive requests in a process that has committed before, for any number of segments and parts,
and with any history.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.counting import Counting, count_flights
from conformance.harness.faulty_store import FaultyStore
from conformance.servers import ZooKeeperServer
from ledgers.model import Part
from ledgers.storage import LedgerStorage
from metadata.client.client import Client, client
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.common.errors import OptionError, ValueTooLarge
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.names import MAX_SEGMENTS, topic_name
from metadata.records.records import TcSequence
from metadata.rules.transitions import Claim
from metadata.store.sqlite import SqliteStore
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root
from metadata.write.write_set import WriteSet

BLOCK = 5


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


def work(one: Client, topic: str, version: int, parts: int = 1) -> WriteSet:
    segments = one.topics.get(topic_name(topic)).segments()
    one.cluster.storage.create()
    if one.cluster.storage.info("part.parquet") is None:
        one.cluster.storage.publish("part.parquet", b"part")
    found = {s: [Part("part.parquet", 1, 4, 0, (1,), 0) for _ in range(parts)] for s in segments}
    now = one.cluster.store.view().now_ms()
    return WriteSet("app", topic, Claim(version, "q", f"a{version}", True), found, now, 30_000)


def trips(one: Client, count: Callable[[], int]) -> list[int]:
    """Return the round trips of each commit after the first two to a topic. The commits write to 1, 4 or 64 segments, have 1 or 50
    parts for each segment, and use more than two blocks of transaction ids.
    """
    found = []
    for segments in (1, 4, 64):
        topic = f"t{segments}"
        one.topics.create(topic_name(topic), segments=segments)
        for version in range(8):
            todo = work(one, topic, version, parts=50 if version == 7 else 1)
            before = count()
            assert one.coordinator.commit(todo).number
            if version > 1:  # the first commits create folders and read eras
                found.append(count() - before)
            _finished(one)
    return found


def _finished(one: Client) -> None:
    """Wait for the background work of the commit."""
    done = threading.Event()
    one.coordinator.aftermath(done.set)
    assert done.wait(30)


def test_a_commit_and_a_read_keep_to_their_round_trips_on_sqlite(tmp_path: Path) -> None:
    url, settings = f"file://{tmp_path}/c", Settings(txn_id_block=BLOCK)
    open_cluster(url, settings=settings).close()
    counting = Counting()
    store = FaultyStore(SqliteStore(f"{tmp_path}/c"), counting)
    one = client(Cluster(url, store, LedgerStorage(f"file://{tmp_path}/ledgers"), settings))
    found = trips(one, lambda: counting.mine)
    one.close()
    assert max(found) <= 7, found
    assert len(set(found)) == 1, found


def test_a_commit_and_a_read_keep_to_their_round_trips_on_zookeeper(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """The test counts the requests to the server: groups of reads, and multis. It also counts the reads that precede a write."""
    url, settings = f"zk://{zookeeper.hosts}/trips", Settings(txn_id_block=BLOCK)
    open_cluster(url, ledgers=f"file://{tmp_path}/ledgers", settings=settings).close()
    store = ZooKeeperStore(*hosts_and_root(url))
    flights = count_flights(store)
    one = client(Cluster(url, store, LedgerStorage(f"file://{tmp_path}/ledgers"), settings))
    found = trips(one, lambda: flights.mine)
    one.close()
    assert max(found) <= 7, found
    assert len(set(found)) == 1, found


def test_ids_are_never_given_twice_across_blocks(tmp_path: Path) -> None:
    with_block = Settings(txn_id_block=4)
    cluster = open_cluster(f"file://{tmp_path}/c", settings=with_block)
    one, two = client(cluster), client(cluster)
    ids: list[str] = []
    for i in range(30):
        for ids_of in (one.coordinator.ids, two.coordinator.ids):
            ids.append(ids_of.next())
            if i % 3 == 0:
                ids_of.refill()
    assert len(set(ids)) == 60
    record = cluster.store.view().get(paths.tc_sequence(0))
    assert record is not None
    assert TcSequence.of(record).next >= 60
    cluster.close()


def test_a_topic_has_as_many_segments_as_fit_its_record(tmp_path: Path) -> None:
    one = client(open_cluster(f"file://{tmp_path}/c"))
    name = topic_name("topic://" + "/".join(("tenant", "namespace", "name" * 10)))
    made = one.topics.create(name, segments=MAX_SEGMENTS)
    assert len(made.layout.segments) == MAX_SEGMENTS
    size = len(made.layout.to_bytes())
    with pytest.raises(OptionError, match=f"from 1 to {MAX_SEGMENTS}") as refused:
        one.topics.create(topic_name("more"), segments=MAX_SEGMENTS + 1)
    assert not isinstance(refused.value, ValueTooLarge)
    assert 3 * size < 768 * 1024, size  # the record has room for a split of every segment
    one.close()
