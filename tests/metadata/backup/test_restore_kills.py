"""A restore is killed at each call to its store and its files, on SQLite and real files. A second restore then completes it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from conformance.harness.faulty_store import Call, FaultyStore
from conformance.simulator.store.faults import Crashed
from ledgers.storage import LedgerStorage
from metadata.backup import backup_file, in_stream
from metadata.backup import restore as restore_module
from metadata.backup.backup_file import Backup
from metadata.backup.restore import Restoration, Restored
from metadata.cluster.cluster import marked
from metadata.cluster.ledger_root import MARK
from metadata.common.clock import Clock, SystemClock
from metadata.common.errors import RestoreRefused
from metadata.records import paths
from metadata.records.records import Watermark
from metadata.store.sqlite import SqliteStore
from txnsegment import connect, restore
from txnsegment.rows import committed_rows

CALLS = ("open", "link", "unlink", "remove", "rename", "replace", "fsync", "mkdir")
"""The functions of `os` that change files. Both pathlib and the product call these."""


class Death:
    """A process that dies at its k-th call (from 0), before or after the call takes effect. No later call of the process takes
    effect, not even its cleanup.
    """

    def __init__(self, k: int, *, after: bool) -> None:
        self.k, self.after, self.calls, self.dead = k, after, 0, False

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.dead:
            raise Crashed
        at, self.calls = self.calls, self.calls + 1
        if at != self.k:
            return function(*args, **kwargs)
        self.dead = True
        if self.after:
            with suppress(Exception):  # an error of the call does not reach the dead process
                function(*args, **kwargs)
        raise Crashed


@contextmanager
def mortal_files(death: Death) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            before = getattr(os, name)

            def call(*args: Any, before: Callable[..., Any] = before, **kwargs: Any) -> Any:
                return death.call(before, *args, **kwargs)

            patch.setattr(os, name, call)
        yield


@pytest.fixture
def backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backup:
    """A backup of the cluster in `tmp_path/first`, which has topics of both models. The restore writes the log of the marker-based
    transactions to a file, as it does with a large log.
    """
    monkeypatch.setattr(in_stream, "INLINE_BYTES", 0)
    with connect(f"file://{tmp_path}/first") as cluster:
        cluster.topics.create("t", schema=StructType([StructField("n", LongType())]))
        cluster.topics.create("persistent://public/default/p", schema=StructType([StructField("n", LongType())]))
        for topic in ("t", "persistent://public/default/p"):
            with cluster.begin(app=f"writer of {topic}", version=0) as txn:
                txn.append(topic, pa.table({"n": [1, 2]}))
                txn.commit()
        cluster.client.sweep()
        cluster.backup(tmp_path / "backup.gz")
    found = backup_file.read(tmp_path / "backup.gz")
    assert any(b'"txnLog"' in kept.value for kept in found.records)
    return found


class Site:
    """A copy of the ledger root, and a folder for the stores into which the backup is restored."""

    def __init__(self, place: Path, backup: Backup) -> None:
        self.place, self.backup = place, backup
        shutil.copytree(place.parent / "first" / "ledgers", place / "ledgers")
        self.storage = LedgerStorage(f"file://{place}/ledgers")

    def restore(self, death: Death, store: str = "again") -> Restored:
        clock = SystemClock()

        def mortal(call: Call, go: Callable[[], Any]) -> Any:
            """Pass on a call. The process may die only at the calls `view` (which starts reads), `write` and `skip`."""
            return death.call(go) if call.kind in ("view", "write", "skip") else go()

        opened = FaultyStore(SqliteStore(str(self.place / store), clock=clock), mortal)
        with opened, mortal_files(death):
            return Restoration(self.backup, opened, f"file://{self.place}/{store}", self.storage, clock).run()

    def rows(self, store: str = "again") -> dict[str, list[int]]:
        with connect(f"file://{self.place}/{store}") as cluster:
            topics = ("t", "persistent://public/default/p")
            return {topic: [row["n"] for row in committed_rows(cluster.client, topic, 100).rows] for topic in topics}


def immortal() -> Death:
    return Death(-1, after=False)


ROWS = {"t": [1, 2], "persistent://public/default/p": [1, 2]}


@pytest.mark.parametrize("after", [False, True], ids=["before the call", "after the call"])
@pytest.mark.parametrize("deaths", [1, 2], ids=["once", "twice at the same call"])
def test_a_restore_killed_at_any_call_is_finished_by_running_it_again(
    tmp_path: Path, backup: Backup, after: bool, deaths: int
) -> None:
    k = 0
    while True:
        site = Site(tmp_path / f"at-{k}", backup)
        died = 0
        for _ in range(deaths):
            death = Death(k, after=after)
            try:
                site.restore(death)
            except Crashed:
                died += 1
        if not died:
            break
        site.restore(immortal())
        assert site.restore(immortal()).again, f"after a death at call {k} the repeated restore is complete"
        assert site.rows() == ROWS
        site.restore(immortal(), "third")  # the mark names the previous owners, too, so the root accepts a restore to a third store
        assert site.rows("third") == ROWS
        left = [path for path in leftovers(site) if not path.startswith((f".{MARK}.", "manifests/."))]
        assert not left, "no sweep would delete these files"
        shutil.rmtree(site.place)
        k += 1
    assert k >= 20


def leftovers(site: Site) -> Sequence[str]:
    return [file.path for file in site.storage.list() if file.path.endswith(".tmp")]


def test_a_mark_that_is_half_written_does_not_stop_a_restore(tmp_path: Path, backup: Backup) -> None:
    """A process of an earlier release died while it wrote the mark, and left the mark's temporary file. The restore succeeds."""
    site = Site(tmp_path / "site", backup)
    (site.place / "ledgers" / f".{MARK}.tmp").write_text('{"clus')
    site.restore(immortal())
    assert site.rows() == ROWS


def test_a_restore_over_a_root_without_its_mark_knows_the_previous_owner(tmp_path: Path, backup: Backup) -> None:
    """On storage that cannot replace a file in one step, a restore dies after it has deleted the old mark and before it writes the
    new mark. A second restore completes it.
    """
    site = Site(tmp_path / "site", backup)
    death = Death(-1, after=False)
    with pytest.MonkeyPatch.context() as patch:

        def dies(storage: LedgerStorage, rel: str, data: bytes) -> None:
            if rel == MARK:
                storage.delete(MARK)
                death.k = death.calls
            death.call(lambda: None)

        patch.setattr(LedgerStorage, "replace", dies)
        with pytest.raises(Crashed):
            site.restore(death)
    assert marked(site.storage) is None
    site.restore(immortal())
    site.restore(immortal(), "third")
    assert site.rows("third") == ROWS


def test_a_complete_restore_is_not_repeated_over_a_root_that_another_cluster_has_taken_over(tmp_path: Path, backup: Backup) -> None:
    site = Site(tmp_path / "site", backup)
    site.restore(immortal())
    site.restore(immortal(), "third")
    with pytest.raises(RestoreRefused, match="is not empty"):
        site.restore(immortal())


def test_one_of_two_concurrent_restores_over_a_root_is_refused(
    tmp_path: Path, backup: Backup, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path / "site", backup)
    wait = restore_module.wait_for_deletes

    def meanwhile(storage: LedgerStorage, clock: Clock) -> None:
        monkeypatch.setattr(restore_module, "wait_for_deletes", wait)
        site.restore(immortal(), "other")
        wait(storage, clock)

    monkeypatch.setattr(restore_module, "wait_for_deletes", meanwhile)
    with pytest.raises(RestoreRefused, match="taken over the ledger root"):
        site.restore(immortal())
    assert site.rows("other") == ROWS
    site.restore(immortal())  # this restore is the last one, so its store owns the root
    assert site.rows() == ROWS


def test_a_restored_cluster_that_was_written_to_is_a_store_in_use(tmp_path: Path, backup: Backup) -> None:
    site = Site(tmp_path / "site", backup)
    site.restore(immortal())
    with connect(f"file://{site.place}/again") as cluster, cluster.begin() as txn:
        txn.append("t", pa.table({"n": [3]}))
        txn.commit()
    with pytest.raises(RestoreRefused, match="is not empty"):
        site.restore(immortal())


# --- a backup that is older than what the ledgers still have ----------------------------------------------------------


def swept_away(backup: Backup, ledgers: Path, kind: str) -> str:
    """Delete a file that a sweep may have deleted since the backup. Return its path."""
    marks = [Watermark.from_bytes(kept.value) for kept in backup.records if paths.WATERMARKS.first <= kept.key.path]
    head = next(mark.snapshot for mark in marks if mark.snapshot is not None)
    gone = head if kind == "head" else next(ledgers.rglob("*.parquet")).relative_to(ledgers).as_posix()
    (ledgers / gone).unlink()
    return gone


@pytest.mark.parametrize("kind", ["head", "part"])
def test_a_backup_whose_files_were_swept_is_refused_by_name_and_leaves_nothing(tmp_path: Path, backup: Backup, kind: str) -> None:
    gone = swept_away(backup, tmp_path / "first" / "ledgers", kind)
    with pytest.raises(RestoreRefused) as refused:
        restore(tmp_path / "backup.gz", f"file://{tmp_path}/again")
    for said in (gone, "missing", backup.sha256[:12], f"up to number {backup.heading.number} of the log", "newer backup"):
        assert said in str(refused.value)
    assert not (tmp_path / "again").exists()


def test_a_refused_restore_creates_no_store(tmp_path: Path, backup: Backup) -> None:
    (tmp_path / "first" / "ledgers" / MARK).unlink()
    with pytest.raises(RestoreRefused, match=f"has no {MARK}"):
        restore(tmp_path / "backup.gz", f"file://{tmp_path}/again")
    assert not (tmp_path / "again").exists()
