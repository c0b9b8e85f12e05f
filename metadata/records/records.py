"""The records of transactions, segments and topics (protocol.md section 4): those of Apache Pulsar 5.0, plus our own fields.

Instants and durations are JSON numbers of SECONDS with nine decimals, kept here as integer nanoseconds: they never pass through a
float. How a record becomes bytes is in `metadata.records.json_records`; the cluster's own records are in
`metadata.records.cluster_records`.
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
"""The end of the year 9999: beyond it no instant can be shown."""


class Nanos(int):
    """Nanoseconds; written as seconds with nine decimals (`0.0` for zero), as Jackson does."""


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
    """Of a transaction's header; of a settled registration only COMMITTED or VOID."""

    OPEN = "OPEN"
    COMMITTED = "COMMITTED"
    ABORTED = "ABORTED"


class Header(JsonRecord):
    """The one record that decides a transaction. `commit` is the log number of the registration that it commits; `app` names
    the application record (`<encoded appId>:<encoded topic>`), `attempt` tells two tries at one version apart.
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
        """Exactly one entry: by deadline while OPEN, by final state once decided."""
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
    """What a transaction does to one segment: a write (at its first entry) or an acknowledgement (at its last position).

    `rows`: what is acknowledged, where the position alone does not say it.
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
    """A wake-up for whoever follows a segment or subscription. Never carries the truth."""

    txn_id: str
    decision: State


class Position(JsonRecord):
    """`(ledgerId, entryId)`, ordered lexicographically."""

    ledger_id: Whole
    entry_id: Whole

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


class MarkDelete(JsonRecord):
    """Everything up to and with it is acknowledged: a row, a whole entry (no `batchIndex`) or a whole ledger (no `entryId`)."""

    ledger_id: Whole
    entry_id: Whole | None = None
    batch_index: Whole | None = None


class Cursor(JsonRecord):
    """Where a subscription stands in one segment, and who claims what beyond (section 7). Never deleted while its key can be used
    again: versions would restart. `deleted_ms`: the subscription was deleted then; what is left is a tombstone.
    """

    mark_delete: MarkDelete | None = None
    acked: RowSet = ()
    claims: dict[str, RowSet] = Field(default_factory=dict)
    deleted_ms: Whole | None = None


class Watermark(Position):
    """The durable part of a segment's maxReadPosition. `snapshot`: path of the index snapshot that lists it up to there.

    `trimmed_to`: the last position that retention has taken, and `trimmed_ms` the latest publish time of what it has taken.
    """

    snapshot: str | None = None
    trimmed_to: Position | None = None
    trimmed_ms: Whole | None = None


class AbortedTxn(JsonRecord):
    """Kept from the settling of an abort until the watermark passes it."""

    max_ledger_id: Number
    max_entry_id: Number

    def indexes(self, segment: str) -> tuple[IndexEntry, ...]:
        return (IndexEntry(TXN_ABORTED_BY_POSITION, aborted_position(segment, self.max_ledger_id, self.max_entry_id)),)


class TcSequence(JsonRecord):
    """`next`: the least significant bits that the coordinator hands out next."""

    next: Number


class SegmentState(StrEnum):
    ACTIVE = "ACTIVE"
    SEALED = "SEALED"


class Range(JsonRecord):
    start: Whole
    end: Whole


class SegmentInfo(JsonRecord):
    """One segment of a topic's layout. -1 in the sealed fields: not sealed. `sealed_at_log`: number of the seal that counts.

    `deleted_at_log`: number of the seal that deleted the topic with it. The layout keeps such a segment for the grace period, also
    when the topic is made again, so that its files stay for who planned from them, and a later reader knows what it has lost.
    `legacy_topic_name`: the persistent:// topic that the segment was before its migration; its ledgers lie in that topic's log.
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
        """Of the segment as one of this topic's: `segment://..`, or that of the persistent topic that it was (PIP-475)."""
        return self.legacy_topic_name or topic.segment(self.range, self.segment_id)

    @property
    def range(self) -> HashRange:
        return HashRange(self.hash_range.start, self.hash_range.end)


class Policies(JsonRecord):
    """How long and how much is kept, and when segments split and merge by themselves: of a topic (in its layout) or of all topics
    of a namespace. Absent: not said here; -1: no limit.

    `retention_ms`, `retention_bytes`: rows go that are older, or the oldest while there is more. `despite_subscriptions`: also rows
    that a subscription still needs. `compact_files`: sweepers compact runs of at least so many small files.
    `split_rows_per_second`, `split_bytes_per_second`: above which a segment is split, over the last `scaling_cool_down_ms`; there
    are `min_segments` to `max_segments` active ones (metadata/rules/scaling.py).
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
    """Where a topic comes from: the persistent `topic`, the number of the `seal` in its log, how many `segments` go on from it."""

    topic: str
    seal: Whole
    segments: Whole


class Layout(JsonRecord):
    """The topic record: its DAG of segments by id. Ours: `deleted` (a tombstone), `key` (the key column), `schema_id`,
    `compatibility` (of schemas; None: nobody has set it).

    `deleted_to_log`: the highest seal of a deletion whose segments have left the layout: the guard of readers that begin below it.
    `trimmed_to`, `trimmed_ms`: the highest of the sealed segments that were trimmed whole and left the layout: a guard, too.
    `migration`: the topic was a persistent one (docs/in_stream.md, Migration); it stays, also when the topic is made again.
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
        """The persistent topic that this one was, while its seal is missing in the layout: whoever meets it completes it."""
        return next((i for i in self.kept() if i.legacy_topic_name is not None and i.state is SegmentState.ACTIVE), None)

    def kept(self) -> list[SegmentInfo]:
        """The segments that no deletion took, in the order of their ids."""
        return sorted([i for i in self.segments.values() if i.deleted_at_log is None], key=_by_id)

    def gone(self) -> list[SegmentInfo]:
        """The segments that a deletion took and that the layout still has, in the order of their ids."""
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
    """What a registration adds to one segment."""

    parts: Annotated[tuple[Part, ...], AfterValidator(_checked_parts)] = ()
    rows: Whole
    bytes: Whole
    entries: Whole


class Registration(JsonRecord):
    """One record of the log: a transaction's whole write set (or one plain write: `txn` absent), or a seal.

    `segments` is in the order of their names. `manifest`: path of a file that holds `segments` with their parts when they do not
    fit into one record (the record then keeps the totals); `manifest_bytes`, `manifest_crc`: its length and CRC-32. `state`: absent
    until settled. A seal names the segments whose last word it is, the topic, why (`split|merge|delete|migrate`), the layout
    `epoch` it was made from and the `children` ids.
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
        """This registration as a ledger of one of its segments (its parts must be there, not only in the manifest)."""
        return Ledger(number, self.publish_ms, self.txn, self.segments[segment].parts)


class Attempt(JsonRecord):
    """The version that an application is writing, the transaction that does it, and for whom (a query id)."""

    version: Whole
    txn_id: str
    by: str | None = None


class Application(JsonRecord):
    """(`appId`, topic): what makes writing exactly-once. No record means lastCommitted -1.

    `restored`: it comes from a backup and nothing was written since, so its query may have gone on beyond it and lost that.
    """

    last_committed: Whole = -1
    by: str | None = None
    current: Attempt | None = None
    random: bool | None = None
    restored: bool | None = None


class TopicSchema(JsonRecord):
    """A topic's schema of one version: Spark's schema JSON, nullable at every level.

    `avro`: the Avro schema as it was registered, or has grown since; absent: made from the columns. `follows`: the version before;
    absent: there was none.
    """

    spark: str
    created_at_ms: Whole
    avro: str | None = None
    follows: Number | None = None
