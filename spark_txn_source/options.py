"""The options of the source, typed and checked (issue 2, section 2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from metadata.errors import OffsetOutOfRange, OptionError
from metadata.names import SegmentName, TopicName, segment_name, topic_name
from metadata.options import (
    LONG_MAX,
    Given,
    Option,
    OptionTable,
    bad,
    boolean,
    byte_size,
    integer,
    names,
    one_of,
    timestamp_ms,
    unique_pairs,
    words,
)
from metadata.row_ranges import Rows, parse_all
from metadata.service import SERVICE_URL, ServiceUrl, service_url
from metadata.subscriptions import checked
from spark_txn_source.selection import AtLog, AtTime, Earliest, End, Latest, Pattern, Selection, Start, Topics

IsolationLevel = Literal["read_committed", "read_uncommitted"]
TopicsChanged = Literal["fail", "continue"]
SchemaChange = Literal["fail", "ignoreNewColumns"]
ValueFormat = Literal["columns", "avro"]
MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024
_MAX_PARTITIONS: Final = 1_000_000


# --- how values are read -------------------------------------------------------------------------------------------


def _name(option: str, text: str) -> TopicName | SegmentName:
    word = words(option, text)
    try:
        return segment_name(word) if word.lower().startswith("segment:") else topic_name(word)
    except OptionError as e:
        raise OptionError(f"The option {option}: {e.message}", advice=e.advice) from e


def _names(option: str, text: str) -> tuple[TopicName | SegmentName, ...]:
    return tuple(_name(option, n) for n in names(option, text))


def _paths(option: str, text: str) -> tuple[TopicName | SegmentName, ...]:
    if not text.lstrip().startswith("["):
        raise bad(option, text, "it is not a JSON list", 'Write load(["a", "b"]), or the option topics.')
    return _names(option, text)


def _regex(option: str, text: str) -> str:
    word = words(option, text)
    try:
        re.compile(word)
    except re.error as e:
        raise bad(
            option, text, f"it is not a regular expression ({e})", r"Match full names, e.g. topic://public/default/flights-.*"
        ) from e
    return word


_OFFSET_ADVICE: Final = 'Write {"log": 41} with the number of a registration, as a query\'s progress shows it.'


def _subscription(option: str, text: str) -> str:
    return checked(words(option, text))


def _acknowledged(option: str, text: str) -> Mapping[str, Rows]:
    try:
        found = json.loads(text, object_pairs_hook=unique_pairs)
        return {str(segment_name(segment)): parse_all(ranges) for segment, ranges in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OptionError) as e:
        raise bad(
            option, text, f"it is not what txn.read gives ({e})", "Read with txn.read(spark, topic, subscription=...)."
        ) from e


def _log_number(option: str, text: str) -> AtLog:
    try:
        found = json.loads(text, object_pairs_hook=unique_pairs)
    except (ValueError, RecursionError) as e:
        raise bad(option, text, f"it is neither a known word nor JSON ({e})", _OFFSET_ADVICE) from e
    if not isinstance(found, dict) or "log" not in found:
        raise bad(option, text, "it is not a JSON object with the field log", _OFFSET_ADVICE)
    if len(found) > 1:
        more = ", ".join(sorted(k for k in found if k != "log"))
        raise bad(option, text, f"it has more than the field log ({more})", _OFFSET_ADVICE)
    number = found["log"]
    if type(number) is not int or not 0 <= number <= LONG_MAX:
        raise bad(option, text, f"log must be a whole number from 0 to {LONG_MAX}", _OFFSET_ADVICE)
    return AtLog(number)


def _start(option: str, text: str) -> Start:
    match text.strip().lower():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
    return _log_number(option, text)


def _end(option: str, text: str) -> End:
    match text.strip().lower():
        case "earliest":
            raise bad(option, text, "a read cannot end where it begins", 'Write latest or {"log": 41}.')
        case "latest":
            return Latest()
    return _log_number(option, text)


def _columns(option: str, text: str) -> tuple[str, ...]:
    found = names(option, text)
    seen: set[str] = set()
    for column in found:
        if column.lower() in seen:
            raise bad(option, text, f"the column {column} is named twice", "Name each column once.")
        seen.add(column.lower())
    return found


# --- the options ---------------------------------------------------------------------------------------------------

_NO_END: Final = "a stream goes on for ever"
_NO_TRIGGER: Final = "a batch has no triggers, it reads all that lies between its start and its end"
_NO_CHECKPOINT: Final = "a batch has no checkpoint, it reads the topics and the schema of now"
_NAME: Final = "`topic://tenant/namespace/name`, a bare `name` (for `topic://public/default/name`), or `segment://...`"

PATH: Final = Option("path", _NAME, "The argument of `load`.", _name)
PATHS: Final = Option("paths", "JSON list", "The argument of `load([...])`.", _paths)
TOPIC: Final = Option("topic", _NAME, "What to read; also the argument of `load`.", _name)
TOPICS: Final = Option(
    "topics",
    "`a, b` or a JSON list",
    "Several topics: a union by column name, widened where needed. Also `load([...])`.",
    _names,
)
TOPICS_PATTERN: Final = Option(
    "topicsPattern",
    "regular expression (Python)",
    "All topics whose full name `topic://...` matches it from end to end.",
    _regex,
)
STARTING_OFFSETS: Final = Option(
    "startingOffsets",
    '`earliest`, `latest`, `{"log":N}`',
    "Reads what lies after the start. Counts for a new checkpoint only.",
    _start,
    default_note="batch `earliest`, stream `latest`",
)
ENDING_OFFSETS: Final = Option(
    "endingOffsets",
    '`latest`, `{"log":N}`',
    "Reads up to and with the end.",
    _end,
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
SUBSCRIPTION: Final = Option(
    "subscription",
    "name",
    "Starts at the cursor of this subscription, which must exist. A batch reads what is not acknowledged and acknowledges nothing; "
    "a stream starts there with a new checkpoint, and moves it as its batches are done. In place of a start.",
    _subscription,
)
ACKNOWLEDGED: Final = Option(
    "acknowledged",
    "from `txn.read`",
    "Rows to leave out, by segment (JSON). `txn.read` gives it, so that what is read is exactly what the transaction acknowledges.",
    _acknowledged,
    only="batch",
    why="a stream keeps what was acknowledged before it began in its checkpoint",
)
MAX_ROWS: Final = Option(
    "maxRowsPerTrigger",
    "whole number",
    "Soft limit of a micro-batch: whole transactions, at least one. Also under `Trigger.AvailableNow`.",
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
    _columns,
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


# --- together ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommonReadOptions:
    """What can be said before it is known whether a batch or a stream is read: enough to find the schema."""

    service_url: ServiceUrl
    selection: Selection
    columns: tuple[str, ...] | None
    include_metadata: bool
    value_format: ValueFormat
    schema_version: int | None


@dataclass(frozen=True)
class ReadOptions(CommonReadOptions):
    """The options of one read. None: no limit (rows, bytes), or not given (partitions)."""

    streaming: bool
    start: Start
    end: End
    max_rows_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_partitions: int | None
    max_partition_bytes: int | None
    isolation_level: IsolationLevel
    fail_on_data_loss: bool
    topics_changed: TopicsChanged
    schema_change: SchemaChange
    subscription: str | None = None
    acknowledged: Mapping[str, Rows] | None = None

    @staticmethod
    def parse_common(options: Mapping[str, object]) -> CommonReadOptions:
        """Read the options without knowing the mode. Every value is checked, but not whether it suits a batch or a stream."""
        given = SOURCE.read(options, streaming=None)
        _start_of(given, streaming=False)
        _end_of(given)
        return _common(given)

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> ReadOptions:
        """Read and check the options of a batch or streaming read.

        Raises OptionError, or OffsetOutOfRange for a start after the end.
        """
        given = SOURCE.read(options, streaming=streaming)
        common = _common(given)
        isolation = given.value(ISOLATION_LEVEL)
        if streaming and isolation == "read_uncommitted":
            raise OptionError(
                "The option isolationLevel is 'read_uncommitted': a stream cannot read rows that may yet be aborted exactly once.",
                advice="Leave it out, or read in a batch.",
            )
        partition_bytes = given.get(PARTITION_BYTES)
        subscription = given.get(SUBSCRIPTION)
        if subscription is not None and isolation == "read_uncommitted":
            raise OptionError(
                "The options subscription and isolationLevel=read_uncommitted are both given: rows that may yet be aborted "
                "cannot be acknowledged.",
                advice="Leave one of the two out.",
            )
        acknowledged = given.get(ACKNOWLEDGED)
        if acknowledged is not None and subscription is not None:
            raise OptionError(
                "The options subscription and acknowledged are both given: what to leave out is said twice.",
                advice="Read with txn.read(spark, topic, subscription=...), or give the subscription alone.",
            )
        return cls(
            service_url=common.service_url,
            selection=common.selection,
            columns=common.columns,
            include_metadata=common.include_metadata,
            value_format=common.value_format,
            schema_version=common.schema_version,
            streaming=streaming,
            start=_start_of(given, streaming=streaming),
            end=_end_of(given),
            max_rows_per_trigger=given.get(MAX_ROWS),
            max_bytes_per_trigger=given.get(MAX_BYTES),
            min_partitions=given.get(MIN_PARTITIONS),
            max_partition_bytes=MAX_PARTITION_BYTES if partition_bytes is None and not streaming else partition_bytes,
            isolation_level=isolation,
            fail_on_data_loss=given.value(FAIL_ON_DATA_LOSS),
            topics_changed=given.value(TOPICS_CHANGED),
            schema_change=given.value(SCHEMA_CHANGE),
            subscription=subscription,
            acknowledged=acknowledged,
        )


def _common(given: Given) -> CommonReadOptions:
    selection = _selection(given)
    _check_schema_options(given, selection)
    return CommonReadOptions(
        service_url=service_url(given.get(SERVICE_URL)),
        selection=selection,
        columns=given.get(COLUMNS),
        include_metadata=given.value(INCLUDE_METADATA),
        value_format=given.value(VALUE_FORMAT),
        schema_version=given.get(SCHEMA_VERSION),
    )


def _check_schema_options(given: Given, selection: Selection) -> None:
    """What reads by one schema reads one topic, or segments of one."""
    avro = given.value(VALUE_FORMAT) == "avro"
    if avro and COLUMNS in given:
        raise OptionError(
            "The options valueFormat=avro and columns are both given: a value is a whole record.",
            advice="Leave one of the two out.",
        )
    if not avro and SCHEMA_VERSION not in given:
        return
    named = "valueFormat=avro" if avro else "schemaVersion"
    topics = set() if isinstance(selection, Pattern) else {n.topic if isinstance(n, SegmentName) else n for n in selection.names}
    if len(topics) != 1:
        raise OptionError(
            f"The option {named} reads one topic, by its schema; here several are named.", advice="Read each topic by itself."
        )


def _selection(given: Given) -> Selection:
    path, topic = given.get(PATH), given.get(TOPIC)
    if path is not None and topic is not None and path != topic:
        raise OptionError(
            f"The argument of load() is {path} and the option topic is {topic}: they differ.", advice="Give one of the two."
        )
    one = topic if topic is not None else path
    kinds = {
        "topic" if topic is not None else "load(name)": None if one is None else (one,),
        "topics": given.get(TOPICS),
        "load([...])": given.get(PATHS),
    }
    pattern = given.get(TOPICS_PATTERN)
    used = [kind for kind, value in kinds.items() if value] + ([] if pattern is None else ["topicsPattern"])
    if not used:
        raise OptionError(
            "There is no topic to read.", advice="Give load(name), or one of the options topic, topics, topicsPattern."
        )
    if len(used) > 1:
        raise OptionError(f"What to read is said in {len(used)} ways: {', '.join(used)}.", advice="Give one of them.")
    if pattern is not None:
        return Pattern(pattern)
    found = tuple(dict.fromkeys(kinds[used[0]] or ()))
    for name in found:
        if isinstance(name, SegmentName) and name.topic in found:
            raise OptionError(
                f"{name} is a segment of {name.topic}, which is read whole: its rows would come twice.",
                advice="Name the topic or its segments, not both.",
            )
    return Topics(found)


def _start_of(given: Given, *, streaming: bool) -> Start:
    offset, ms = given.get(STARTING_OFFSETS), given.get(STARTING_TIMESTAMP)
    if offset is not None and ms is not None:
        raise OptionError("startingOffsets and startingTimestamp are both given.", advice="Give one start.")
    if SUBSCRIPTION in given and (offset is not None or ms is not None):
        named = "startingOffsets" if offset is not None else "startingTimestamp"
        raise OptionError(
            f"The options subscription and {named} are both given: a subscription starts at its cursor.",
            advice="Leave one of the two out, or move the cursor (txnsegment subscriptions seek).",
        )
    start = offset if offset is not None else AtTime(ms) if ms is not None else Latest() if streaming else Earliest()
    end = _end_of(given)
    if isinstance(start, AtLog) and isinstance(end, AtLog) and start.log > end.log:
        raise OffsetOutOfRange(
            f"startingOffsets is log {start.log}, after endingOffsets, which is log {end.log}.",
            advice="Give an end at or after the start.",
        )
    if isinstance(start, AtTime) and isinstance(end, AtTime) and start.ms > end.ms:
        raise OffsetOutOfRange(
            f"startingTimestamp is {start.ms} ms, after endingTimestamp, which is {end.ms} ms.",
            advice="Give an end at or after the start.",
        )
    return start


def _end_of(given: Given) -> End:
    offset, ms = given.get(ENDING_OFFSETS), given.get(ENDING_TIMESTAMP)
    if offset is not None and ms is not None:
        raise OptionError("endingOffsets and endingTimestamp are both given.", advice="Give one end.")
    return AtTime(ms) if ms is not None else offset if offset is not None else Latest()
