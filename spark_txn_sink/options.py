"""The options of the sink: their declarations and their checks (docs/options.md)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from ledgers import parts
from metadata.common.errors import OptionError
from metadata.common.options import Given, Option, OptionTable, bad, boolean, byte_size, integer, milliseconds, one_of, words
from metadata.common.service import SERVICE_URL, ServiceUrl, service_url
from metadata.records.names import MAX_SEGMENTS, TopicName, persistent_name, topic_name
from spark_txn_sink.planned import Compression, TaskOptions

T = TypeVar("T")
ValueFormat = Literal["columns", "avro"]
AfterRestore = Literal["fail", "continue"]
MIN_TIMEOUT_MS: Final = 1_000
MAX_TIMEOUT_MS: Final = 300_000
"""The longest timeout that a cluster allows by default (protocol.md section 7). A cluster may allow less."""


def _topic(option: str, text: str) -> TopicName:
    word = words(option, text)
    if word.lower().startswith("segment:"):
        raise bad(option, text, "it names a segment, and a write routes rows to segments", "Write to the topic: topic://t/n/name.")
    try:
        return persistent_name(word) if word.lower().startswith("persistent:") else topic_name(word)
    except OptionError as e:
        raise OptionError(f"The option {option}: {e.message}", advice=e.advice) from e


def _one_topic(option: str, text: str) -> TopicName:
    raise bad(option, text, "a write goes to one topic", "Give save(name), start(name) or the option topic.")


def _column(option: str, text: str) -> str:
    if not text.strip():
        raise bad(option, text, "it is empty", "Give a column's name, or leave the option out for rows without a key.")
    return text


def _app_id(option: str, text: str) -> str:
    word = words(option, text)
    if len(word) > 512 or not word.isprintable():
        raise bad(option, text, "it must be at most 512 printable characters", "Give a short name that stays the same, e.g. etl-1.")
    return word


def _staging(option: str, text: str) -> str:
    word = words(option, text)
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", word, re.ASCII):
        raise bad(option, text, "it names no transaction", "Give a transaction's own options: .options(**txn.options).")
    return word


_NO_VERSION: Final = "a stream's version is its batch id"
_NAME: Final = "`topic://tenant/namespace/name`, a bare `name` for `topic://public/default/name`, or `persistent://...`"

PATH: Final = Option("path", _NAME, "The argument of `save` or `start`.", _topic)
PATHS: Final = Option("paths", "", "Refused.", _one_topic)
TOPIC: Final = Option("topic", _NAME, "The topic to write to; also the argument of `save` and `start`.", _topic)
KEY_COLUMN: Final = Option(
    "keyColumn",
    "column name",
    "The column whose hash routes rows to segments (string, binary or integer; null: no key). Once set, it belongs to the topic.",
    _column,
    default_note="the topic's, else no key",
)
SEGMENTS: Final = Option(
    "segments",
    f"1 to {MAX_SEGMENTS}",
    "The number of segments of a topic that this write creates.",
    integer(1, MAX_SEGMENTS),
    default="1",
)
AUTO_CREATE: Final = Option(
    "autoCreate",
    "`true`, `false`",
    "Whether the write creates a topic that does not exist.",
    boolean,
    default="true",
)
MERGE_SCHEMA: Final = Option(
    "mergeSchema",
    "`true`, `false`",
    "Whether the write may add columns to the topic and widen its types, for good. Otherwise such a write is an error, unless the "
    "topic has a compatibility mode, which then decides (`txnsegment topics schema TOPIC --compatibility none` lets it grow).",
    boolean,
    default="false",
)
TXN_APP_ID: Final = Option(
    "txnAppId",
    "text",
    "The application that writes. A batch write with `txnVersion` commits once per topic. A stream takes it without a version.",
    _app_id,
    default_note="stream: the query's id; batch: random",
)
TXN_VERSION: Final = Option(
    "txnVersion",
    "whole number",
    "The version of this batch write. A version that is committed writes nothing (in `foreachBatch` of another query: an error). "
    "A lower version is an error.",
    integer(0),
    only="batch",
    why=_NO_VERSION,
)
TXN_STAGING: Final = Option(
    "txnStaging",
    "from `txn.options`",
    "The transaction over several topics (`cluster.transaction()`) that commits the rows of this write.",
    _staging,
    only="batch",
    why="a transaction over several topics is committed by a program: write in `foreachBatch`",
)
TXN_TIMEOUT: Final = Option(
    "txnTimeoutMs",
    f"{MIN_TIMEOUT_MS} to {MAX_TIMEOUT_MS}",
    "The longest time from opening a transaction to deciding it, in milliseconds. Staging rows does not count.",
    milliseconds(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS),
    default="30000",
)
AFTER_RESTORE: Final[Option[AfterRestore]] = Option(
    "afterRestore",
    "`fail`, `continue`",
    "If the cluster was restored from a backup older than the checkpoint: `continue` accepts the loss of the batches in between.",
    one_of("fail", "continue"),
    default="fail",
    only="stream",
    why="only a stream's versions follow each other",
)
COMPRESSION: Final[Option[Compression]] = Option(
    "compression",
    "`zstd`, `lz4`, `snappy`, `none`",
    "The compression of the Parquet parts.",
    one_of("zstd", "lz4", "snappy", "none"),
    default="zstd",
)
ENTRY_BYTES: Final = Option(
    "entryBytes",
    "size up to `1g`",
    "The approximate size in memory of an entry (row group). A task holds one entry for each segment that it writes to.",
    byte_size(1, 1024**3),
    default=f"{parts.ENTRY_BYTES >> 20}m",
)
ENTRY_ROWS: Final = Option(
    "entryRows",
    "whole number",
    "The largest number of rows of an entry.",
    integer(1, 2**31 - 1),
    default=str(parts.ENTRY_ROWS),
)

VALUE_FORMAT: Final[Option[ValueFormat]] = Option(
    "valueFormat",
    "`columns`, `avro`",
    "`columns`: rows as columns. `avro`: one column `value` with a row as Avro binary, which is decoded into the topic's columns.",
    one_of("columns", "avro"),
    default="columns",
)
SCHEMA_VERSION: Final = Option(
    "schemaVersion",
    "whole number",
    "With `valueFormat=avro`: the version of the topic's schema that the values are encoded by.",
    integer(0),
    default_note="the last one",
)

SINK: Final = OptionTable(
    "sink",
    (
        SERVICE_URL,
        TOPIC,
        KEY_COLUMN,
        SEGMENTS,
        AUTO_CREATE,
        MERGE_SCHEMA,
        TXN_APP_ID,
        TXN_VERSION,
        TXN_STAGING,
        TXN_TIMEOUT,
        AFTER_RESTORE,
        COMPRESSION,
        ENTRY_BYTES,
        ENTRY_ROWS,
        VALUE_FORMAT,
        SCHEMA_VERSION,
    ),
    spark_own=(PATH, PATHS),
)


@dataclass(frozen=True)
class WriteOptions:
    """The options of one write.

    `key_column`: None means the topic's key, if it has one. `txn_app_id`: None means the query's id for a stream, and a random id
    for a batch. `txn_version`: None means the batch id for a stream, and 1 for a batch. `txn_staging`: None means that the write is
    a transaction of its own.

    `routing`: the names of the given options that need a topic with segments. They are checked later, because only the cluster
    knows whether a `persistent://` name stands for such a topic.
    """

    service_url: ServiceUrl
    topic: TopicName
    streaming: bool
    key_column: str | None
    segments: int
    auto_create: bool
    txn_app_id: str | None
    txn_version: int | None
    txn_staging: str | None
    txn_timeout_ms: int
    after_restore: AfterRestore
    compression: Compression
    entry_bytes: int
    entry_rows: int
    value_format: ValueFormat = "columns"
    schema_version: int | None = None
    routing: tuple[str, ...] = ()
    merge_schema: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, object], *, streaming: bool) -> WriteOptions:
        """Parse and check the options of a batch or streaming write. Raises OptionError."""
        given = SINK.read(options, streaming=streaming)
        app, version = given.get(TXN_APP_ID), given.get(TXN_VERSION)
        staging = given.get(TXN_STAGING)
        check_alone(given, staging)
        check_version(app, version, streaming=streaming)
        _check_schema_options(given)
        return cls(
            service_url=service_url(given.get(SERVICE_URL)),
            topic=written_to(given, PATH, TOPIC),
            streaming=streaming,
            key_column=given.get(KEY_COLUMN),
            segments=given.value(SEGMENTS),
            auto_create=given.value(AUTO_CREATE),
            txn_app_id=app,
            txn_version=version,
            txn_staging=staging,
            txn_timeout_ms=given.value(TXN_TIMEOUT),
            after_restore=given.value(AFTER_RESTORE),
            compression=given.value(COMPRESSION),
            entry_bytes=given.value(ENTRY_BYTES),
            entry_rows=given.value(ENTRY_ROWS),
            value_format=given.value(VALUE_FORMAT),
            schema_version=given.get(SCHEMA_VERSION),
            routing=tuple(name for name in (KEY_COLUMN.name, SEGMENTS.name) if given.has(name)),
            merge_schema=given.value(MERGE_SCHEMA),
        )

    def for_tasks(self) -> TaskOptions:
        """Return the options that are pickled to the executors."""
        return TaskOptions(self.topic, self.key_column, self.compression, self.entry_bytes, self.entry_rows)


def check_alone(given: Given, part_of: object | None) -> None:
    """Check that a write in a transaction over several topics has no option that this transaction sets. `part_of`: the transaction,
    or None. Raises OptionError.
    """
    theirs = [name for name in (TXN_APP_ID.name, TXN_VERSION.name, TXN_TIMEOUT.name) if given.has(name)]
    if part_of is not None and theirs:
        raise OptionError(
            f"txnStaging and {' and '.join(theirs)} are both given, but the transaction of the write sets these itself.",
            advice=f"Leave {' and '.join(theirs)} out; cluster.transaction(app=..., version=..., timeout=...) takes them.",
        )


def check_version(app: str | None, version: int | None, *, streaming: bool) -> None:
    """Raise OptionError if a version is given without an application. Raise it also if a batch has an application without a
    version.
    """
    if version is not None and app is None:
        raise OptionError(
            "txnVersion is given without txnAppId: a version counts for one application.",
            advice="Give both, or neither.",
        )
    if app is not None and version is None and not streaming:
        raise OptionError(
            "txnAppId is given without txnVersion: a second batch write would count as a repetition of the first.",
            advice="Give both (the version must rise), or neither.",
        )


def _check_schema_options(given: Given) -> None:
    if given.value(VALUE_FORMAT) != "avro":
        if SCHEMA_VERSION in given:
            raise OptionError(
                "schemaVersion is given without valueFormat=avro: rows given as columns have their own schema.",
                advice="Give both, or neither.",
            )
        return
    if given.get(MERGE_SCHEMA):
        raise OptionError(
            "The options valueFormat=avro and mergeSchema are both given, but Avro values have the fields of a registered schema.",
            advice="Leave mergeSchema out; register the larger schema first (txnsegment topics schema TOPIC --set FILE).",
        )
    needless = SEGMENTS.name if SEGMENTS in given else AUTO_CREATE.name if given.get(AUTO_CREATE) else None
    if needless is not None:
        raise OptionError(
            f"The options valueFormat=avro and {needless} are both given, but a write of Avro values needs the topic's "
            "schema and creates no topic.",
            advice=f"Leave {needless} out; create the topic first (txnsegment topics create, topics schema TOPIC --set FILE).",
        )


def written_to(given: Given, path_option: Option[T], topic_option: Option[T]) -> T:
    """Return the topic of a write, which the argument of `save` or `start` or the option `topic` gives. Raises OptionError."""
    path, topic = given.get(path_option), given.get(topic_option)
    if path is not None and topic is not None and path != topic:
        raise OptionError(
            f"The argument of save() or start() is {path} and the option topic is {topic}: they differ.",
            advice="Give one of the two.",
        )
    found = topic if topic is not None else path
    if found is None:
        from metadata.common.spark_tables import NO_TOPIC  # imported late, because most writes have a topic

        raise OptionError("There is no topic to write to.", advice=f"Give save(name), start(name) or the option topic. {NO_TOPIC}")
    return found
