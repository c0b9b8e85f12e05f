"""A ledger root belongs to one cluster, and the orphan sweep deletes only files that this cluster made."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from conformance.simulator.store.clock import SimulatedClock
from ledgers.disk import LocalDisk
from ledgers.storage import LedgerStorage
from metadata.client.passes import delete_orphans
from metadata.cluster.cluster import open_cluster, read_cluster_record
from metadata.common.clock import SystemClock
from metadata.common.errors import ConfigurationError, StorageError, Unavailable
from metadata.records import paths
from metadata.records.cluster_records import Settings
from metadata.records.paths import Key
from metadata.store import open_store
from metadata.store.contract import MetadataStore, Record

EAGER = Settings(txn_timeout_ms=1, max_txn_timeout_ms=1, deadline_allowance_ms=0, orphan_age_ms=4, grace_period_ms=1)


def old(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    os.utime(path, (1, 1))
    return path


def test_a_new_cluster_refuses_a_root_that_is_in_use(tmp_path: Path) -> None:
    old(tmp_path / "photos" / "holiday.jpg")
    with pytest.raises(ConfigurationError, match="is not empty"):
        open_cluster(f"file://{tmp_path}/a", ledgers=f"file://{tmp_path}/photos")


def test_two_clusters_cannot_share_a_root(tmp_path: Path) -> None:
    open_cluster(f"file://{tmp_path}/a", ledgers=f"file://{tmp_path}/ledgers").close()
    with pytest.raises(ConfigurationError, match="is not empty"):
        open_cluster(f"file://{tmp_path}/b", ledgers=f"file://{tmp_path}/ledgers")


def test_a_root_with_another_volume_mounted_over_it_is_refused(tmp_path: Path) -> None:
    open_cluster(f"file://{tmp_path}/a").close()
    open_cluster(f"file://{tmp_path}/b").close()
    (tmp_path / "a" / "ledgers" / "cluster.json").write_bytes((tmp_path / "b" / "ledgers" / "cluster.json").read_bytes())
    with pytest.raises(ConfigurationError, match="belongs to another cluster"):
        open_cluster(f"file://{tmp_path}/a")


def test_the_orphan_sweep_keeps_foreign_files(tmp_path: Path) -> None:
    cluster = open_cluster(f"file://{tmp_path}/a", settings=EAGER)
    root = tmp_path / "a" / "ledgers"
    ours = [
        old(root / "public/default/t/0000-ffff-0/0123.parquet"),
        old(root / "public/default/t/0000-ffff-0/.0123.parquet.tmp"),
        old(root / "manifests/0_1-ab.json"),
    ]
    theirs = [old(root / "holiday.jpg"), old(root / "notes/a.parquet"), old(root / "public/default/t/0000-ffff-0/readme.txt")]
    swept = sum(delete_orphans(cluster).files for _ in range(100))  # the manifest is deleted after the grace period
    assert swept == len(ours)
    assert not any(p.exists() for p in ours)
    assert all(p.exists() for p in theirs)
    assert (root / "cluster.json").exists()
    cluster.close()


def test_an_empty_mount_point_is_not_adopted(tmp_path: Path) -> None:
    """The volume of the ledgers is not mounted, so its mount point is an empty folder. The cluster refuses to open there."""
    url, ledgers = f"file://{tmp_path}/a", tmp_path / "a" / "ledgers"
    open_cluster(url).close()
    ledgers.rename(tmp_path / "volume")
    with pytest.raises(StorageError, match="mounted"):
        open_cluster(url)
    ledgers.mkdir()
    with pytest.raises(ConfigurationError, match="mounted") as refused:
        open_cluster(url)
    assert "cluster.json" in str(refused.value)
    assert not list(ledgers.iterdir())
    ledgers.rmdir()
    (tmp_path / "volume").rename(ledgers)
    open_cluster(url).close()


def test_a_bootstrap_stopped_after_its_mark_is_finished_by_the_next_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, mark = f"file://{tmp_path}/a", tmp_path / "a" / "ledgers" / "cluster.json"
    put = MetadataStore.put

    def dies(store: MetadataStore, key: Key, *args: Any, **kwargs: Any) -> Record:
        if key == paths.CLUSTER:
            raise Unavailable("The disk was full.")
        return put(store, key, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(MetadataStore, "put", dies)
        with pytest.raises(Unavailable):
            open_cluster(url)
    left = mark.read_bytes()
    with pytest.raises(ConfigurationError, match="is not empty"):  # another cluster does not take over the root
        open_cluster(f"file://{tmp_path}/b", ledgers=f"file://{tmp_path}/a/ledgers")
    open_cluster(url).close()
    assert mark.read_bytes() == left
    open_cluster(url).close()


def test_founders_of_one_cluster_all_succeed(tmp_path: Path) -> None:
    url, together = f"file://{tmp_path}/a", threading.Barrier(6)

    def found(_: int) -> str:
        together.wait()
        cluster = open_cluster(url)
        try:
            return read_cluster_record(cluster.store.view().get(paths.CLUSTER) or pytest.fail("no record"), url).id
        finally:
            cluster.close()

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(found, range(6)))) == 1


def test_a_founder_with_a_slow_disk_blocks_no_other_founder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url, sync = f"file://{tmp_path}/a", LocalDisk.sync
    writing, written = threading.Event(), threading.Event()

    def slow(disk: LocalDisk, path: Path) -> None:
        if path.name.startswith(".cluster.json.") and not writing.is_set():
            writing.set()
            assert written.wait(60)
        sync(disk, path)

    monkeypatch.setattr(LocalDisk, "sync", slow)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: open_cluster(url).close())
        assert writing.wait(60)
        try:
            open_cluster(url).close()
        finally:
            written.set()
        other.result()
    open_cluster(url).close()


@pytest.mark.parametrize("name", [".cluster.json.tmp", ".cluster.json.0123456789abcdef.tmp"])
def test_a_temporary_mark_of_a_dead_founder_blocks_no_other_founder(tmp_path: Path, name: str) -> None:
    left = tmp_path / "a" / "ledgers" / name
    left.parent.mkdir(parents=True)
    left.touch()
    open_cluster(f"file://{tmp_path}/a").close()
    open_cluster(f"file://{tmp_path}/a").close()


def test_a_root_that_takes_no_files_is_an_error_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(storage: LedgerStorage, rel: str, data: bytes) -> None:
        raise StorageError("no space left on the device")

    monkeypatch.setattr(LedgerStorage, "publish", full)
    clock = SimulatedClock()
    began = clock.now
    with pytest.raises(StorageError, match="no space left"):
        open_cluster(f"file://{tmp_path}/a", clock=clock)
    assert clock.now == began


def test_one_of_two_clusters_bootstrapped_on_one_root_is_refused(tmp_path: Path) -> None:
    together = threading.Barrier(2)

    def found(name: str) -> bool:
        together.wait()
        try:
            open_cluster(f"file://{tmp_path}/{name}", ledgers=f"file://{tmp_path}/ledgers").close()
        except ConfigurationError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(found, ("a", "b"))) == [False, True]


def test_the_mark_is_read_back_on_storage_that_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On an object store another cluster can overwrite the new mark at once. The opening process reads the mark back, and fails."""
    publish = LedgerStorage.publish

    def overwritten(storage: LedgerStorage, rel: str, data: bytes) -> None:
        publish(storage, rel, data)
        (tmp_path / "a" / "ledgers" / rel).write_text('{"cluster": "another"}')

    with monkeypatch.context() as patched:
        patched.setattr(LedgerStorage, "publish", overwritten)
        with pytest.raises(ConfigurationError, match="is not empty"):
            open_cluster(f"file://{tmp_path}/a")
    with open_store(f"file://{tmp_path}/a", clock=SystemClock()) as store:
        assert store.view().get(paths.CLUSTER) is None


@pytest.mark.parametrize("inner", ["x", "public/default/t", "link"])
def test_a_root_within_another_clusters_root_is_refused(tmp_path: Path, inner: str) -> None:
    open_cluster(f"file://{tmp_path}/a", ledgers=f"{tmp_path}/outer").close()
    (tmp_path / "beside").symlink_to(tmp_path / "outer")
    ledgers = tmp_path / ("beside/x" if inner == "link" else f"outer/{inner}")
    with pytest.raises(ConfigurationError, match="would lie in the ledger root"):
        open_cluster(f"file://{tmp_path}/b", ledgers=str(ledgers))
    with pytest.raises(ConfigurationError, match="would lie in the ledger root"):
        open_cluster(f"file://{ledgers}")  # this embedded cluster would lie inside the root of another cluster
    assert not list((tmp_path / "outer").rglob("*/cluster.json"))


def test_a_root_that_has_another_clusters_root_in_it_is_refused(tmp_path: Path) -> None:
    open_cluster(f"file://{tmp_path}/a", ledgers=f"{tmp_path}/outer/deep/inner").close()
    for outer in ("outer", "outer/deep"):
        with pytest.raises(ConfigurationError, match=r"lies the ledger root of another one: (deep/)?inner"):
            open_cluster(f"file://{tmp_path}/b", ledgers=f"{tmp_path}/{outer}")
    assert sorted(path.parent.name for path in tmp_path.rglob("cluster.json")) == ["inner"]


def test_adjacent_roots_are_accepted(tmp_path: Path) -> None:
    for name in ("a", "ab", "b"):
        open_cluster(f"file://{tmp_path}/{name}", ledgers=f"{tmp_path}/roots/{name}").close()
        open_cluster(f"file://{tmp_path}/{name}").close()
