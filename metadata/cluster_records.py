"""The records that a cluster has of itself: who it is, its settings, who sweeps and who leads, and what a restore has lost."""

from __future__ import annotations

from metadata.json_records import JsonRecord


class Settings(JsonRecord):
    """Settings of the cluster (protocol.md section 7, Defaults). All times in milliseconds."""

    txn_timeout_ms: int = 30_000
    max_txn_timeout_ms: int = 300_000
    deadline_allowance_ms: int = 5_000
    header_retention_ms: int = 900_000
    orphan_age_ms: int = 72 * 3_600_000
    grace_period_ms: int = 7 * 24 * 3_600_000
    fold_after_registrations: int = 64
    fold_after_ms: int = 10_000
    orphan_sweep_ms: int = 24 * 3_600_000
    txn_id_block: int = 100


class Turn(JsonRecord):
    """Which committer sweeps for all, and until when (store time). Advisory: it saves work, nothing depends on it.

    `began_ms`: when it was taken. `forgot_ms`, `orphans_ms`: when a committer last forgot headers, and last looked for orphans.
    """

    until_ms: int
    began_ms: int | None = None
    by: str | None = None
    forgot_ms: int | None = None
    orphans_ms: int | None = None


class Leader(JsonRecord):
    """Who leads, for as long as its session lasts. `token`: of this candidate alone; `owner`: for people."""

    owner: str
    token: str
    since_ms: int


FORMAT_VERSION = 1


class Founding(JsonRecord):
    """The id of the cluster that is being made, or was: the ledger root is marked with it before there is a cluster record."""

    id: str


class LostNumbers(JsonRecord):
    """What a restore lost of a log: the numbers with after < number < before. Some of them were given out and are never again."""

    after: int
    before: int


class Lost(LostNumbers):
    """The same of the cluster's log, and when."""

    restored_at_ms: int


class ClusterRecord(JsonRecord):
    """Made once: format version, the cluster's id, where the ledgers are (a URI), when it was created, its settings.

    `restored`: what its restores lost, ascending (a cluster may be restored from the backup of a restored one).
    """

    format_version: int = FORMAT_VERSION
    id: str
    ledgers: str
    created_at_ms: int
    settings: Settings = Settings()
    restored: tuple[Lost, ...] | None = None


class Restoring(JsonRecord):
    """A restore that is not complete: nobody may use the store. `backup`: the SHA-256 of its file; `id`: the cluster's new id;
    `by`: who is at it, the only one that may go on.
    """

    backup: str
    id: str
    ledgers: str
    began_ms: int
    by: str
