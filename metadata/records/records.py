"""The records of transactions, segments and topics (protocol.md section 4): those of Apache Pulsar 5.0 with additional fields.

Instants and durations are JSON numbers of SECONDS with nine decimals. They are kept as integer nanoseconds and never pass through a
float. `metadata.records.json_records` converts records to bytes; `metadata.records.cluster_records` has the records about the
cluster itself.
"""

from __future__ import annotations

from decimal import Decimal
from enum import StrEnum
from operator import attrgetter
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

from ledgers.avro.modes import Compatibility
from ledgers.model import Ledger, Part, check
from metadata.records.json_records import JsonRecord, Number, Whole
from metadata.records.names import HashRange, TopicName
from metadata.records.paths import (
    ACKS_BY_SEGMENT_SUBSCRIPTION,
    OPS_BY_TXN,
    TXN_ABORTED_BY_POSITION,
    TXN_BY_DEADLINE,
    TXN_BY_FINAL_STATE,
    WRITES_BY_SEGMENT,
    aborted_position,
    ack_key,
    encode,
    pad20,
)
from metadata.records.row_ranges import Rows, parse_all, texts
from metadata.records.stored import IndexEntry

NANOS = 1_000_000_000


def _to_seconds(nanos: int) -> Decimal:
    return Decimal("0.0") if nanos == 0 else Decimal(nanos).scaleb(-9)


_MOST_SECONDS = 253_402_300_800
"""The end of the year 9999, the limit of displayable instants."""


class Nanos(int):
    """Nanoseconds, written as seconds with nine decimals (`0.0` for zero), as Jackson does."""


def _read_nanos(value: object) -> Nanos:
    if isinstance(value, Nanos):
        return value
    if not isinstance(value, Decimal | int) or isinstance(value, bool):
        raise ValueError("not a number of seconds")
    if not 0 <= value < _MOST_SECONDS:
        raise ValueError(f"{value} seconds lie before 1970 or beyond the year 9999")
    return Nanos((value * NANOS).to_integral_value() if isinstance(value, Decimal) else value * NANOS)


Seconds = Annotated[Nanos, BeforeValidator(_read_nanos), PlainSerializer(_to_seconds, return_type=Decimal)]


class State(StrEnum):
    """The state of a transaction's header."""

    OPEN = "OPEN"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class Header(JsonRecord):
    """The record whose state decides a transaction. `commit`: the log number of the committed registration. `app`: the name of the
    application record (`<encoded appId>:<encoded topic>`). `attempt` distinguishes attempts at the same version.
    """

    state: State
    timeout: Seconds
    created_at: Seconds
    finalized_at: Seconds | None = None
    owner: str | None = None
    app: str | None = None
    version: Whole | None = None
    attempt: str | None = None
    commit: Whole | None = None

    @property
    def created_ms(self) -> int:
        return self.created_at // 1_000_000

    @property
    def deadline_ms(self) -> int:
        return (self.created_at + self.timeout) // 1_000_000

    def indexes(self) -> tuple[IndexEntry, ...]:
        """Return exactly one index entry: by deadline while OPEN, by final state once decided."""
        if self.state is State.OPEN:
            return (IndexEntry(TXN_BY_DEADLINE, pad20(self.deadline_ms)),)
        return (IndexEntry(TXN_BY_FINAL_STATE, f"{self.state}:{pad20((self.finalized_at or 0) // 1_000_000)}"),)


class OpKind(StrEnum):
    WRITE = "WRITE"
    ACK = "ACK"


def _read_rows(value: object) -> object:
    texts_given = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
    return parse_all(value) if texts_given else value  # type: ignore[arg-type]


RowSet = Annotated[Rows, BeforeValidator(_read_rows), PlainSerializer(texts, return_type=list[str])]
"""Rows of a segment: a list of texts with inclusive ends (`metadata.records.row_ranges`)."""


class Op(JsonRecord):
    """One operation of a transaction on one segment: a write (at its first entry) or an acknowledgement (at its last position).

    `rows`: the acknowledged rows, if the position alone does not determine them.
    """

    kind: OpKind
    segment: str
    subscription: str | None = None
    ledger_id: Whole
    entry_id: Whole
    cumulative: bool | None = None
    rows: RowSet | None = None

    def indexes(self, txn_id: str) -> tuple[IndexEntry, ...]:
        by_txn = IndexEntry(OPS_BY_TXN, txn_id)
        if self.kind is OpKind.WRITE:
            return (IndexEntry(WRITES_BY_SEGMENT, encode(self.segment)), by_txn)
        return (IndexEntry(ACKS_BY_SEGMENT_SUBSCRIPTION, ack_key(self.segment, self.subscription or "")), by_txn)


class Event(JsonRecord):
    """A wake-up for tailing readers of a segment or subscription. It carries no state."""

    txn_id: str
    decision: State


class Position(JsonRecord):
    """`(ledgerId, entryId)`, ordered lexicographically."""

    ledger_id: Whole
    entry_id: Whole

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


class MarkDelete(JsonRecord):
    """The mark-delete position: everything up to and including it is acknowledged. It is a row, a whole entry (no `batchIndex`) or
    a whole ledger (no `entryId`).
    """

    ledger_id: Whole
    entry_id: Whole | None = None
    batch_index: Whole | None = None


class Cursor(JsonRecord):
    """A subscription's acknowledged rows in one segment, and the claims of transactions (section 7). A cursor record is not deleted
    while its key may be used again, because versions would restart. `deleted_ms`: deletion time of the subscription; such a cursor
    is a tombstone.
    """

    mark_delete: MarkDelete | None = None
    acked: RowSet = ()
    claims: dict[str, RowSet] = Field(default_factory=dict)
    deleted_ms: Whole | None = None


class Watermark(Position):
    """The durable part of a segment's maxReadPosition. `snapshot`: path of the index snapshot that lists the segment up to this
    position.

    `trimmed_to`: the last position that retention trimmed. `trimmed_ms`: the latest publish time of the trimmed rows.
    """

    snapshot: str | None = None
    trimmed_to: Position | None = None
    trimmed_ms: Whole | None = None


class AbortedTxn(JsonRecord):
    """An aborted transaction in a segment, kept from its settling until the watermark passes it."""

    max_ledger_id: Number
    max_entry_id: Number

    def indexes(self, segment: str) -> tuple[IndexEntry, ...]:
        return (IndexEntry(TXN_ABORTED_BY_POSITION, aborted_position(segment, self.max_ledger_id, self.max_entry_id)),)


class TcSequence(JsonRecord):
    """`next`: the least significant bits of the next transaction id that the coordinator allocates."""

    next: Number


class SegmentState(StrEnum):
    ACTIVE = "ACTIVE"
    SEALED = "SEALED"


class Range(JsonRecord):
    start: Whole
    end: Whole


class SegmentInfo(JsonRecord):
    """One segment of a topic's layout. -1 in the sealed fields: not sealed. `sealed_at_log`: number of the seal that counts.

    `deleted_at_log`: number of the seal that deleted the topic with this segment. The layout keeps such a segment for the grace
    period, also in a new topic of the same name. Its files stay for readers that planned from them. Later readers find by it which
    rows are lost. `legacy_topic_name`: the persistent:// topic of a migrated segment; its ledgers are in that topic's log.
    """

    segment_id: Whole
    hash_range: Range
    state: SegmentState
    parent_ids: tuple[Whole, ...] = ()
    child_ids: tuple[Whole, ...] = ()
    created_at_epoch: Whole
    sealed_at_epoch: Whole = -1
    created_at_ms: Whole
    sealed_at_ms: Whole = -1
    sealed_at_log: Whole | None = None
    deleted_at_log: Whole | None = None
    legacy_topic_name: str | None = None

    def full_name(self, topic: TopicName) -> str:
        """Return the segment's full name in this topic: `segment://..`, or for a migrated segment its persistent topic
        (PIP-475).
        """
        return self.legacy_topic_name or topic.segment(self.range, self.segment_id)

    @property
    def range(self) -> HashRange:
        return HashRange(self.hash_range.start, self.hash_range.end)


class Policies(JsonRecord):
    """Retention and scaling policies of a topic (in its layout) or of all topics of a namespace. None: not set here; -1: no limit.

    `retention_ms`, `retention_bytes`: older rows are trimmed, or the oldest rows above the size. `despite_subscriptions`: rows that
    a subscription still needs are trimmed, too. `compact_files`: sweepers compact runs of at least this many small files.
    `split_rows_per_second`, `split_bytes_per_second`: load over the last `scaling_cool_down_ms` above which a segment is split;
    there are `min_segments` to `max_segments` active ones (metadata/rules/scaling.py).
    """

    retention_ms: Whole | None = None
    retention_bytes: Whole | None = None
    despite_subscriptions: bool | None = None
    compact_files: Whole | None = None
    split_rows_per_second: Whole | None = None
    split_bytes_per_second: Whole | None = None
    min_segments: Whole | None = None
    max_segments: Whole | None = None
    scaling_cool_down_ms: Whole | None = None


class Migration(JsonRecord):
    """The origin of a migrated topic: the persistent `topic`, the number of the `seal` in its log, and the number of child
    `segments`.
    """

    topic: str
    seal: Whole
    segments: Whole


class Layout(JsonRecord):
    """The topic record: its DAG of segments by id. Additional to Pulsar: `deleted` (a tombstone), `key` (the key column),
    `schema_id`, `compatibility` (of schemas; None: not set).

    `deleted_to_log`: the highest seal of a deletion whose segments have left the layout, a guard for readers that begin below it.
    `trimmed_to`, `trimmed_ms`: the highest values of sealed segments that were fully trimmed and left the layout, a guard, too.
    `migration`: the topic was a persistent one (docs/in_stream.md, Migration); a new topic of the same name keeps this field.
    """

    epoch: Whole
    next_segment_id: Whole
    segments: dict[str, SegmentInfo]
    properties: dict[str, str] = Field(default_factory=dict)
    deleted: bool | None = None
    key: str | None = None
    schema_id: Number | None = None
    compatibility: Compatibility | None = None
    deleted_to_log: Whole | None = None
    policies: Policies | None = None
    trimmed_to: Position | None = None
    trimmed_ms: Whole | None = None
    migration: Migration | None = None

    def unsealed_legacy(self) -> SegmentInfo | None:
        """Return the migrated segment whose seal the layout does not show yet, or None. The first process that meets one completes
        the migration.
        """
        return next((i for i in self.kept() if i.legacy_topic_name is not None and i.state is SegmentState.ACTIVE), None)

    def kept(self) -> list[SegmentInfo]:
        """Return the segments that no deletion removed, in the order of their ids."""
        return sorted([i for i in self.segments.values() if i.deleted_at_log is None], key=_by_id)

    def gone(self) -> list[SegmentInfo]:
        """Return the segments that a deletion removed and that the layout still has, in the order of their ids."""
        return sorted([i for i in self.segments.values() if i.deleted_at_log is not None], key=_by_id)


_by_id = attrgetter("segment_id")


class Settled(StrEnum):
    COMMITTED = "COMMITTED"
    VOID = "VOID"


def _checked_parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    for part in parts:
        check(part)
    return parts


class SegmentWrite(JsonRecord):
    """The parts and totals that a registration adds to one segment."""

    parts: Annotated[tuple[Part, ...], AfterValidator(_checked_parts)] = ()
    rows: Whole
    bytes: Whole
    entries: Whole


class Registration(JsonRecord):
    """One record of the log: the whole write set of a transaction (or of a plain write: `txn` None), or a seal.

    `segments` is in the order of their names. `manifest`: path of a file that holds `segments` with their parts if they do not fit
    into one record (the record keeps the totals); `manifest_bytes`, `manifest_crc`: its length and CRC-32. `state`: None until
    settled. A seal names the sealed segments, the topic, the reason `why` (`split|merge|delete|migrate`), the layout `epoch` it was
    made from, and the ids of the `children`.
    """

    txn: str | None = None
    state: Settled | None = None
    publish_ms: Whole
    segments: dict[str, SegmentWrite] = Field(default_factory=dict)
    manifest: str | None = None
    manifest_bytes: Whole | None = None
    manifest_crc: Whole | None = None
    seal: tuple[str, ...] | None = None
    topic: str | None = None
    why: str | None = None
    epoch: Whole | None = None
    children: tuple[Whole, ...] | None = None

    def ledger(self, number: int, segment: str) -> Ledger:
        """Return the ledger that this registration adds to a segment. The parts must be in the record, not in a manifest."""
        return Ledger(number, self.publish_ms, self.txn, self.segments[segment].parts)


class Attempt(JsonRecord):
    """The version that an application is writing, its transaction, and the query id on whose behalf (`by`)."""

    version: Whole
    txn_id: str
    by: str | None = None


class Application(JsonRecord):
    """The record of (`appId`, topic), which makes writes exactly-once. No record means lastCommitted -1.

    `restored`: the record comes from a backup and is unchanged since, so its query may have committed later versions that the
    restore lost.
    """

    last_committed: Whole = -1
    by: str | None = None
    current: Attempt | None = None
    random: bool | None = None
    restored: bool | None = None


class TopicSchema(JsonRecord):
    """One version of a topic's schema: Spark's schema JSON, nullable at every level.

    `avro`: the Avro schema as registered, or evolved since; None: derived from the columns. `follows`: the previous version; None:
    this is the first.
    """

    spark: str
    created_at_ms: Whole
    avro: str | None = None
    follows: Number | None = None
