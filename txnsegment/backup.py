"""Backups of a cluster's metadata: taken by `Cluster.backup`, restored by `restore` (docs/operations.md, Backup)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from metadata.backup import backup_file
from metadata.backup.backup import BackupReader
from metadata.backup.restore import Restored
from metadata.backup.restore import restore as restore_backup
from metadata.cluster.cluster import Cluster


@dataclass(frozen=True)
class BackupDescription:
    """A backup that was written. `number`: everything of the log up to there is in it, nothing above. `bytes`: of the file."""

    file: str
    number: int
    taken_ms: int
    topics: int
    records: int
    bytes: int
    ledgers: str
    good_for_ms: int
    """How long at least all files that it names are kept: the cluster's grace period."""


def backup(cluster: Cluster, file: Path, patience: timedelta | float | None) -> BackupDescription:
    """See `Cluster.backup`."""
    backup_file.check_new(file)
    seconds = patience.total_seconds() if isinstance(patience, timedelta) else patience
    taken = BackupReader(cluster).take(seconds)
    size = backup_file.write(file, taken)
    heading = taken.heading
    return BackupDescription(
        file=str(file),
        number=heading.number,
        taken_ms=heading.taken_ms,
        topics=heading.topics,
        records=heading.records,
        bytes=size,
        ledgers=heading.ledgers,
        good_for_ms=heading.settings.grace_period_ms,
    )


def restore(file: str | Path, service_url: str | None = None, *, ledgers: str | None = None) -> Restored:
    """Make the cluster of a backup in an empty store: a new folder (`file:///path`) or chroot (`zk://h:p/chroot`), of any backend.

    It takes over the ledger root that the backup names, or the one to which that was moved (`ledgers`, a URI): the old cluster can
    be used no more. A restore that was killed is finished by running it again; until then the store refuses to be used.
    Raises BackupDamaged, RestoreRefused (the store is not empty, the root is another cluster's, files of it are missing),
    ConfigurationError, StorageError, Unavailable.
    """
    return restore_backup(backup_file.read(Path(file)), service_url, ledgers=ledgers)
