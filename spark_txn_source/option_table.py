"""The declarations of the source's options: each has a name, values, a meaning and a parser. docs/options.md is made from them."""

from __future__ import annotations

from typing import Final, Literal

from metadata.common.option_times import duration, timestamp_ms
from metadata.common.options import Option, OptionTable, boolean, byte_size, integer, one_of
from metadata.common.service import SERVICE_URL
from spark_txn_source.option_values import acknowledged, columns, end, name_of, names_of, paths, regex, start, subscription

IsolationLevel = Literal["read_committed", "read_uncommitted"]
TopicsChanged = Literal["fail", "continue"]
SchemaChange = Literal["fail", "ignoreNewColumns"]
ValueFormat = Literal["columns", "avro"]
_MAX_PARTITIONS: Final = 1_000_000

_NO_END: Final = "a stream has no end"
_NO_TRIGGER: Final = "a batch has no triggers, it reads everything between its start and its end"
_NO_CHECKPOINT: Final = "a batch has no checkpoint, it reads the current topics with their current schema"
_NAME: Final = (
    "`topic://tenant/namespace/name`, a bare `name` (for `topic://public/default/name`), `segment://...`, or `persistent://...`"
)

PATH: Final = Option("path", _NAME, "The argument of `load`.", name_of)
PATHS: Final = Option("paths", "JSON list", "The argument of `load([...])`.", paths)
TOPIC: Final = Option("topic", _NAME, "The topic or segment to read; also the argument of `load`.", name_of)
TOPICS: Final = Option(
    "topics",
    "`a, b` or a JSON list",
    "Several topics, read as a union by column name with widened types; also the argument of `load([...])`.",
    names_of,
)
TOPICS_PATTERN: Final = Option(
    "topicsPattern",
    "regular expression (Python)",
    "All topics whose full name `topic://...` or `persistent://...` matches it from end to end.",
    regex,
)
STARTING_OFFSETS: Final = Option(
    "startingOffsets",
    '`earliest`, `latest`, `{"log":N}`, `{"log":N,"persistent://t/n/x":"ledger:entry"}`',
    "Reads rows after this place: a log number N for every `topic://`, a position for each `persistent://`. The `endOffset` of a "
    "query's progress is such a place, for the same topics of the same cluster. A stream uses it with a new checkpoint only.",
    start,
    default_note="batch `earliest`, stream `latest`",
)
ENDING_OFFSETS: Final = Option(
    "endingOffsets",
    '`latest`, `{"log":N}`, `{"log":N,"persistent://t/n/x":"ledger:entry"}`',
    "Reads rows up to this place, inclusive. The `endOffset` of a query's progress is such a place.",
    end,
    default="latest",
    only="batch",
    why=_NO_END,
)
STARTING_TIMESTAMP: Final = Option(
    "startingTimestamp",
    "epoch ms, or ISO-8601 with a zone",
    "Reads rows published at or after this time. In place of `startingOffsets`.",
    timestamp_ms(up=True),
)
ENDING_TIMESTAMP: Final = Option(
    "endingTimestamp",
    "epoch ms, or ISO-8601 with a zone",
    "Ends before the first transaction that was published after this time. In place of `endingOffsets`.",
    timestamp_ms(up=False),
    only="batch",
    why=_NO_END,
)
TIMESTAMP_TIMEOUT: Final = Option(
    "timestampTimeoutMs",
    "whole number",
    "How long a batch with `endingTimestamp`, or a new stream with `startingTimestamp`, waits until all transactions that were "
    "open at that time have ended (and 5 s more for clocks that differ). A longer wait is an error.",
    integer(0),
    default_note="all transactions have timed out by then (315000)",
)
SUBSCRIPTION: Final = Option(
    "subscription",
    "name",
    "Starts at the cursor of this subscription, which must exist. A batch reads the rows that are not acknowledged, and "
    "acknowledges none. A stream starts there with a new checkpoint, and moves the cursor as its batches end. "
    "It cannot be given with a start.",
    subscription,
)
ACKNOWLEDGED: Final = Option(
    "acknowledged",
    "from `txn.read`",
    "Acknowledged rows to leave out, by segment (JSON). `txn.read` sets it, so that a read returns exactly the rows that its "
    "transaction acknowledges.",
    acknowledged,
    only="batch",
    why="a stream keeps the rows that were acknowledged before its start in its checkpoint",
)
MAX_ROWS: Final = Option(
    "maxRowsPerTrigger",
    "whole number",
    "Soft limit of a micro-batch, which takes whole transactions (of `persistent://` whole appends), at least one. Also counts "
    "with `Trigger.AvailableNow`.",
    integer(1),
    default_note="no limit",
    only="stream",
    why=_NO_TRIGGER,
)
MAX_BYTES: Final = Option(
    "maxBytesPerTrigger",
    "size, e.g. `128m`",
    "The same limit by the size of the files. If both limits are given, the lower one counts.",
    byte_size(),
    default_note="no limit",
    only="stream",
    why=_NO_TRIGGER,
)
MIN_ROWS: Final = Option(
    "minOffsetsPerTrigger",
    "whole number",
    "A micro-batch waits until so many rows are unread, or `maxTriggerDelay` has passed since the last micro-batch with rows. "
    "The first micro-batch after a start does not wait, nor does one of `Trigger.AvailableNow` or `Trigger.Once`.",
    integer(1),
    default_note="a micro-batch begins with the first row",
    only="stream",
    why=_NO_TRIGGER,
)
MAX_DELAY: Final = Option(
    "maxTriggerDelay",
    "duration, e.g. `30s`, `15m`",
    "The longest time that rows wait for `minOffsetsPerTrigger`.",
    duration,
    default="15m",
    only="stream",
    why=_NO_TRIGGER,
)
MIN_PARTITIONS: Final = Option(
    "minPartitions",
    "whole number",
    "The least number of tasks of a read that has as many entries. Several tasks may then read one segment.",
    integer(1, _MAX_PARTITIONS),
    default_note="stream: one ordered task per segment",
)
PARTITION_BYTES: Final = Option(
    "maxPartitionBytes",
    "size, e.g. `128m`",
    "The approximate limit of bytes that a task reads. Smaller splits are joined into one task.",
    byte_size(),
    default_note="batch `128m`, stream: one ordered task per segment",
)
ISOLATION_LEVEL: Final[Option[IsolationLevel]] = Option(
    "isolationLevel",
    "`read_committed`, `read_uncommitted`",
    "`read_committed`: committed rows up to the cut, whole transactions only. `read_uncommitted`: all registered rows, without "
    "guarantees (batch only).",
    one_of("read_committed", "read_uncommitted"),
    default="read_committed",
)
FAIL_ON_DATA_LOSS: Final = Option(
    "failOnDataLoss",
    "`true`, `false`",
    "Whether it is an error that rows were trimmed by retention, or deleted with their topic, before this read.",
    boolean,
    default="true",
)
TOPICS_CHANGED: Final[Option[TopicsChanged]] = Option(
    "topicsChanged",
    "`fail`, `continue`",
    "If a restarted query reads other topics than its checkpoint: `fail` is an error; `continue` reads added topics from the "
    "checkpoint's offset on.",
    one_of("fail", "continue"),
    default="fail",
    only="stream",
    why=_NO_CHECKPOINT,
)
SCHEMA_CHANGE: Final[Option[SchemaChange]] = Option(
    "schemaChange",
    "`fail`, `ignoreNewColumns`",
    "When a topic gets a new or wider column: `fail` stops the stream with `SchemaChanged` before it drops a row; "
    "`ignoreNewColumns` leaves new columns out.",
    one_of("fail", "ignoreNewColumns"),
    default="fail",
    only="stream",
    why=_NO_CHECKPOINT,
)
COLUMNS: Final = Option(
    "columns",
    "`a, b` or a JSON list",
    "The columns to read, in this order. A name with a comma needs the JSON list.",
    columns,
    default_note="all",
)
INCLUDE_METADATA: Final = Option(
    "includeMetadata",
    "`true`, `false`",
    "Adds the columns `__topic`, `__segment`, `__messageId` (`ledger:entry:index`), `__publishTime` and `__txnId`.",
    boolean,
    default="false",
)

VALUE_FORMAT: Final[Option[ValueFormat]] = Option(
    "valueFormat",
    "`columns`, `avro`",
    "`columns`: rows as the topic's columns. `avro`: one column `value` with each row as Avro binary, by the topic's Avro schema.",
    one_of("columns", "avro"),
    default="columns",
)
SCHEMA_VERSION: Final = Option(
    "schemaVersion",
    "whole number",
    "Reads by this version of the topic's schema, not by the latest one (versions: `txnsegment topics schema TOPIC --history`).",
    integer(0),
    default_note="the last one",
)

SOURCE: Final = OptionTable(
    "source",
    (
        SERVICE_URL,
        TOPIC,
        TOPICS,
        TOPICS_PATTERN,
        STARTING_OFFSETS,
        ENDING_OFFSETS,
        STARTING_TIMESTAMP,
        ENDING_TIMESTAMP,
        TIMESTAMP_TIMEOUT,
        SUBSCRIPTION,
        ACKNOWLEDGED,
        MAX_ROWS,
        MAX_BYTES,
        MIN_ROWS,
        MAX_DELAY,
        MIN_PARTITIONS,
        PARTITION_BYTES,
        ISOLATION_LEVEL,
        FAIL_ON_DATA_LOSS,
        TOPICS_CHANGED,
        SCHEMA_CHANGE,
        COLUMNS,
        INCLUDE_METADATA,
        VALUE_FORMAT,
        SCHEMA_VERSION,
    ),
    spark_own=(PATH, PATHS),
)
