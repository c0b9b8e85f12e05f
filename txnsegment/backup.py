"""Backups of a cluster's metadata. `Cluster.backup` writes a backup, and `restore` restores it (docs/operations.md, Backup)."""

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
    """A backup file that was written.

    `number`: the log number up to which the backup is complete. The backup holds nothing above it. `taken_ms`: the time of the
    backup, in ms since 1970. `bytes`: the size of the file. `ledgers`: the URI of the ledger root that the backup names.
    """

    file: str
    number: int
    taken_ms: int
    topics: int
    records: int
    bytes: int
    ledgers: str
    good_for_ms: int
    """The shortest time for which the backup can be restored. It is the cluster's grace period, because no ledger file that the
    backup names is deleted within this time.
    """


def backup(cluster: Cluster, file: Path, patience: timedelta | float | None) -> BackupDescription:
    """Write a backup into `file` (`Cluster.backup`)."""
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
    """Restore a cluster from a backup file into an empty store, of any backend.

    `service_url`: a new folder (`file:///path`) or chroot (`zk://h:p/chroot`); default: the environment variable
    TXNSEGMENT_SERVICE_URL. `ledgers`: the URI of the ledger root, if it was moved since the backup.

        restore("metadata.gz", "file:///data/restored")

    The restored cluster takes over the ledger root, so the old cluster cannot be opened any more. If a restore is killed, run it
    again to finish it. Until it is finished the store refuses every other use. Raises BackupDamaged, RestoreRefused (the store is
    not empty, the root belongs to another cluster, or ledger files are missing), ConfigurationError, StorageError, Unavailable.
    """
    return restore_backup(backup_file.read(Path(file)), service_url, ledgers=ledgers)
