"""The records about the cluster itself: its identity, its settings, the turn to sweep, the leader, and restores."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from metadata.records.json_records import JsonRecord, Whole

MAX_MS: Final = 100 * 365 * 86_400_000
"""Maximum of each time in the settings: a hundred years."""
Ms = Annotated[Whole, Field(ge=0, le=MAX_MS)]
Count = Annotated[Whole, Field(ge=1, le=1_000_000)]


class Settings(JsonRecord):
    """Settings of the cluster (protocol.md section 7, Defaults). All times are in milliseconds. Validation refuses settings with
    which the cluster could not work or would lose files.
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
                "which, plus the allowance, is its minimum: the orphan sweep could delete files that a commit is about to name"
            )
        return self


class Turn(JsonRecord):
    """The turn of a committer to sweep the cluster. It ends at `until_ms` (store time). Turns only save work, because sweeps that
    run at the same time are safe.

    `began_ms`: the start of the turn. `forgot_ms`: when a committer last expired headers. `orphans_ms`: when a committer last swept
    orphans.
    """

    until_ms: Whole
    began_ms: Whole | None = None
    by: str | None = None
    forgot_ms: Whole | None = None
    orphans_ms: Whole | None = None


class Leader(JsonRecord):
    """The record of the leader. It exists as long as the leader's session. `token`: a text unique to the candidate. `owner`: the
    leader's name, shown to people.
    """

    owner: str
    token: str
    since_ms: Whole


FORMAT_VERSION = 3
"""Format version of new clusters. In format 2 the ledger root's mark names the owning store, and a ledger root may be recorded as a
relative path. In format 3 parts have statistics.

A cluster of an earlier format keeps its format until `txnsegment init --take-over`, so that older versions of txnsegment can still
use it.
"""


class Founding(JsonRecord):
    """The id of a new cluster. This record is written before the cluster record, because the ledger root must have the mark with
    this id before the cluster record exists.
    """

    id: str


class LostNumbers(JsonRecord):
    """A range of log numbers that a restore lost: after < number < before. Some of them were allocated. None of them is ever
    allocated again.
    """

    after: Whole
    before: Whole


class Lost(LostNumbers):
    """A lost range of the cluster's log, with the time of the restore. `backup`: the SHA-256 of the backup's lines. `was`: the id
    of the backed-up cluster. `in_stream`: the first number of all logs of the marker-based model after the restore; None: they
    began at `before`, too. All three are None if an older version of txnsegment restored the cluster.
    """

    restored_at_ms: Whole
    backup: str | None = None
    was: str | None = None
    in_stream: Whole | None = None


class ClusterRecord(JsonRecord):
    """The record of the cluster. `ledgers`: the ledger root, a URI or a path relative to the store's folder. `owner`: the nonce of
    this store's last take-over of the ledger root (`metadata.cluster.ledger_root`).

    `restored`: the ranges of log numbers that restores lost, ascending. A restored cluster may be backed up and
    restored again, so there may be several ranges.
    """

    format_version: Whole = FORMAT_VERSION
    id: str
    ledgers: str
    created_at_ms: Whole
    settings: Settings = Settings()
    restored: tuple[Lost, ...] | None = None
    owner: str | None = None


class Restoring(JsonRecord):
    """The record of a restore that is not complete. While this record exists, the store cannot be used. `backup`: the SHA-256 of
    the backup's lines. `id`: the cluster's new id. `by`: the process that restores. If another process begins to restore the same
    backup, it replaces `by` and continues the restore; the earlier process then stops with an error. `was`: the ids of the clusters
    that the mark of the ledger root named before the restore: first the owner, then the previous owners.
    """

    backup: str
    id: str
    ledgers: str
    began_ms: Whole
    by: str
    was: tuple[str, ...] | None = None
