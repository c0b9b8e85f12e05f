"""The options of a read, parsed from the given options and checked together (docs/options.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from metadata.common.errors import OffsetOutOfRange, OptionError
from metadata.common.options import Given
from metadata.common.service import SERVICE_URL, ServiceUrl, service_url
from metadata.read.selection import AtLog, AtTime, Earliest, End, Latest, Pattern, Selection, Start, Topics
from metadata.records.names import SegmentName
from metadata.records.row_ranges import Rows
from spark_txn_source.option_table import (
    ACKNOWLEDGED,
    COLUMNS,
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    INCLUDE_METADATA,
    ISOLATION_LEVEL,
    MAX_BYTES,
    MAX_DELAY,
    MAX_ROWS,
    MIN_PARTITIONS,
    MIN_ROWS,
    PARTITION_BYTES,
    PATH,
    PATHS,
    SCHEMA_CHANGE,
    SCHEMA_VERSION,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    SUBSCRIPTION,
    TIMESTAMP_TIMEOUT,
    TOPIC,
    TOPICS,
    TOPICS_CHANGED,
    TOPICS_PATTERN,
    VALUE_FORMAT,
    IsolationLevel,
    SchemaChange,
    TopicsChanged,
    ValueFormat,
)
from spark_txn_source.option_table import SOURCE as SOURCE

if TYPE_CHECKING:
    from metadata.cluster.cluster import Cluster

MAX_PARTITION_BYTES: Final = 128 * 1024 * 1024


@dataclass(frozen=True)
class CommonReadOptions:
    """The options that are common to batches and streams. The schema of a read depends only on these options."""

    service_url: ServiceUrl
    selection: Selection
    columns: tuple[str, ...] | None
    include_metadata: bool
    value_format: ValueFormat
    schema_version: int | None


@dataclass(frozen=True)
class ReadOptions(CommonReadOptions):
    """The options of one read. A limit of rows or bytes is None for no limit. Any other option that has no default is None if it
    was not given.
    """

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
    timestamp_timeout_ms: int | None = None
    min_rows_per_trigger: int | None = None
    max_trigger_delay: float = 0
    """The longest wait for `min_rows_per_trigger`, in seconds."""

    @staticmethod
    def parse_common(options: Mapping[str, object]) -> CommonReadOptions:
        """Parse the options, and check their values, before it is known whether the read is a batch or a stream. Later `parse`
        checks whether each option is allowed in a batch or in a stream.
        """
        given = SOURCE.read(options, streaming=None)
        _start_of(given, streaming=False)
        _end_of(given)
        return _common(given)

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> ReadOptions:
        """Parse and check the options of a batch or streaming read.

        Raises OptionError, and OffsetOutOfRange if the start lies after the end.
        """
        given = SOURCE.read(options, streaming=streaming)
        common = _common(given)
        isolation = given.value(ISOLATION_LEVEL)
        start, end = _start_of(given, streaming=streaming), _end_of(given)
        if streaming and isolation == "read_uncommitted":
            raise OptionError(
                "The option isolationLevel is 'read_uncommitted': a stream cannot read rows that may yet be aborted exactly once.",
                advice="Leave it out, or read in a batch.",
            )
        if MAX_DELAY in given and MIN_ROWS not in given:
            raise OptionError(
                "The option maxTriggerDelay is given without minOffsetsPerTrigger: no micro-batch waits.",
                advice="Give both, or neither.",
            )
        partition_bytes = given.get(PARTITION_BYTES)
        subscription = given.get(SUBSCRIPTION)
        _check_offset(common.selection, start)
        _check_offset(common.selection, end, wider=True)
        if subscription is not None and isolation == "read_uncommitted":
            raise OptionError(
                "The options subscription and isolationLevel=read_uncommitted are both given: rows that may yet be aborted "
                "cannot be acknowledged.",
                advice="Leave one of the two out.",
            )
        acknowledged = given.get(ACKNOWLEDGED)
        if acknowledged is not None and subscription is not None:
            raise OptionError(
                "The options subscription and acknowledged are both given: each of them selects the rows to leave out.",
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
            start=start,
            end=end,
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
            timestamp_timeout_ms=given.get(TIMESTAMP_TIMEOUT),
            min_rows_per_trigger=given.get(MIN_ROWS),
            max_trigger_delay=given.value(MAX_DELAY),
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
    """Raise OptionError for valueFormat=avro or schemaVersion unless the read has exactly one topic, or segments of one topic.
    Raise OptionError also for valueFormat=avro with columns.
    """
    avro = given.value(VALUE_FORMAT) == "avro"
    if avro and COLUMNS in given:
        raise OptionError(
            "The options valueFormat=avro and columns are both given: an Avro value always has all fields.",
            advice="Leave one of the two out.",
        )
    if not avro and SCHEMA_VERSION not in given:
        return
    named = "valueFormat=avro" if avro else "schemaVersion"
    topics = set() if isinstance(selection, Pattern) else {n.topic if isinstance(n, SegmentName) else n for n in selection.names}
    if len(topics) != 1:
        raise OptionError(
            f"The option {named} needs the schema of one topic, and several topics are read.", advice="Read each topic by itself."
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
        raise OptionError(f"The topics are given in {len(used)} ways: {', '.join(used)}.", advice="Give one of them.")
    if pattern is not None:
        return Pattern(pattern)
    found = tuple(dict.fromkeys(kinds[used[0]] or ()))
    for name in found:
        if isinstance(name, SegmentName) and name.topic in found:
            raise OptionError(
                f"{name} is a segment of {name.topic}, which is read whole: its rows would be read twice.",
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
    if isinstance(start, AtLog) and isinstance(end, AtLog):
        _check_order(start, end)
    if isinstance(start, AtTime) and isinstance(end, AtTime) and start.ms > end.ms:
        raise OffsetOutOfRange(
            f"startingTimestamp is {start.ms} ms, after endingTimestamp, which is {end.ms} ms.",
            advice="Give an end at or after the start.",
        )
    return start


def _check_order(start: AtLog, end: AtLog) -> None:
    """Raise OffsetOutOfRange if the end lies before the start in any log."""
    if start.log > end.log:
        raise OffsetOutOfRange(
            f"startingOffsets is log {start.log}, after endingOffsets, which is log {end.log}.",
            advice="Give an end at or after the start.",
        )
    ends = dict(end.positions)
    for name, place in start.positions:
        last = ends.get(name)
        if last is not None and place > last:
            raise OffsetOutOfRange(
                f"startingOffsets is {place} of {name}, after endingOffsets, which is {last}.",
                advice="Give an end at or after the start.",
            )


def _check_offset(selection: Selection, offset: Start | End, *, wider: bool = False) -> None:
    """Raise OptionError if an offset does not fit the selection. For topics given by name, the offset must have a position of each
    persistent topic, and of no other topic unless `wider` is set (the result of `cluster.snapshot` may have more topics). For a
    pattern, each position must be of a topic that matches the pattern. The offset must have the field `log` for a
    pattern, and if a `topic://` topic is given by name.
    """
    if not isinstance(offset, AtLog):
        return
    named = [name for name, _ in offset.positions]
    if isinstance(selection, Pattern):
        strange, missing, of_log = [n for n in named if not selection.matches(n)], [], True
    else:
        strange = [] if wider else [n for n in named if n not in selection.persistent]
        missing, of_log = [n for n in selection.persistent if n not in named], bool(selection.scalable)
    if strange:
        raise OptionError(
            f"An offset gives a position of {strange[0]}, but the topic is not read.",
            advice="Leave the position out, or read the topic, too.",
        )
    if missing:
        raise OptionError(
            f"An offset gives no position of {missing[0]}.",
            advice=f'Name it beside the log: {{"log": {offset.log}, "{missing[0]}": "0:0"}}; "0:0" is before its first entry.',
        )
    if of_log and not offset.names_log:
        raise OptionError(
            "An offset names persistent:// topics alone, but topic:// topics are read, too.",
            advice='Give their number beside it: {"log": 41, ...}; 0 is before the first row.',
        )


def check_progress(cluster: Cluster, selection: Selection, *places: Start | End) -> None:
    """Check a start and an end that are offsets of a stream's progress. Raises OffsetOutOfRange if the stream read another cluster,
    and OptionError if it read other topics than `selection`.
    """
    key = json.dumps(selection.key, sort_keys=True)
    for place in places:
        if not isinstance(place, AtLog):
            continue
        cluster.check_is_mine(place.cluster)
        if place.read is not None and place.read != key:
            raise OptionError(
                f"An offset is of a query that reads {place.read}, and this read has {key}.",
                advice=f'Read the same topics, or give the number without them: {{"log": {place.log}}}.',
            )


def _end_of(given: Given) -> End:
    offset, ms = given.get(ENDING_OFFSETS), given.get(ENDING_TIMESTAMP)
    if offset is not None and ms is not None:
        raise OptionError("endingOffsets and endingTimestamp are both given.", advice="Give one end.")
    return AtTime(ms) if ms is not None else offset if offset is not None else Latest()
