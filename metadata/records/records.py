"""The records of transactions, segments and topics (protocol.md section 4). Some are records of Apache Pulsar 5.0 with additional
fields. The others, such as the registration, the cursor and the application, exist only in txnsegment.

Instants and durations of Pulsar's records are JSON numbers of SECONDS with nine decimals. They are kept as integer nanoseconds and
never pass through a float. `metadata.records.json_records` converts records to bytes. `metadata.records.cluster_records` has the
records about the cluster.
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
"""The end of the year 9999 in seconds since 1970. Later instants cannot be displayed."""


class Nanos(int):
    """Nanoseconds. In JSON they are seconds with nine decimals (`0.0` for zero), as the Java library Jackson writes them."""


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
    application record, `<encoded appId>:<encoded topic>`. `attempt`: the id of the attempt to write the application's version.
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
        """Return the header's only index entry. An OPEN header is listed by its deadline, a decided one by its final state."""
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
"""A set of rows of one segment. In JSON it is a list of texts, each a range with inclusive ends (`metadata.records.row_ranges`)."""


class Op(JsonRecord):
    """One operation of a transaction on one segment: a write or an acknowledgement. `ledger_id`, `entry_id`: the position of the
    first entry of the write, or of the entry that has the last acknowledged row.

    `rows`: the acknowledged rows. None for a write. For an acknowledgement None means all rows of the entry at the position, or
    with `cumulative` all rows up to the end of this entry.
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
    """A record that wakes readers that wait for changes of a segment or subscription. No process relies on it."""

    txn_id: str
    decision: State


class Position(JsonRecord):
    """The position of an entry: `(ledgerId, entryId)`."""

    ledger_id: Whole
    entry_id: Whole

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


class MarkDelete(JsonRecord):
    """The mark-delete position. All rows up to and including this position are acknowledged. The position is a row, a whole
    entry (without `batchIndex`) or a whole ledger (without `entryId`).
    """

    ledger_id: Whole
    entry_id: Whole | None = None
    batch_index: Whole | None = None


class Cursor(JsonRecord):
    """The acknowledged rows of a subscription in one segment, and the rows that transactions claim (protocol.md section 7).
    `deleted_ms`: when the subscription was deleted. A cursor with this field is a tombstone: the record stays for some time,
    because a new record under the same key would start again at version 0.
    """

    mark_delete: MarkDelete | None = None
    acked: RowSet = ()
    claims: dict[str, RowSet] = Field(default_factory=dict)
    deleted_ms: Whole | None = None


class Watermark(Position):
    """The position up to which a segment's index snapshot is complete. `snapshot`: the path of the index snapshot.

    `trimmed_to`: the last position that retention trimmed. `trimmed_ms`: the latest publish time of the trimmed rows.
    """

    snapshot: str | None = None
    trimmed_to: Position | None = None
    trimmed_ms: Whole | None = None


class AbortedTxn(JsonRecord):
    """The record of an aborted transaction in one segment. It exists from the settling of the transaction until the segment's
    watermark passes the transaction's last position in the segment.
    """

    max_ledger_id: Number
    max_entry_id: Number

    def indexes(self, segment: str) -> tuple[IndexEntry, ...]:
        return (IndexEntry(TXN_ABORTED_BY_POSITION, aborted_position(segment, self.max_ledger_id, self.max_entry_id)),)


class TcSequence(JsonRecord):
    """The record from which a coordinator allocates transaction ids. `next`: the least significant bits of the next id."""

    next: Number


class SegmentState(StrEnum):
    ACTIVE = "ACTIVE"
    SEALED = "SEALED"


class Range(JsonRecord):
    start: Whole
    end: Whole


class SegmentInfo(JsonRecord):
    """One segment of a topic's layout. `sealed_at_epoch` and `sealed_at_ms` are -1 until the segment is sealed. `sealed_at_log`:
    the number of the seal that sealed the segment.

    `deleted_at_log`: the number of the seal that deleted the topic with this segment. The layout keeps such a segment during the
    grace period, also if a new topic of the same name is created. The segment's files stay for reads that were planned before the
    deletion. Later reads learn from this field that the segment's rows are lost. `legacy_topic_name`: the `persistent://` topic
    that became this segment in a migration. The segment's ledgers are in that topic's log (PIP-475).
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
        """Return the full name of the segment. It is `segment://..`, or the name of the persistent topic for a migrated segment."""
        return self.legacy_topic_name or topic.segment(self.range, self.segment_id)

    @property
    def range(self) -> HashRange:
        return HashRange(self.hash_range.start, self.hash_range.end)


class Policies(JsonRecord):
    """The policies for retention, compaction and scaling of a topic (in its layout) or of all topics of a namespace. None: not set
    here. -1: no limit.

    `retention_ms`: older rows are trimmed. `retention_bytes`: the oldest rows are trimmed while all rows take more bytes than this.
    `despite_subscriptions`: rows that a subscription still needs are trimmed, too. `compact_files`: sweepers compact runs of at
    least this many small files. `split_rows_per_second`, `split_bytes_per_second`: a segment is split if its load over the last
    `scaling_cool_down_ms` is higher. `min_segments`, `max_segments`: limits for the number of active segments after a split or a
    merge (metadata/rules/scaling.py).
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
    """The origin of a successor: the persistent topic that was migrated to it. `topic`: the persistent topic. `seal`: the number of
    the SEAL in the persistent topic's log. `segments`: how many active segments the migration creates.
    """

    topic: str
    seal: Whole
    segments: Whole


class Layout(JsonRecord):
    """The record of a topic: its segments by id, with their parents and children. The fields from `deleted` on are additions to
    Pulsar's record. `deleted`: the record is a tombstone. `key`: the key column. `schema_id`: the current schema version.
    `compatibility`: the compatibility mode of the schemas (None: not set).

    Three fields are kept for segments that have left the layout, so that a read that starts at a lower number notices that rows are
    gone. `deleted_to_log`: the highest seal of a deletion whose segments have left. `trimmed_to`, `trimmed_ms`: the highest values
    of the watermarks of segments that left because retention had trimmed all their rows.

    `migration`: the topic is the successor of a persistent topic (docs/in_stream.md, Migration). A later topic of the same name
    keeps the field.
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
        """Return the migrated segment that the layout does not show as sealed yet, or None. A process that finds such a segment
        finishes the migration.
        """
        return next((i for i in self.kept() if i.legacy_topic_name is not None and i.state is SegmentState.ACTIVE), None)

    def kept(self) -> list[SegmentInfo]:
        """Return the segments without those that a deletion removed, in the order of their ids."""
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
    """One record of the log: a registration, or a seal. A registration lists all parts of one transaction, or of one write without
    a transaction (`txn` is None).

    `state`: the outcome, None until the registration is settled. `segments`: the parts and totals for each segment, in the order of
    the names. If the parts do not fit into one record, the record has only the totals, and the file `manifest` has `segments` with
    the parts. `manifest_bytes`, `manifest_crc`: the length and the CRC-32 of this file.

    A seal has the fields from `seal` on. `seal`: the sealed segments. `why`: the reason (`split|merge|delete|migrate`). `epoch`:
    the epoch of the layout that the seal was made from. `children`: the ids of the new segments.
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
    """The current attempt of an application: the version that it writes, and its transaction. `by`: the id of the writing query."""

    version: Whole
    txn_id: str
    by: str | None = None


class Application(JsonRecord):
    """The record of an application in a topic. It makes writes exactly-once. A missing record means that no version is committed
    (`last_committed` -1). `by`: the id of the query that committed the version `last_committed`. `random`: the application stands
    for one plain batch write, and its id is random.

    `restored`: the cluster was restored from a backup, and the record shows no commit since then. The application may have
    committed later versions after the backup, and the restore has lost them.
    """

    last_committed: Whole = -1
    by: str | None = None
    current: Attempt | None = None
    random: bool | None = None
    restored: bool | None = None


class TopicSchema(JsonRecord):
    """One version of a topic's schema. `spark`: the columns as Spark's schema JSON, nullable at every level.

    `avro`: the Avro schema that was registered, or evolved from a registered one. None: it is derived from the columns. `follows`:
    the previous version (None: this is the first).
    """

    spark: str
    created_at_ms: Whole
    avro: str | None = None
    follows: Number | None = None
