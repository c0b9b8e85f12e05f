"""A copy of ZooKeeper's data is served on another port. The copied cluster has the same cluster id, and must not share the ledger
root with the original.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from conformance.proxy import LOCAL, TcpProxy
from conformance.zookeeper_server import ZooKeeperServer
from metadata.client.passes import delete_orphans
from metadata.cluster.cluster import take_over
from metadata.cluster.ledger_root import read_mark
from metadata.common.errors import ConfigurationError
from metadata.store import zookeeper_same
from metadata.store.zookeeper import ZooKeeperStore
from metadata.store.zookeeper_session import children
from txnsegment import Cluster, connect
from txnsegment.verify import verify


def write(cluster: Cluster, n: int) -> None:
    with cluster.begin() as txn:
        txn.append("t", pa.table({"n": pa.array([n], pa.int64())}))
        txn.commit()


def rows(cluster: Cluster) -> int:
    found = verify(cluster.client, "t")
    assert not found.damaged
    return found.rows


def test_a_snapshot_on_another_port_is_refused_until_it_takes_the_root_over(tmp_path: Path) -> None:
    server = ZooKeeperServer(tmp_path / "zk").start()
    try:
        url = f"zk://{server.hosts}/c"
        with connect(url, ledgers=f"file://{tmp_path}/root") as cluster:
            cluster.topics.create("t", schema="n bigint")
            write(cluster, 1)
        server.stop()
        shutil.copytree(tmp_path / "zk" / "data", tmp_path / "copy" / "data")
        server.start()  # the server has its old host and port, so the store is at the place that the mark names
        with connect(url) as cluster:
            write(cluster, 2)
            assert rows(cluster) == 2
        with ZooKeeperServer(tmp_path / "copy") as copied:
            other = f"zk://{copied.hosts}/c"
            with pytest.raises(ConfigurationError) as told:
                connect(other)
            assert f"txnsegment init {other} --take-over" in str(told.value)
            assert server.hosts in str(told.value)
            with connect(url) as cluster:
                assert take_over(other)
                with pytest.raises(ConfigurationError, match="has taken it over"):
                    delete_orphans(cluster.client.cluster)
            with pytest.raises(ConfigurationError, match="has taken it over"):
                connect(url)
            with connect(other) as cluster:
                assert rows(cluster) == 1
                write(cluster, 3)
                cluster.sweep()
                assert rows(cluster) == 2
    finally:
        server.stop()


def test_the_same_servers_by_other_addresses_are_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy gives the servers a second address, as a forwarded port or a container network does. The store uses a password. The
    URL with the second address is accepted as the same store.
    """
    monkeypatch.setenv("TXNSEGMENT_ZK_AUTH", "digest:writer:secret")
    with ZooKeeperServer(tmp_path / "zk") as server:
        url = f"zk://{server.hosts}/c"
        with connect(url, ledgers=f"file://{tmp_path}/root") as cluster:
            cluster.topics.create("t", schema="n bigint")
            write(cluster, 1)
            marked = read_mark(cluster.client.cluster.storage)
        with TcpProxy(LOCAL, server.port) as proxy:
            other = f"zk://{proxy.hosts}/c"
            with connect(other) as cluster, connect(url) as first:
                write(cluster, 2)
                write(first, 3)
                cluster.client.cluster.check_root()
                first.client.cluster.check_root()
                assert rows(cluster) == rows(first) == 3
                assert read_mark(cluster.client.cluster.storage) == marked
                store = cluster.client.cluster.store
                assert isinstance(store, ZooKeeperStore)
                # the check whether both addresses lead to the same servers leaves no znode
                assert store._session.flight([children("/c/clock")]) == [[]]
            assert not take_over(other), "this store owns the root already"


def test_servers_that_cannot_be_inspected_are_not_taken_for_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_same, "CONNECT_SECONDS", 1.0)
    with ZooKeeperServer(tmp_path / "zk") as server, TcpProxy(LOCAL, server.port) as proxy:
        connect(f"zk://{proxy.hosts}/c", ledgers=f"file://{tmp_path}/root").close()
        with proxy.refuse(), pytest.raises(ConfigurationError) as told:
            connect(f"zk://{server.hosts}/c")
        assert f"this machine must reach {proxy.hosts}" in str(told.value)
        connect(f"zk://{server.hosts}/c").close()
