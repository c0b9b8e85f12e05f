"""Files of the metadata store are private to their owner under any umask. Parts follow the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from txnsegment import connect


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    try:
        yield request.param
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_database_and_backups_are_readable_by_their_owner_alone(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "deep" / "cluster"
    with connect(f"file://{folder}") as cluster:
        cluster.topics.create("t")
        made = {path.name for path in folder.iterdir() if path.is_file()}
        assert made >= {"metadata.db", "metadata.db-wal", "metadata.db-shm", "metadata.reserve-1"}
        assert {mode(path) for path in folder.iterdir() if path.is_file()} == {0o600}
        assert mode(folder) == 0o700
        cluster.backup(tmp_path / "backup")
    assert mode(tmp_path / "backup") == 0o600


def test_a_folder_that_exists_keeps_its_mode_and_parts_follow_the_umask(tmp_path: Path, umask: int) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    folder.chmod(0o755)
    with connect(f"file://{folder}") as cluster:
        cluster.client.cluster.storage.publish("public/default/t/0/x.parquet", b"x")
    assert mode(folder) == 0o755
    assert mode(folder / "metadata.db") == 0o600
    assert mode(folder / "ledgers" / "public/default/t/0/x.parquet") == 0o644 & ~umask
