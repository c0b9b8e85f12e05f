"""A commit takes at most seven consecutive requests to a real ZooKeeper server."""

from __future__ import annotations

from pathlib import Path

from conformance.harness.round_trips import count_flights
from ledgers.storage import LedgerStorage
from metadata.client.client import client
from metadata.cluster.cluster import Cluster, open_cluster
from metadata.records.cluster_records import Settings
from metadata.store.zookeeper import ZooKeeperStore, hosts_and_root
from tests.support.round_trips import BLOCK, trips


def test_a_commit_and_a_read_keep_to_their_round_trips_on_zookeeper(zk_url: str, tmp_path: Path) -> None:
    """The test counts the round trips to the server: each group of reads is one, and each multi is one. Reads that precede a write
    are counted, too.
    """
    settings = Settings(txn_id_block=BLOCK)
    open_cluster(zk_url, ledgers=f"file://{tmp_path}/ledgers", settings=settings).close()
    store = ZooKeeperStore(*hosts_and_root(zk_url))
    flights = count_flights(store)
    one = client(Cluster(zk_url, store, LedgerStorage(f"file://{tmp_path}/ledgers"), settings))
    found = trips(one, lambda: flights.mine)
    one.close()
    assert max(found) <= 7, found
    assert len(set(found)) == 1, found
