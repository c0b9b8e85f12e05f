"""Publication of a file is atomic. Errors name the file and the next step. Folders of segments are safe and distinct."""

from __future__ import annotations

import errno
import pickle
import re
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.power.disk import SimulatedDisk
from ledgers.disk import LocalDisk, in_place_of_the_disk
from ledgers.errors import MissingFile, StorageError
from ledgers.io_errors import explain
from ledgers.storage import LedgerStorage, segment_folder


@pytest.fixture
def storage(tmp_path: Path) -> LedgerStorage:
    found = LedgerStorage(f"{tmp_path}/ledgers of mine")
    found.create()
    return found


def test_a_published_file_is_read_listed_and_deleted(storage: LedgerStorage) -> None:
    storage.publish("a/b/one.parquet", b"one")
    again = pickle.loads(pickle.dumps(storage))
    assert again.uri == storage.uri
    assert again.read("a/b/one.parquet") == b"one"
    size, mtime_ms = again.info("a/b/one.parquet") or (0, 0)
    assert [tuple(f) for f in again.list("a")] == [("a/b/one.parquet", size, mtime_ms)]
    again.delete("a/b/one.parquet")
    again.delete("a/b/one.parquet")
    assert again.info("a/b/one.parquet") is None
    assert list(again.list("nowhere")) == []
    with pytest.raises(MissingFile, match=r"one\.parquet"):
        again.read("a/b/one.parquet")


def test_a_published_file_is_never_overwritten(storage: LedgerStorage) -> None:
    storage.publish("x.avro", b"first")
    with pytest.raises(StorageError, match="exists already"):
        storage.publish("x.avro", b"second")
    assert storage.read("x.avro") == b"first"
    assert len(list(storage.list(""))) == 1


def test_a_discarded_output_leaves_nothing(storage: LedgerStorage) -> None:
    output = storage.open_output("a/x.parquet")
    output.stream.write(b"half")
    assert storage.info("a/x.parquet") is None
    (left,) = storage.list("")
    assert re.fullmatch(r"a/\.x\.parquet\.[0-9a-f]{32}\.tmp", left.path)
    output.discard()
    output.discard()
    assert list(storage.list("")) == []


def test_a_missing_root_is_an_error_and_is_not_recreated(storage: LedgerStorage, tmp_path: Path) -> None:
    (tmp_path / "ledgers of mine").rmdir()
    with pytest.raises(StorageError, match="mounted"):
        storage.publish("a/x.avro", b"x")
    with pytest.raises(StorageError, match="mounted"):
        list(storage.list(""))


def test_a_file_where_a_folder_should_be(storage: LedgerStorage) -> None:
    storage.publish("a", b"x")
    with pytest.raises(StorageError, match="not a folder"):
        storage.publish("a/b", b"x")


@pytest.mark.parametrize("rel", ["../x", "/etc/passwd", "a//b", "a/../../b", "", "a/\0"])
def test_paths_do_not_leave_the_root(storage: LedgerStorage, rel: str) -> None:
    with pytest.raises(StorageError, match="not a path"):
        storage.read(rel)


@pytest.mark.parametrize("uri", ["ftp://x/y", "relative/path", "file://host/path", "s3:///x", ""])
def test_uris_that_cannot_work(uri: str) -> None:
    with pytest.raises(StorageError, match="not a place"):
        LedgerStorage(uri)


def test_a_password_in_the_uri_is_refused_and_not_shown() -> None:
    with pytest.raises(StorageError) as caught:
        LedgerStorage("s3://key:geheim@bucket/x")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.EIO, "input/output"),
        (errno.EMFILE, "open files"),
    ],
)
def test_every_storage_error_has_advice(number: int, text: str) -> None:
    for error in (OSError(number, "x"), OSError(f"Error writing bytes. Detail: [errno {number}] x")):
        found = explain(error, "write", "file:///a/b")
        assert text in str(found)
        assert "file:///a/b" in str(found)
        assert found.advice


def test_the_spark_uri_of_a_file_resolves_to_the_file(storage: LedgerStorage, tmp_path: Path) -> None:
    assert storage.spark_uri("a/x.parquet") == f"file://{tmp_path}/ledgers of mine/a/x.parquet"
    for name in (
        storage.spark_uri("a/x.parquet"),
        f"{storage.uri}/a/x.parquet",
        f"file:{tmp_path}/ledgers%20of%20mine/a/x.parquet",
    ):
        assert storage.relative(name) == "a/x.parquet"
    with pytest.raises(StorageError, match="does not lie under"):
        storage.relative("file:///elsewhere/x.parquet")
    assert LedgerStorage("s3://bucket/p?region=eu").spark_uri("x") == "s3a://bucket/p/x"


@given(st.lists(st.tuples(*[st.text(min_size=1, max_size=12)] * 4), min_size=2, max_size=2, unique=True))
def test_folders_of_segments_are_safe_and_distinct(names: list[tuple[str, str, str, str]]) -> None:
    folders = [segment_folder(*name) for name in names]
    assert folders[0] != folders[1]
    for part in "/".join(folders).split("/"):
        assert part[0].isalnum()
        assert part.isascii()
        assert all(c.isalnum() or c in ".-" for c in part)


def test_plain_names_keep_their_folder() -> None:
    assert segment_folder("public", "default", "flights", "0000-3fff-0") == "public/default/flights/0000-3fff-0"


def test_a_folder_that_another_process_made_is_synced_into_its_parent_before_a_file_in_it_is_published(
    storage: LedgerStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process made the folders and may not have synced them, so a power failure could remove them. A process that publishes
    a file syncs the root and each folder on the path to the file, once.
    """
    root = tmp_path / "ledgers of mine"
    (root / "a" / "b" / "c").mkdir(parents=True)
    synced: list[Path] = []
    sync = LocalDisk.sync_folder
    monkeypatch.setattr(LocalDisk, "sync_folder", lambda disk, path: (synced.append(path), sync(disk, path))[1])
    output = storage.open_output("a/b/c/x.parquet")
    output.publish()
    assert {root, root / "a", root / "a" / "b", root / "a" / "b" / "c"} <= set(synced)
    synced.clear()
    storage.publish("a/b/c/y.parquet", b"y")
    assert root not in synced, "each folder is synced only once"
    synced.clear()
    LedgerStorage(str(root)).publish("a/b/c/z", b"z")
    assert synced == [root / "a" / "b" / "c"], "each task has a storage of its own, and the folders are synced already"
    shutil.rmtree(root / "a")
    synced.clear()
    storage.publish("a/b/c/z", b"z")
    assert {root, root / "a", root / "a" / "b"} <= set(synced), "folders that were made again are synced again"
    LedgerStorage(str(tmp_path)).publish("root/a/b/c/y", b"y")
    assert tmp_path in synced, "the root of another storage is below the root of this one"


@pytest.mark.parametrize("who", ["a retry", "another thread"])
def test_a_folder_counts_as_durable_only_after_all_of_its_parents(who: str) -> None:
    """A first write is stopped before the highest folder is durable: its sync fails, or takes long. A second write does not rely
    on the syncs of the first one. After a power cut the file of the second write is there.
    """
    root, there, go_on = Path("/root/ledgers"), threading.Event(), threading.Event()

    class Disk(SimulatedDisk):
        def sync_folder(self, path: Path) -> None:
            if path == root and not there.is_set():
                there.set()
                if who == "a retry":
                    raise OSError(errno.EIO, "input/output error", str(path))
                assert go_on.wait(60)
            super().sync_folder(path)

    disk = Disk(lambda: 0)
    disk.settle(root)
    with in_place_of_the_disk(disk):
        if who == "a retry":
            with pytest.raises(StorageError, match="input/output error"):
                LedgerStorage(str(root)).publish("tenant/topic/segment/first", b"rows")
        else:
            first = threading.Thread(target=LedgerStorage(str(root)).publish, args=("tenant/topic/segment/first", b"rows"))
            first.start()
            assert there.wait(60)
        LedgerStorage(str(root)).publish("tenant/topic/segment/second", b"rows")
        frozen = disk.freeze()
        if who == "another thread":
            go_on.set()
            first.join()
    after = SimulatedDisk.after_a_cut(frozen, lambda n: 0, lambda: 0)
    assert after.is_there(root / "tenant/topic/segment/second")


def test_a_root_that_another_process_made_is_synced_into_its_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "far" / "root"
    root.mkdir(parents=True)
    synced: list[Path] = []
    sync = LocalDisk.sync_folder
    monkeypatch.setattr(LocalDisk, "sync_folder", lambda disk, path: (synced.append(path), sync(disk, path))[1])
    LedgerStorage(str(root)).create()
    assert {root.parent, tmp_path} <= set(synced)
