"""Clusters and backups of earlier format versions can be opened, read, swept, written to and restored.

`make.py` made each folder of `tests/format/v1`, `v2`, .. once, in a version of that format. A fixture is never made again.
"""

from __future__ import annotations

import gzip
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from conformance.servers import ZooKeeperServer
from metadata.backup import backup_file
from metadata.backup.record_kinds import kind_of
from metadata.cluster.cluster import MARK, take_over
from metadata.records.cluster_records import FORMAT_VERSION
from metadata.records.paths import Key
from metadata.rules import strides
from metadata.store import open_store
from metadata.store.contract import IndexEntry, Put, in_groups
from tests.format.make import SCHEMAS, TOPICS, shown, table, write
from tests.format.make_zookeeper import BEFORE, CHROOT, MIGRATED, all_shown
from txnsegment import Cluster, connect, restore

HERE = Path(__file__).parent
MADE = sorted(path for path in HERE.glob("v*/*") if path.is_dir())
OLDER = TOPICS[3]


def test_every_earlier_format_has_a_fixture() -> None:
    """There is a fixture for each format version. A change of the format raises the version and needs a new fixture (`make.py`)."""
    assert {path.parent.name for path in MADE} == {f"v{number}" for number in range(1, FORMAT_VERSION + 1)}


@pytest.fixture(params=MADE, ids=lambda path: path.name)
def made(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def expected(made: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((made / "expected.json").read_text())
    return found


def unpacked(made: Path, tmp_path: Path) -> Path:
    """Unpack a cluster and return its folder. Some versions wrote the absolute ledger root into the cluster record. The caller
    calls `moved` to replace this root by the one in the new folder.
    """
    with tarfile.open(made / "cluster.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path / "cluster"


def moved(url: str, was: str, now: str) -> None:
    """Replace the ledger root in the cluster record. In records of earlier versions it is an absolute URI."""
    with open_store(url, create=False) as store:
        record = store.view().get(Key("/cluster", ""))
        assert record is not None
        if was.encode() in record.value:
            store.put(record.key, record.value.replace(was.encode(), now.encode()), expect=record)


def check_continues(cluster: Cluster, wanted: dict[str, list[Any]]) -> None:
    """Check that the old rows are read, before and after a sweep, and that new rows can be written. The caller has aborted the
    transactions that were left OPEN.
    """
    assert {topic: shown(cluster)[topic] for topic in TOPICS} == wanted
    assert {str(cluster.topics.describe(topic).name) for topic in SCHEMAS}
    write(cluster, "both", 6, {"numbers": table("numbers", 0, 1)})  # a version that is committed is skipped
    write(cluster, "both", 7, {"numbers": table("numbers", 500, 2)})
    write(cluster, "older", 7, {OLDER: table(OLDER, 500, 2)})
    cluster.sweep()
    after = shown(cluster)
    for topic, more in (("numbers", 2), (OLDER, 2), ("words", 0), ("plain", 0)):
        assert len(after[topic]) == len(wanted[topic]) + more
        assert all(row in after[topic] for row in wanted[topic])


def test_a_cluster_of_an_earlier_version_is_read_swept_and_written_on(made: Path, tmp_path: Path) -> None:
    folder = unpacked(made, tmp_path)
    moved(f"file://{folder}", expected(made)["ledgers"], f"file://{folder}/ledgers")
    with connect(f"file://{folder}") as cluster:
        for one in expected(made)["open"]:
            assert one in {txn.id for txn in cluster.transactions.list()}
            cluster.transactions.abort(one)
        lags = {topic: cluster.subscriptions.describe(topic, "reader").lag.rows for topic in expected(made)["lags"]}
        assert lags == expected(made)["lags"]
        check_continues(cluster, expected(made)["rows"])
        for topic, lag in lags.items():
            with cluster.consumer(topic, "reader") as consumer:
                assert len(list(consumer.messages(timeout=0))) >= lag


def test_a_backup_of_an_earlier_version_is_restored(made: Path, tmp_path: Path) -> None:
    folder = unpacked(made, tmp_path)
    restored = restore(made / "backup.gz", f"file://{tmp_path}/again", ledgers=f"file://{folder}/ledgers")
    assert restored.number > 0
    with connect(f"file://{tmp_path}/again") as cluster:
        check_continues(cluster, expected(made)["rows"])
        (lost,) = cluster.client.cluster.restored
        marked = strides.ERA if made.parent.name in ("v1", "v2") else strides.MARKED_STRIDE
        assert (lost.before, lost.in_stream) == (strides.STRIDE, marked), "its marker-based logs continue where its records say"


def test_records_of_an_earlier_version_are_of_known_kinds(made: Path) -> None:
    """This version can parse each record of an earlier version. The record has the same content after it is written again."""
    for one in dumped(made):
        found = kind_of(one["path"])
        assert found is not None
        kind, key = found
        assert key.partition == one["partition"]
        record = kind.from_bytes(one["value"].encode())
        assert json.loads(record.to_bytes()) == json.loads(one["value"])
    assert backup_file.read(made / "backup.gz").records


def dumped(made: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress((made / "records.json.gz").read_bytes()))
    assert len(found) > 30
    return found


def test_a_cluster_of_an_earlier_version_is_read_on_zookeeper(made: Path, tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    """The records of the earlier version are copied into a chroot, and the ledger root is moved. All rows can then be read."""
    folder = unpacked(made, tmp_path)
    url = f"zk://{zookeeper.hosts}/{made.parent.name}-{made.name}"
    root = f"file://{(folder / 'ledgers').rename(tmp_path / 'root')}"
    sequences: dict[str, int] = {}
    with open_store(url) as store:
        puts = []
        for one in dumped(made):
            value = one["value"].encode()
            if one["path"] == "/cluster":
                value = json.dumps({**json.loads(value), "ledgers": root}).encode()
            puts.append(Put(Key(one["path"], one["partition"]), value, indexes=tuple(IndexEntry(*i) for i in one["indexes"])))
            head, dash, number = one["path"].rpartition("-")
            if dash and len(number) == 20 and number.isdigit():
                sequences[head] = max(sequences.get(head, 0), int(number))
        assert sequences
        for some in in_groups(puts, 50):
            store.write(*some)
    mark = tmp_path / "root" / MARK
    identity = json.loads(mark.read_bytes())["cluster"]
    # the mark must not name a folder, because the cluster is now in another store
    mark.write_text(json.dumps({"cluster": identity}))
    with connect(url) as cluster:
        assert {topic: shown(cluster)[topic] for topic in TOPICS} == expected(made)["rows"]


def test_the_data_of_a_zookeeper_server_of_an_earlier_version_is_read_swept_and_written_on(made: Path, tmp_path: Path) -> None:
    """A server starts with the data of the earlier server, on another port. So its cluster must first take over the ledger root."""
    wanted = json.loads((made / "zookeeper.json").read_text())
    with tarfile.open(made / "zookeeper.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    with ZooKeeperServer(tmp_path) as server:
        url = f"zk://{server.hosts}{CHROOT}"
        moved(url, wanted["ledgers"], f"file://{tmp_path}/root")
        take_over(url)
        with connect(url) as cluster:
            for one in wanted["open"]:
                cluster.transactions.abort(one)
            assert {t: cluster.subscriptions.describe(t, "reader").lag.rows for t in wanted["lags"]} == wanted["lags"]
            assert all_shown(cluster) == wanted["rows"]
            write(cluster, "moved", 1, {BEFORE: table(BEFORE, 900, 2)})  # a version that is committed is skipped
            write(cluster, "moved", 2, {BEFORE: table(BEFORE, 7, 1)})
            assert len(all_shown(cluster)[MIGRATED]) == len(wanted["rows"][MIGRATED]) + 1
            check_continues(cluster, {topic: wanted["rows"][topic] for topic in TOPICS})
