"""The records and files of a cluster at rest are bounded by its current content, not by its history, on each store (protocol.md
section 8, invariant 14).
"""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from conformance.at_rest import GONE, SEGMENTS, SUCCESSOR_SEGMENTS, AtRest, ByHand, Left
from metadata.common.errors import Unavailable
from metadata.records import paths
from metadata.store.sqlite import SqliteStore
from metadata.store.sqlite_database import FILE


def check(left: Left) -> None:
    assert left.records <= left.allowed, left.kinds
    assert left.kinds["persistent"] == GONE + 2 * 2 * GONE + 1, (
        "tombstones; migrated names, each with its SEAL; the coordinator's log"
    )
    assert left.most_records <= left.allowed_meanwhile
    assert left.needed <= left.bytes <= 1.05 * left.needed, "committed data and snapshots, within 5 %"


def test_a_memory_store_at_rest_stays_within_its_bounds(tmp_path: Path) -> None:
    left = AtRest(f"memory://{uuid.uuid4().hex}", tmp_path, 1_000).run()
    check(left)
    assert left.most_records > 3 * left.allowed, "there was something to clean up"


def test_a_sqlite_store_at_rest_stays_within_its_bounds(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    check(AtRest(f"file://{folder}", tmp_path / "ledgers", 1_000).run())
    connection = sqlite3.connect(folder / FILE)
    rows = {t: connection.execute(f"SELECT COUNT(*) FROM {t}").fetchone()[0] for t in ("entries", "sessions", "sequences")}
    connection.close()
    segments = 2 * SEGMENTS + 2 * GONE + 2 * SUCCESSOR_SEGMENTS * GONE
    logs = 1 + 2 * 3 * GONE  # the coordinator's log, and a log for each persistent topic and for each of its subscriptions
    assert rows["entries"] == rows["sessions"] == 0
    assert rows["sequences"] <= 1 + 2 * segments + logs, "the log, and the events of each segment and cursor that there ever was"
    assert not any(file.stat().st_size for file in folder.glob("*-wal"))


def test_a_stuck_lock_is_an_error_though_time_passes_by_hand(tmp_path: Path) -> None:
    clock = ByHand()
    began = clock.now_ms()
    with SqliteStore(str(tmp_path), clock=clock, busy_seconds=0.1) as store, closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            store.put(paths.CLUSTER, b"{}")
    assert clock.now_ms() == began


def test_a_zookeeper_store_at_rest_stays_within_its_bounds(tmp_path: Path, zk_url: str) -> None:
    check(AtRest(zk_url, tmp_path, 300).run())
