"""The ledger root belongs to one cluster, and the orphan sweep deletes nothing that cannot be its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from metadata.cluster import open_cluster
from metadata.errors import ConfigurationError
from metadata.orphans import sweep_orphans
from metadata.records import Settings


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


def test_the_orphan_sweep_leaves_what_is_not_ours(tmp_path: Path) -> None:
    cluster = open_cluster(f"file://{tmp_path}/a", settings=Settings(orphan_age_ms=1, grace_period_ms=1))
    root = tmp_path / "a" / "ledgers"
    ours = [
        old(root / "public/default/t/0000-ffff-0/0123.parquet"),
        old(root / "public/default/t/0000-ffff-0/.0123.parquet.tmp"),
        old(root / "manifests/0_1-ab.json"),
    ]
    theirs = [old(root / "holiday.jpg"), old(root / "notes/a.parquet"), old(root / "public/default/t/0000-ffff-0/readme.txt")]
    assert sweep_orphans(cluster).files == len(ours)
    assert not any(p.exists() for p in ours)
    assert all(p.exists() for p in theirs)
    assert (root / "cluster.json").exists()
    cluster.close()
