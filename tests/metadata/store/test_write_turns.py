"""Many writers share one SQLite file. A waiting writer retries soon, so that no writer starves."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from metadata.records.paths import Key
from metadata.store.sqlite import SqliteStore


class ReleasingClock:
    """A clock whose first sleep ends the write transaction of another connection."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.other: sqlite3.Connection | None = None

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if self.other is not None:
            self.other.execute("ROLLBACK")
            self.other = None


def test_a_waiting_write_retries_every_millisecond(tmp_path: Path) -> None:
    clock = ReleasingClock()
    with SqliteStore(str(tmp_path), clock=clock, busy_seconds=5) as store:
        clock.other = sqlite3.connect(store.database.path, isolation_level=None)
        clock.other.execute("BEGIN IMMEDIATE")
        store.put(Key("/a", "p"), b"1")
        assert clock.slept == [0.001]
