"""ZooKeeper servers start with the archive of their classes if there is one that fits, and otherwise without it."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conformance import class_archive
from conformance.harness.zookeeper_classes import make_archive
from conformance.zookeeper_server import ZooKeeperServer, archive_options, zookeeper_archive
from metadata.common.errors import ConfigurationError


def classes_from_an_archive(folder: Path) -> int:
    """Start and stop a server, and return how many of ZooKeeper's classes Java took from an archive."""
    log = folder / "classes.log"
    with ZooKeeperServer(folder, java_options=[f"-Xlog:class+load:file={log}"]) as server:
        assert server.mode() == "standalone"
    lines = [line for line in log.read_text().splitlines() if "org.apache.zookeeper." in line]
    assert len(lines) > 100
    return sum("shared objects file" in line for line in lines)


def test_a_server_takes_its_classes_from_the_archive(tmp_path: Path) -> None:
    make_archive()
    assert classes_from_an_archive(tmp_path) > 100


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment without archives."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    return tmp_path / "environment"


def test_a_server_without_an_archive_gets_no_options_and_makes_no_archive(environment: Path) -> None:
    assert archive_options() == []
    assert not environment.exists()


def test_a_server_does_not_use_the_archive_of_another_java(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_archive.keep(zookeeper_archive(), Path.touch)
    assert any("SharedArchiveFile" in option for option in archive_options())
    monkeypatch.setattr(class_archive, "_version", lambda java: "another version")
    assert archive_options() == []


def no_archive(made: Path) -> None:
    made.write_bytes(b"no archive" * 1000)


def test_a_server_starts_beside_a_file_that_is_no_archive(environment: Path, tmp_path: Path) -> None:
    class_archive.keep(zookeeper_archive(), no_archive)
    assert classes_from_an_archive(tmp_path) == 0


def write_whole(made: Path) -> None:
    made.write_bytes(b"whole")


def test_an_archive_that_could_not_be_made_leaves_no_file_and_is_made_next_time(tmp_path: Path) -> None:
    def fail(made: Path) -> None:
        made.write_bytes(b"the beginning")
        raise ConfigurationError("Java was killed.")

    archive = tmp_path / "some-classes" / "some.jsa"
    with pytest.raises(ConfigurationError, match="killed"):
        class_archive.keep(archive, fail)
    assert not archive.exists()
    class_archive.keep(archive, write_whole)
    assert archive.read_bytes() == b"whole"


def test_an_archive_that_many_need_at_the_same_time_is_made_once(tmp_path: Path) -> None:
    """A file lock separates threads as it separates processes, since each call opens the file of the lock."""
    archive = tmp_path / "some-classes" / "some.jsa"
    makers: list[Path] = []

    def make(made: Path) -> None:
        makers.append(made)
        made.write_bytes(b"whole" * 100_000)

    def kept(_: int) -> int:
        class_archive.keep(archive, make)
        return archive.stat().st_size

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(kept, range(8))) == {500_000}
    assert len(makers) == 1
    assert sorted(one.name for one in archive.parent.iterdir()) == ["lock", "some.jsa"]
