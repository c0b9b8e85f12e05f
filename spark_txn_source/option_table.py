"""The options of the source, each by itself: what may be written, and what it means (docs/options.md is made of this)."""

from __future__ import annotations

from typing import Final, Literal

from metadata.common.options import Option, OptionTable, boolean, byte_size, integer, one_of, timestamp_ms
from metadata.common.service import SERVICE_URL
from spark_txn_source.option_values import acknowledged, columns, end, name_of, names_of, paths, regex, start, subscription

IsolationLevel = Literal["read_committed", "read_uncommitted"]
TopicsChanged = Literal["fail", "continue"]
SchemaChange = Literal["fail", "ignoreNewColumns"]
ValueFormat = Literal["columns", "avro"]
_MAX_PARTITIONS: Final = 1_000_000

_NO_END: Final = "a stream goes on for ever"
_NO_TRIGGER: Final = "a batch has no triggers, it reads all that lies between its start and its end"
_NO_CHECKPOINT: Final = "a batch has no checkpoint, it reads the topics and the schema of now"
_NAME: Final = (
    "`topic://tenant/namespace/name`, a bare `name` (for `topic://public/default/name`), `segment://...`, or `persistent://...`"
)

PATH: Final = Option("path", _NAME, "The argument of `load`.", name_of)
PATHS: Final = Option("paths", "JSON list", "The argument of `load([...])`.", paths)
TOPIC: Final = Option("topic", _NAME, "What to read; also the argument of `load`.", name_of)
TOPICS: Final = Option(
    "topics",
    "`a, b` or a JSON list",
    "Several topics: a union by column name, widened where needed. Also `load([...])`.",
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
    "Reads what lies after the start: N for all of `topic://`, a position for each `persistent://`. "
    "Counts for a new checkpoint only.",
    start,
    default_note="batch `earliest`, stream `latest`",
)
ENDING_OFFSETS: Final = Option(
    "endingOffsets",
    '`latest`, `{"log":N}`, `{"log":N,"persistent://t/n/x":"ledger:entry"}`',
    "Reads up to and with the end, said as a start is.",
    end,
    default="latest",
    only="batch",
    why=_NO_END,
)
STARTING_TIMESTAMP: Final = Option(
    "startingTimestamp",
    "epoch ms, or ISO-8601 with a zone",
    "Starts at the first rows published at or after it. In place of `startingOffsets`.",
    timestamp_ms(up=True),
)
ENDING_TIMESTAMP: Final = Option(
    "endingTimestamp",
    "epoch ms, or ISO-8601 with a zone",
    "Ends with the last rows published at or before it. In place of `endingOffsets`.",
    timestamp_ms(up=False),
    only="batch",
    why=_NO_END,
)
TIMESTAMP_TIMEOUT: Final = Option(
    "timestampTimeoutMs",
    "whole number",
    "How long a batch with `endingTimestamp`, or a new stream with `startingTimestamp`, waits until no row can come any more that "
    "was published before it. It waits for transactions that were open then, and 5 s for clocks that differ. Then it is an error.",
    integer(0),
    default_note="all transactions have timed out by then (315000)",
)
SUBSCRIPTION: Final = Option(
    "subscription",
    "name",
    "Starts at the cursor of this subscription, which must exist. A batch reads what is not acknowledged and acknowledges nothing; "
    "a stream starts there with a new checkpoint, and moves it as its batches are done. In place of a start.",
    subscription,
)
ACKNOWLEDGED: Final = Option(
    "acknowledged",
    "from `txn.read`",
    "Rows to leave out, by segment (JSON). `txn.read` gives it, so that what is read is exactly what the transaction acknowledges.",
    acknowledged,
    only="batch",
    why="a stream keeps what was acknowledged before it began in its checkpoint",
)
MAX_ROWS: Final = Option(
    "maxRowsPerTrigger",
    "whole number",
    "Soft limit of a micro-batch: whole transactions (of `persistent://` whole appends), at least one. Also under "
    "`Trigger.AvailableNow`.",
    integer(1),
    default_note="no limit",
    only="stream",
    why=_NO_TRIGGER,
)
MAX_BYTES: Final = Option(
    "maxBytesPerTrigger",
    "size, e.g. `128m`",
    "The same by the size of the files. With both limits, the lower one counts.",
    byte_size(),
    default_note="no limit",
    only="stream",
    why=_NO_TRIGGER,
)
MIN_PARTITIONS: Final = Option(
    "minPartitions",
    "whole number",
    "Splits the read into at least so many tasks, where there are entries enough. A segment's rows are then read by several.",
    integer(1, _MAX_PARTITIONS),
    default_note="stream: one ordered task per segment",
)
PARTITION_BYTES: Final = Option(
    "maxPartitionBytes",
    "size, e.g. `128m`",
    "A task reads about so many bytes at most; smaller pieces are put together.",
    byte_size(),
    default_note="batch `128m`, stream: one ordered task per segment",
)
ISOLATION_LEVEL: Final[Option[IsolationLevel]] = Option(
    "isolationLevel",
    "`read_committed`, `read_uncommitted`",
    "Committed rows up to the cut, never part of a transaction; or every registered row, with no promise (batch only).",
    one_of("read_committed", "read_uncommitted"),
    default="read_committed",
)
FAIL_ON_DATA_LOSS: Final = Option(
    "failOnDataLoss",
    "`true`, `false`",
    "Whether rows that went before they were read, trimmed by retention or with a topic that was deleted, are an error.",
    boolean,
    default="true",
)
TOPICS_CHANGED: Final[Option[TopicsChanged]] = Option(
    "topicsChanged",
    "`fail`, `continue`",
    "A restart whose topics differ from the checkpoint's is an error, or added topics start where the stream stands.",
    one_of("fail", "continue"),
    default="fail",
    only="stream",
    why=_NO_CHECKPOINT,
)
SCHEMA_CHANGE: Final[Option[SchemaChange]] = Option(
    "schemaChange",
    "`fail`, `ignoreNewColumns`",
    "A new or wider column stops a stream with `SchemaChanged` before any row is dropped; or new columns are left out.",
    one_of("fail", "ignoreNewColumns"),
    default="fail",
    only="stream",
    why=_NO_CHECKPOINT,
)
COLUMNS: Final = Option(
    "columns",
    "`a, b` or a JSON list",
    "Reads these columns only, in this order. A name with a comma needs the JSON list.",
    columns,
    default_note="all",
)
INCLUDE_METADATA: Final = Option(
    "includeMetadata",
    "`true`, `false`",
    "Adds `__topic`, `__segment`, `__messageId` (`ledger:entry:index`), `__publishTime`, `__txnId`.",
    boolean,
    default="false",
)

VALUE_FORMAT: Final[Option[ValueFormat]] = Option(
    "valueFormat",
    "`columns`, `avro`",
    "Rows as the topic's columns; or each as Avro binary in the column `value`, by the topic's Avro schema.",
    one_of("columns", "avro"),
    default="columns",
)
SCHEMA_VERSION: Final = Option(
    "schemaVersion",
    "whole number",
    "Reads by this version of the topic's schema, whatever comes after it (`txnsegment topics schema TOPIC --history`).",
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
