"""Faults that take effect only after a power cut: a file, a folder or a name is used before it is durable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.mutants.planting import fault
from ledgers.disk import Disk
from ledgers.storage import LedgerStorage

Real = Callable[..., Any]

_FILES = "ledgers.local_files"
_TESTS = "tests/conformance/power/test_power.py::"
_PUBLISHED = f"{_TESTS}test_a_power_cut_after_a_decision_loses_no_file"
_RESTORED = f"{_TESTS}test_a_restore_that_was_killed_and_run_again_outlives_a_power_cut"


class _Careless:
    """A disk on which one method, `without`, does nothing."""

    def __init__(self, real: Disk, without: str) -> None:
        self._real, self._without = real, without

    def __getattr__(self, name: str) -> Any:
        return _nothing if name == self._without else getattr(self._real, name)


def _nothing(path: Path) -> None:
    return None


@fault(
    "8.5",
    "A file's content is durable before the file gets the name that records refer to.",
    at=f"{_FILES}:publish_files",
    by=_PUBLISHED,
)
def published_file_not_synced(real: Real, disk: Disk, files: Any) -> Any:
    return real(_Careless(disk, "sync"), files)


@fault("8.5", "A file's name is durable before a record refers to it.", at=f"{_FILES}:publish_files", by=_PUBLISHED)
def published_name_not_synced(real: Real, disk: Disk, files: Any) -> Any:
    return real(_Careless(disk, "sync_folder"), files)


@fault(
    "8.5",
    "A file that replaces another one is durable under its name before a record relies on it.",
    at=f"{_FILES}:LocalFiles.replace",
    by=_RESTORED,
)
def replaced_name_not_synced(real: Real, self: Any, rel: str, data: bytes) -> None:
    self._sync_parents((self.root / rel).parent)
    disk, self._disk = self._disk, _Careless(self._disk, "sync_folder")
    try:
        real(self, rel, data)
    finally:
        self._disk = disk


@fault(
    "8.5",
    "A cluster's folder is durable before anything is written in it.",
    at=f"{_FILES}:make_folders",
    by=f"{_TESTS}test_an_embedded_cluster_outlives_a_power_cut_once_a_commit_has_returned",
)
def new_folder_not_synced(real: Real, disk: Disk, *rest: Any) -> Any:
    return real(_Careless(disk, "sync_folder"), *rest)


@fault(
    "issue 13, 9",
    "A restore that is run again rewrites its file of records, since the existing one may not be durable.",
    at="ledgers.storage:LedgerStorage.replace",
    within="metadata.backup.restore:Restoration._publish",
    by=_RESTORED,
)
def restore_counts_on_a_file_that_it_finds(real: Real, self: LedgerStorage, rel: str, data: bytes) -> None:
    if self.info(rel) is None:
        real(self, rel, data)


@fault(
    "issue 13, 9",
    "A temporary file left by a power failure does not block a later writer.",
    at=f"{_FILES}:temporary_of",
    by=f"{_TESTS}test_a_backup_outlives_a_power_cut_and_can_be_written_again_after_one",
)
def temporary_name_used_twice(real: Real, path: Path) -> Path:
    return path.with_name(f".{path.name}.x.tmp")


@fault(
    "8.5",
    "The disk of a real cluster asks the operating system to make files and folders durable.",
    at="ledgers.disk:LocalDisk.sync",
    by="tests/ledgers/test_disk.py::test_the_real_disk_syncs_the_very_file_and_folder",
)
def real_disk_syncs_nothing(real: Real, self: Any, path: Path) -> None:
    return None
