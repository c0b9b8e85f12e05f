"""What a pending-ack log holds, and the record of a subscription (docs/in_stream.md, Pending acks)."""

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
    """One append to a pending-ack log; it never changes.

    ACK: `rows` (positions, entries or rows by batch index), of transaction `txn` (absent: plain); `cumulative`: all rows before a
    boundary. COMMIT, ABORT (markers): as in a topic's log. SEEK: exactly `rows` count as acknowledged from here on.
    SEAL: the topic was migrated, and the cursor with it; void while a transaction holds a claim.
    """

    kind: AckKind
    publish_ms: Whole
    txn: str | None = None
    rows: RowSet = ()
    cumulative: bool | None = None
    low_water: Whole | None = None


class AckSnapshot(JsonRecord):
    """A pending-ack log up to the entry `at`: what its compaction leaves of it."""

    at: Whole = 0
    cursor: Cursor = Cursor()
    ended: dict[str, Whole] = Field(default_factory=dict)
    low_water: dict[str, Whole] = Field(default_factory=dict)
    sealed_at: Whole | None = None


class SubscriptionRecord(JsonRecord):
    """A subscription of a persistent topic. `snapshot`: what its log has come to, as of the last compaction, or where it began.

    `life`: 1, or above each time it was made again after a deletion: each life has a log of its own. `deleted_ms`: a tombstone,
    never deleted: versions would restart. `cleared`: logs up to this life are empty.
    `moved`: the topic was migrated and its subscription (if it was there) with it: no life begins or ends here any more.
    """

    created_ms: Whole
    life: Whole = 1
    snapshot: AckSnapshot = AckSnapshot()
    deleted_ms: Whole | None = None
    cleared: Whole = 0
    moved: bool | None = None

    @property
    def is_there(self) -> bool:
        """Whether the topic has the subscription, here and not on what goes on from it."""
        return self.deleted_ms is None and not self.moved
