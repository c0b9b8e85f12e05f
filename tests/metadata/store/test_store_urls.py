"""Service URLs. Each mistake raises an error with its own clear text."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from metadata.common.clock import SystemClock
from metadata.common.errors import ConfigurationError, Unavailable
from metadata.records.paths import Key
from metadata.store import folder_of, open_store
from metadata.store.memory import MemoryStore
from metadata.store.sqlite import SqliteStore
from metadata.store.zookeeper import hosts_and_root


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "not a service URL"),
        ("/just/a/path", "not a service URL"),
        ("file:/one/slash", "not a service URL"),
        ("oxia://h:1", "oxia"),
        ("memory://", "needs a name"),
        ("file://relative/path", "folder of this machine"),
        ("file://", "folder of this machine"),
        ("file:///a?b=c", "folder of this machine"),
        ("file:///a%00b", "folder of this machine"),
        ("zk://", "does not name ZooKeeper"),
        ("zk://host", "does not name ZooKeeper"),
        ("zk://host:99999/a", "does not name ZooKeeper"),
        ("zk://host:1,/a", "does not name ZooKeeper"),
        ("zk://host:1//a", "does not name ZooKeeper"),
        ("zk://host:1/a?x=y", "does not name ZooKeeper"),
        ("zk://host:1/a/../b", "chroot"),
        ("zk://host:1/zookeeper", "chroot"),
    ],
)
def test_bad_urls(url: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        open_store(url)


@pytest.mark.parametrize("url", ["zk://user:secret@host:1/a", "file://user:secret@host/a", "oxia://user:secret@h"])
def test_credentials_in_the_url_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError, match="environment") as caught:
        open_store(url)
    assert "secret" not in str(caught.value)


def test_good_urls(tmp_path: Path) -> None:
    assert hosts_and_root("zk://h1:2181,[::1]:2182/a/b") == ("h1:2181,[::1]:2182", "/a/b")
    assert hosts_and_root("zk://h1:2181") == ("h1:2181", "")
    assert hosts_and_root("zk://h1:2181/") == ("h1:2181", "")
    assert folder_of("file:///a%20b/c@d") == "/a b/c@d"
    with open_store(f"file://{tmp_path}/a%20b") as store:
        assert isinstance(store, SqliteStore)
    assert (tmp_path / "a b" / "metadata.db").exists()


def test_a_memory_store_is_shared_by_its_name() -> None:
    name = f"memory://{uuid.uuid4().hex}"
    open_store(name).put(Key("/a", ""), b"x")
    assert open_store(name).view().get(Key("/a", "")) is not None
    assert MemoryStore().view().get(Key("/a", "")) is None


def test_another_scheme_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution on the Python path registers the scheme, as a distribution installed by pip does."""
    (tmp_path / "other_store.py").write_text(
        "from metadata.store.memory import MemoryStore\n"
        "def opened(url, *, clock, create):\n"
        "    return MemoryStore(url, clock=clock)\n"
    )
    info = tmp_path / "other_store-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-store\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[txnsegment.metadata_stores]\nother = other_store:opened\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(open_store("other://x", clock=SystemClock()), MemoryStore)


def test_a_closed_memory_store() -> None:
    store = MemoryStore()
    store.close()
    with pytest.raises(Unavailable, match="closed"):
        store.view()
