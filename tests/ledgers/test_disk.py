"""All changes of local files go through `ledgers.disk`. The real disk makes them durable by fsync."""

from __future__ import annotations

import ast
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from ledgers.disk import LocalDisk

ROOT = Path(__file__).parents[2]
CHANGES = {
    *("fsync", "fdatasync", "link", "rename", "replace", "renames", "remove", "unlink", "rmdir", "mkdir", "makedirs", "truncate"),
    *("write_bytes", "write_text", "touch", "symlink", "symlink_to", "hardlink_to", "rmtree", "copyfile", "OSFile"),
}
ELSEWHERE = {
    ("metadata/common/metrics.py", "mkdir"): "the folder of prometheus_client, which nothing durable lies in",
    ("txnsegment/cli/topics.py", "write_text"): "a picture for people",
}
"""The calls that change local files without `ledgers.disk`, each with the reason why this is allowed."""


def test_every_change_of_local_files_goes_through_the_disk() -> None:
    found = set()
    for package in ("ledgers", "metadata", "txnsegment", "spark_txn_sink", "spark_txn_source"):
        for path in (ROOT / package).rglob("*.py"):
            calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
            methods = [call for call in calls if isinstance(call, ast.Attribute) and call.attr in CHANGES]
            found |= {(str(path.relative_to(ROOT)), call.attr) for call in methods if not _is_other(call)}
    found = {one for one in found if one[0] != "ledgers/disk.py"}
    assert found == set(ELSEWHERE)


def _is_other(called: ast.Attribute) -> bool:
    """Return whether the call changes no local file directly. Such a call is a method of a disk or a storage, or it is `replace` or
    `remove` of a text or list.
    """
    of = ast.unparse(called.value).split("(")[0]
    names = ("disk", "self._disk", "storage", "self.storage", "self._storage", "self._files", "on")
    return of in names or (called.attr in ("replace", "remove") and of != "os")


def test_the_real_disk_syncs_the_very_file_and_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    disk, file = LocalDisk(), tmp_path / "one"
    with disk.create(file, mode=0o600) as out:
        out.write(b"one")
    disk.sync(file)
    disk.sync_folder(tmp_path)
    assert synced == [file.stat().st_ino, tmp_path.stat().st_ino]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_new_file_of_the_real_disk_replaces_nothing(tmp_path: Path) -> None:
    disk = LocalDisk()
    with disk.create(tmp_path / "one") as out:
        out.write(b"one")
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "one")
    disk.create(tmp_path / "two").close()
    with pytest.raises(FileExistsError):
        disk.link(tmp_path / "two", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"one"


def test_syncs_run_together_and_the_first_failure_is_raised_after_all_have_ended() -> None:
    meet, ended = threading.Barrier(3, timeout=60), []

    def sync(name: str, error: OSError | None = None) -> None:
        meet.wait()  # raises BrokenBarrierError unless all three calls run at the same time
        ended.append(name)
        if error is not None:
            raise error

    with pytest.raises(OSError, match="full"):
        LocalDisk().together([partial(sync, "a"), partial(sync, "b", OSError("full")), partial(sync, "c")])
    assert sorted(ended) == ["a", "b", "c"]
    LocalDisk().together([])


@pytest.mark.parametrize("most", [0, 1], ids=["no thread can be started", "only one thread can be started"])
def test_syncs_need_no_further_threads(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A process whose main thread has ended, or that has as many threads as it may have, still makes files durable."""
    start, started, ended = threading.Thread.start, [], set()

    def limited(self: threading.Thread) -> None:
        if len(started) == most:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", limited)
    LocalDisk().together([partial(ended.add, name) for name in "abc"])
    assert ended == {*"abc"}
    with pytest.raises(OSError, match="full"):
        LocalDisk().together([partial(ended.add, "d"), _full])


def _full() -> None:
    raise OSError("full")
