"""The entries of a pending-ack log, and the record of a subscription (docs/in_stream.md, Pending acks)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from metadata.records.json_records import JsonRecord, Whole
from metadata.records.persistent_records import Identified
from metadata.records.records import Cursor, RowSet


class AckKind(StrEnum):
    ACK = "ACK"
    COMMIT = "COMMIT"
    ABORT = "ABORT"
    SEEK = "SEEK"
    SEAL = "SEAL"


class AckEntry(Identified):
    """One entry of a pending-ack log; it never changes.

    ACK acknowledges `rows` in the transaction `txn`, or without a transaction if `txn` is None. If `cumulative` is set, `rows` are
    all rows up to a position. COMMIT and ABORT are markers, as in a topic's log. SEEK makes exactly `rows` count as acknowledged.
    SEAL ends the log, because the topic is migrated: later entries are void. A SEAL is itself void while a transaction holds a
    pending ack.
    """

    kind: AckKind
    publish_ms: Whole
    txn: str | None = None
    rows: RowSet = ()
    cumulative: bool | None = None
    low_water: Whole | None = None


class AckSnapshot(JsonRecord):
    """The state of a pending-ack log up to the entry `at`, as a compaction stores it. `metadata.instream.ack_rules.AckState`
    explains the fields.
    """

    at: Whole = 0
    cursor: Cursor = Cursor()
    ended: dict[str, Whole] = Field(default_factory=dict)
    low_water: dict[str, Whole] = Field(default_factory=dict)
    sealed_at: Whole | None = None


class SubscriptionRecord(JsonRecord):
    """A subscription of a persistent topic. `snapshot`: the state of its log at the last compaction or at its creation.

    `life`: how many times the subscription was created. It is 1 at first, and rises by 1 when the subscription is created again
    after a deletion. Each life has its own log. `deleted_ms`: the time of a deletion. The record then stays as a tombstone, because
    without it `life` would start at 1 again. `cleared`: the logs of the lives up to this one are empty. `moved`: the topic was
    migrated, and the subscription with it, unless it was deleted before. The subscription can then no longer be created or deleted
    here.
    """

    created_ms: Whole
    life: Whole = 1
    snapshot: AckSnapshot = AckSnapshot()
    deleted_ms: Whole | None = None
    cleared: Whole = 0
    moved: bool | None = None

    @property
    def is_there(self) -> bool:
        """Return whether the subscription exists and was not migrated."""
        return self.deleted_ms is None and not self.moved
