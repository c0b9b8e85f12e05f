"""A backup of one store is restored into a store of another kind: from SQLite to ZooKeeper and back. The backups are taken while
writers run, and the files are real.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from metadata.backup import backup_file
from metadata.common.errors import ConfigurationError, NotAllowed, OffsetOutOfRange, RestoreRefused
from metadata.instream import paths
from metadata.read.reading import LogSelection, Reading
from metadata.records import paths as common_paths
from metadata.records.names import persistent_name
from metadata.rules.strides import MARKED_STRIDE, RESERVE, STRIDE
from metadata.store.contract import skip
from txnsegment import Cluster, connect, restore
from txnsegment.rows import committed_rows

SCHEMA = StructType([StructField("n", LongType())])


def add(cluster: Cluster, version: int) -> None:
    """Commit one version of one application, with a row in both topics."""
    with cluster.begin(app="writer", version=version) as txn:
        for topic in ("a", "b"):
            txn.append(topic, pa.table({"n": [version]}))
        txn.commit()


def shown(cluster: Cluster, topic: str) -> list[int]:
    return sorted(row["n"] for row in committed_rows(cluster.client, topic, 100_000).rows)


@contextmanager
def writing(url: str, first: int) -> Iterator[list[int]]:
    """Commit one version after the other in a thread, beginning with `first`. Yield the growing list of committed versions."""
    stop, done = threading.Event(), list[int]()

    def run() -> None:
        with connect(url) as cluster:
            version = first
            while not stop.is_set():
                add(cluster, version)
                done.append(version)
                version += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while len(done) < 3:
            stop.wait(0.001)
        yield done
    finally:
        stop.set()
        thread.join()


def test_from_sqlite_to_zookeeper_and_back_while_writers_run(tmp_path: Path, zk_url: str) -> None:
    urls = [f"file://{tmp_path}/one", zk_url, f"file://{tmp_path}/two"]
    with connect(urls[0]) as cluster:
        for topic in ("a", "b"):
            cluster.topics.create(topic, segments=2, schema=SCHEMA)
        cluster.subscriptions.create("a", "s")
    following = 1
    for i, (source, target) in enumerate(itertools.pairwise(urls)):
        files = []
        with writing(source, following) as done, connect(source) as cluster:
            for n in range(3):
                sure = len(done)
                made = cluster.backup(tmp_path / f"{i}-{n}.gz")
                files.append((Path(made.file), done[:sure][-1], made))
                if n == 0:
                    cluster.sweep()
        file, sure, made = files[-1]
        restored = restore(file, target)
        assert restored.next_number == (i + 1) * STRIDE
        with connect(target) as cluster:
            kept = shown(cluster, "a")
            assert kept == shown(cluster, "b") == list(range(1, kept[-1] + 1)), (
                "the backup has whole transactions, and none is missing in between"
            )
            assert sure <= kept[-1] <= done[-1]
            assert cluster.client.buffer.log.list(cluster.client.cluster.store.view()).end == made.number
            with cluster.begin(app="writer", version=kept[-1]) as txn:
                txn.append("a", pa.table({"n": [0]}))
                assert txn.commit().skipped
            add(cluster, kept[-1] + 1)
            following = kept[-1] + 2
            cluster.sweep()
            assert shown(cluster, "a") == [*kept, kept[-1] + 1]
            assert cluster.subscriptions.describe("a", "s").lag.rows == len(kept) + 1
        with pytest.raises(ConfigurationError, match="belongs to another cluster"):
            connect(source)
        with pytest.raises(RestoreRefused, match="is not empty"):
            restore(file, target)


def test_persistent_topics_from_sqlite_to_zookeeper_and_back(tmp_path: Path, zk_url: str) -> None:
    """A version is committed after the backup, so the restored cluster does not have it. When the version is committed there, its
    row gets a position above all positions that the cluster of the backup has used.
    """
    urls, x = [f"file://{tmp_path}/one", zk_url, f"file://{tmp_path}/two"], "persistent://public/default/x"

    def write(cluster: Cluster, version: int) -> None:
        with cluster.begin(app="writer", version=version) as txn:
            txn.append(x, pa.table({"n": [version]}))
            txn.commit()

    with connect(urls[0]) as cluster:
        cluster.topics.create(x, schema=SCHEMA)
        cluster.subscriptions.create(x, "s")
        write(cluster, 0)
    for i, (source, target) in enumerate(itertools.pairwise(urls)):
        with connect(source) as cluster:
            made = cluster.backup(tmp_path / f"{i}.gz")
            write(cluster, i + 1)
        restored = restore(made.file, target)
        assert made.topics == 1
        with connect(target) as cluster:
            assert shown(cluster, x) == list(range(i + 1))
            write(cluster, i + 1)
            assert shown(cluster, x) == list(range(i + 2))
            position = cluster.client.instream.buffer.read(persistent_name(x)).max_read_position()
            assert position is not None
            assert position[0] >= (i + 1) * MARKED_STRIDE
            assert restored.next_number == (i + 1) * STRIDE
            cluster.sweep()
            assert cluster.subscriptions.describe(x, "s").lag.rows == i + 2


def test_a_restore_moves_the_root_with_an_option_and_else_requires_the_old_root(tmp_path: Path, zk_url: str) -> None:
    with connect(zk_url, ledgers=f"file://{tmp_path}/ledgers") as cluster:
        cluster.topics.create("a", schema=SCHEMA)
        cluster.topics.create("b", schema=SCHEMA)
        add(cluster, 1)
        made = cluster.backup(tmp_path / "b.gz")
    (tmp_path / "ledgers").rename(tmp_path / "moved")
    with pytest.raises(RestoreRefused, match=r"has no cluster\.json"):
        restore(made.file, f"file://{tmp_path}/new")
    restore(made.file, f"file://{tmp_path}/new", ledgers=f"file://{tmp_path}/moved")
    with connect(f"file://{tmp_path}/new") as cluster:
        assert cluster.ledgers == f"file://{tmp_path}/moved"
        assert shown(cluster, "a") == [1]


def test_an_old_clusters_sweeper_deletes_nothing_once_its_root_was_taken_over(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}/old") as old:
        old.topics.create("a", schema=SCHEMA)
        old.topics.create("b", schema=SCHEMA)
        add(old, 1)
        made = old.backup(tmp_path / "b.gz")
        restore(made.file, f"file://{tmp_path}/new")
        with pytest.raises(ConfigurationError, match="belongs to another cluster"):
            old.sweep()


def test_a_folder_opened_without_its_store_blocks_no_restore(tmp_path: Path) -> None:
    """The metadata store was deleted. A restarted service opens the folder and gets an error. A later restore succeeds."""
    url = f"file://{tmp_path}/c"
    with connect(url) as cluster:
        for topic in ("a", "b"):
            cluster.topics.create(topic, schema="n bigint")
        add(cluster, 1)
        cluster.backup(tmp_path / "backup")
    for file in (tmp_path / "c").glob("metadata.*"):
        file.unlink()
    with pytest.raises(
        ConfigurationError, match=rf"is not empty.*If the metadata store .* txnsegment restore FILE --service-url {url}"
    ):
        connect(url)
    restore(tmp_path / "backup", url)
    with connect(url) as cluster:
        assert shown(cluster, "a") == [1]


def test_half_a_restore_is_no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file://{tmp_path}/new"
    with connect(f"file://{tmp_path}/old") as cluster:
        cluster.topics.create("a", schema=SCHEMA)
        made = cluster.backup(tmp_path / "b.gz")

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("metadata.backup.restore.Restoration._take_over", dies)
        with pytest.raises(KeyboardInterrupt):
            restore(made.file, url)
    with pytest.raises(RestoreRefused, match=f"not finished.*{backup_file.read(Path(made.file)).sha256[:12]}"):
        connect(url)
    assert restore(made.file, url).records > 0
    with connect(url) as cluster:
        assert [topic.name for topic in cluster.topics.list()] == ["topic://public/default/a"]


PERSISTENT = "persistent://public/default/x"


def put(cluster: Cluster, topic: str, n: int) -> None:
    with cluster.begin() as txn:
        txn.append(topic, pa.table({"n": [n]}))
        txn.commit()


def test_a_migration_after_the_backup_of_a_restored_cluster_leaves_no_number_to_be_given_again(tmp_path: Path) -> None:
    """A persistent topic of a restored cluster has high numbers, and its migration adds them to the cluster's log. A stream has
    read beyond them when the cluster is lost. In the cluster restored from a backup from before the migration, its offset is an
    error: otherwise the stream would skip the rows with lower numbers.
    """
    urls = [f"file://{tmp_path}/{name}" for name in ("one", "two", "three")]
    with connect(urls[0]) as cluster:
        cluster.topics.create(PERSISTENT, schema=SCHEMA)
        cluster.topics.create("a", schema=SCHEMA)
        put(cluster, PERSISTENT, 1)
        put(cluster, "a", 1)
        first = cluster.backup(tmp_path / "first.gz")
    restore(first.file, urls[1])
    with connect(urls[1]) as cluster:
        put(cluster, "a", 2)
        second = cluster.backup(tmp_path / "second.gz")
        put(cluster, PERSISTENT, 2)
        cluster.topics.migrate(PERSISTENT, "x")
        put(cluster, "a", 3)
        offset = reading(cluster).cut
    restore(second.file, urls[2])
    with connect(urls[2]) as cluster:
        put(cluster, "a", 4)
        assert reading(cluster).cut > offset
        with pytest.raises(OffsetOutOfRange, match="is from before it was restored"):
            reading(cluster, offset)


def test_a_long_migration_on_zookeeper_after_a_backup_leaves_no_number_to_be_given_again(tmp_path: Path, zk_url: str) -> None:
    """On ZooKeeper a skip of more than 10,000 numbers opens an era of the log, in a cluster that was never restored, too."""
    with connect(zk_url, ledgers=f"file://{tmp_path}/ledgers") as cluster:
        cluster.topics.create(PERSISTENT, schema=SCHEMA)
        cluster.topics.create("a", schema=SCHEMA)
        put(cluster, "a", 1)
        made = cluster.backup(tmp_path / "backup.gz")
        skip(cluster.client.cluster.store, paths.log(persistent_name(PERSISTENT)), 20_000)
        put(cluster, PERSISTENT, 2)
        cluster.topics.migrate(PERSISTENT, "x")
        put(cluster, "a", 3)
        offset = reading(cluster).cut
    restore(made.file, f"file://{tmp_path}/again")
    with connect(f"file://{tmp_path}/again") as cluster:
        put(cluster, "a", 4)
        assert reading(cluster).cut > offset
        with pytest.raises(OffsetOutOfRange, match="is from before it was restored"):
            reading(cluster, offset)


def reading(cluster: Cluster, end: int | None = None) -> Reading:
    selection, buffer = LogSelection(("topic://public/default/a",)), cluster.client.buffer
    return buffer.read(selection) if end is None else buffer.read_to(selection, end)


def test_a_migration_that_could_leave_the_stride_of_the_log_is_refused(tmp_path: Path) -> None:
    with connect(f"file://{tmp_path}/one") as cluster:
        cluster.topics.create(PERSISTENT, schema=SCHEMA)
        put(cluster, PERSISTENT, 1)
        skip(cluster.client.cluster.store, common_paths.LOG, STRIDE - RESERVE)
        cluster.topics.create("a", schema=SCHEMA)
        put(cluster, "a", 1)
        with pytest.raises(NotAllowed, match=r"cannot be migrated: its rows take \d+ numbers"):
            cluster.topics.migrate(PERSISTENT, "x")
        put(cluster, PERSISTENT, 2)
        assert shown(cluster, PERSISTENT) == [1, 2], "the topic was not sealed"
        made = cluster.backup(tmp_path / "backup.gz")
    restore(made.file, f"file://{tmp_path}/two")
    with connect(f"file://{tmp_path}/two") as cluster:
        cluster.topics.migrate(PERSISTENT, "x")
        assert shown(cluster, "x") == [1, 2]
