"""The records that a cluster has of itself: who it is, its settings, who sweeps and who leads, and what a restore has lost."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from metadata.records.json_records import JsonRecord, Whole

MAX_MS: Final = 100 * 365 * 86_400_000
"""A hundred years: the longest of any time in the settings."""
Ms = Annotated[Whole, Field(ge=0, le=MAX_MS)]
Count = Annotated[Whole, Field(ge=1, le=1_000_000)]


class Settings(JsonRecord):
    """Settings of the cluster (protocol.md section 7, Defaults). All times in milliseconds. Whoever makes or reads them gets none
    with which the cluster could not work, or would lose files.
    """

    txn_timeout_ms: Annotated[Ms, Field(ge=1)] = 30_000
    max_txn_timeout_ms: Annotated[Ms, Field(ge=1)] = 300_000
    deadline_allowance_ms: Ms = 5_000
    header_retention_ms: Ms = 900_000
    orphan_age_ms: Annotated[Ms, Field(ge=1)] = 72 * 3_600_000
    grace_period_ms: Ms = 7 * 24 * 3_600_000
    fold_after_registrations: Count = 64
    fold_after_ms: Ms = 10_000
    orphan_sweep_ms: Annotated[Ms, Field(ge=1)] = 24 * 3_600_000
    txn_id_block: Count = 100

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.txn_timeout_ms > self.max_txn_timeout_ms:
            raise ValueError(f"txnTimeoutMs = {self.txn_timeout_ms} is above maxTxnTimeoutMs = {self.max_txn_timeout_ms}")
        if self.orphan_age_ms < 4 * (self.max_txn_timeout_ms + self.deadline_allowance_ms):
            raise ValueError(
                f"orphanAgeMs = {self.orphan_age_ms} is too close to maxTxnTimeoutMs = {self.max_txn_timeout_ms}, four times "
                "which, with the allowance, it must be at least: the orphan sweep could take files that a commit is about to name"
            )
        return self


class Turn(JsonRecord):
    """Which committer sweeps for all, and until when (store time). Advisory: it saves work, nothing depends on it.

    `began_ms`: when it was taken. `forgot_ms`, `orphans_ms`: when a committer last forgot headers, and last looked for orphans.
    """

    until_ms: Whole
    began_ms: Whole | None = None
    by: str | None = None
    forgot_ms: Whole | None = None
    orphans_ms: Whole | None = None


class Leader(JsonRecord):
    """Who leads, for as long as its session lasts. `token`: of this candidate alone; `owner`: for people."""

    owner: str
    token: str
    since_ms: Whole


FORMAT_VERSION = 2
"""Of clusters that this version makes. In 2 the ledger root's mark says which store owns it, and roots may be recorded as relative.

A cluster of format 1 stays one, so that older versions can use it beside this one, until `txnsegment init --take-over`.
"""


class Founding(JsonRecord):
    """The id of the cluster that is being made, or was: the ledger root is marked with it before there is a cluster record."""

    id: str


class LostNumbers(JsonRecord):
    """What a restore lost of a log: the numbers with after < number < before. Some of them were given out and are never again."""

    after: Whole
    before: Whole


class Lost(LostNumbers):
    """The same of the cluster's log, when, and from which backup (the SHA-256 of its lines; absent: of an older version). `was`:
    the id of the cluster that was backed up (absent: likewise).
    """

    restored_at_ms: Whole
    backup: str | None = None
    was: str | None = None


class ClusterRecord(JsonRecord):
    """Made once: format version, the cluster's id, where the ledgers are (a URI, or relative to the folder of the store), when it
    was created, its settings. `owner`: the nonce of the last take-over of the ledger root by this store
    (`metadata.cluster.ledger_root`).

    `restored`: what its restores lost, ascending (a cluster may be restored from the backup of a restored one).
    """

    format_version: Whole = FORMAT_VERSION
    id: str
    ledgers: str
    created_at_ms: Whole
    settings: Settings = Settings()
    restored: tuple[Lost, ...] | None = None
    owner: str | None = None


class Restoring(JsonRecord):
    """A restore that is not complete: nobody may use the store. `backup`: the SHA-256 of its file; `id`: the cluster's new id;
    `by`: who is at it, the only one that may go on. `was`: whose the ledger root was by its mark before the restore began, the last
    owner first.
    """

    backup: str
    id: str
    ledgers: str
    began_ms: Whole
    by: str
    was: tuple[str, ...] | None = None
