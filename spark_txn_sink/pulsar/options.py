"""The options of a write to Pulsar: their declarations and their checks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from metadata.common.errors import OptionError
from metadata.common.options import Option, OptionTable, bad, byte_size, integer, milliseconds, one_of, without, words
from metadata.common.service import PULSAR_URL, SERVICE_URL, service_url
from metadata.records.names import topic_name
from pulsar_protocol import rest
from pulsar_protocol.entries import Compression
from spark_txn_sink.options import (
    AFTER_RESTORE,
    AUTO_CREATE,
    KEY_COLUMN,
    MERGE_SCHEMA,
    PATHS,
    SCHEMA_VERSION,
    SEGMENTS,
    TXN_APP_ID,
    TXN_STAGING,
    TXN_VERSION,
    AfterRestore,
    check_alone,
    check_version,
    written_to,
)
from spark_txn_sink.pulsar.attempts import Opened
from spark_txn_sink.pulsar.journal import opened_of

HashBits = Literal["auto", "low", "high"]
ValueFormat = Literal["columns", "binary"]
ADMIN_VARIABLE: Final = rest.ADMIN_VARIABLE
MIN_TIMEOUT_MS: Final = 1_000
MAX_TIMEOUT_MS: Final = 86_400_000


def _topic(option: str, text: str) -> str:
    word = words(option, text)
    if re.match(r"(segment|persistent|non-persistent):", word, re.IGNORECASE):
        raise bad(
            option,
            text,
            "rows are written to scalable topics only",
            "Give topic://tenant/namespace/name, or migrate the topic first.",
        )
    try:
        return str(topic_name(word))
    except OptionError as e:
        raise OptionError(f"The option {option}: {e.message}", advice=e.advice) from e


def _admin(option: str, text: str) -> str:
    word = words(option, text)
    if not re.fullmatch(r"https?://[^/@\s]+/?", word):
        raise bad(option, text, "it is no URL of Pulsar's REST interface", "Write http://host:8080.")
    return word.rstrip("/")


_NAME: Final = "`topic://tenant/namespace/name`, or a bare `name` for `topic://public/default/name`"
PATH: Final = Option("path", _NAME, "The argument of `save` or `start`.", _topic)
TOPIC: Final = Option("topic", _NAME, "The topic to write to; also the argument of `save` and `start`.", _topic)
ADMIN_URL: Final = Option(
    "adminUrl",
    "`http://host:8080`",
    "Pulsar's REST interface, which creates topics: that of the rows with `autoCreate`, and those of the sink's own records.",
    _admin,
    default_note=f"the variable `{ADMIN_VARIABLE}`, else no topic is created",
)
PULSAR_KEY: Final = replace(
    KEY_COLUMN,
    meaning="The column that becomes the key of the messages; its hash routes rows to segments (string, binary or integer; null: "
    "no key). Give it with every write: a Pulsar topic does not remember it. Rows of a write without it have no key, and no order "
    "with the earlier rows of a key; there is no warning.",
    default_note="no key",
)
HASH_BITS: Final[Option[HashBits]] = Option(
    "hashBits",
    "`auto`, `low`, `high`",
    "The 16 bits of a key's hash that choose its segment. `auto` asks for the broker's version: low for 5.0.0-M1, else high.",
    one_of("auto", "low", "high"),
    default="auto",
)
TXN_TIMEOUT: Final = Option(
    "txnTimeoutMs",
    f"{MIN_TIMEOUT_MS} to {MAX_TIMEOUT_MS}",
    "The time after which the broker aborts the transaction, in milliseconds. It must be longer than a batch with its tasks. Rows "
    "of other writers to the same segments stay hidden from readers until an abandoned transaction has ended.",
    milliseconds(MIN_TIMEOUT_MS, MAX_TIMEOUT_MS),
    default="600000",
)
COMPRESSION: Final[Option[Compression]] = Option(
    "compression",
    "`none`, `lz4`, `zlib`, `zstd`, `snappy`",
    "The compression of entries.",
    one_of("none", "lz4", "zlib", "zstd", "snappy"),
    default="lz4",
)
ENTRY_BYTES: Final = Option(
    "entryBytes",
    "size up to `4m`",
    "The size of the values at which an entry is sent. A broker takes no entry above its `maxMessageSize` (5 MB).",
    byte_size(1, 4 * 1024**2),
    default="512k",
)
ENTRY_ROWS: Final = Option(
    "entryRows", "whole number", "The largest number of rows of an entry.", integer(1, 100_000), default="5000"
)

VALUE_FORMAT: Final[Option[ValueFormat]] = Option(
    "valueFormat",
    "`columns`, `binary`",
    "`columns`: the topic's schema encodes the columns; a topic without one gets an AVRO schema, or for one column `value` that of "
    "its type. `binary`: one column `value` is sent as it is.",
    one_of("columns", "binary"),
    default="columns",
)

_PULSAR: Final = "a Pulsar cluster"


def _part_of(option: str, text: str) -> Opened:
    try:
        return opened_of(text)
    except ValueError:
        raise bad(
            option,
            text,
            "it is no transaction of a Pulsar cluster",
            "Write `.options(**txn.options)` within `with connect('pulsar://..').transaction() as txn`.",
        ) from None


PART_OF: Final = Option(
    TXN_STAGING.name,
    TXN_STAGING.values,
    TXN_STAGING.meaning,
    _part_of,
    only="batch",
    why="a transaction over several topics is committed by a program: write in `foreachBatch`",
)

SINK: Final = OptionTable(
    "sink",
    (
        PULSAR_URL,
        TOPIC,
        PULSAR_KEY,
        SEGMENTS,
        AUTO_CREATE,
        without(MERGE_SCHEMA, _PULSAR, "a write never changes the schema of a topic that has one"),
        TXN_APP_ID,
        TXN_VERSION,
        PART_OF,
        TXN_TIMEOUT,
        AFTER_RESTORE,
        COMPRESSION,
        ENTRY_BYTES,
        ENTRY_ROWS,
        VALUE_FORMAT,
        without(SCHEMA_VERSION, _PULSAR, "rows are written by the latest version of the topic's schema"),
    ),
    spark_own=(PATH, PATHS),
    more=(ADMIN_URL, HASH_BITS),
)


@dataclass(frozen=True)
class PulsarWriteOptions:
    """The options of one write. `part_of`: the transaction over several topics that takes the rows; None: the write has a
    transaction of its own. For the other fields None means the same as in `spark_txn_sink.options.WriteOptions`.
    """

    service_url: str
    topic: str
    streaming: bool
    key_column: str | None
    hash_bits: HashBits
    segments: int
    auto_create: bool
    admin_url: str | None
    txn_app_id: str | None
    txn_version: int | None
    txn_timeout_ms: int
    part_of: Opened | None
    after_restore: AfterRestore
    compression: Compression
    entry_bytes: int
    entry_rows: int
    value_format: ValueFormat

    @classmethod
    def parse(
        cls, options: Mapping[str, object], *, streaming: bool, environment: Mapping[str, str] = os.environ
    ) -> PulsarWriteOptions:
        """Parse and check the options of a batch or streaming write. Raises OptionError."""
        given = SINK.read(options, streaming=streaming)
        app, version = given.get(TXN_APP_ID), given.get(TXN_VERSION)
        part_of = given.get(PART_OF)
        check_alone(given, part_of)
        check_version(app, version, streaming=streaming)
        admin = given.get(ADMIN_URL)
        if admin is None and environment.get(ADMIN_VARIABLE, "").strip():
            admin = _admin(f"The environment variable {ADMIN_VARIABLE}", environment[ADMIN_VARIABLE])
        return cls(
            service_url=service_url(given.get(SERVICE_URL), environment).text,
            topic=written_to(given, PATH, TOPIC),
            streaming=streaming,
            key_column=given.get(KEY_COLUMN),
            hash_bits=given.value(HASH_BITS),
            segments=given.value(SEGMENTS),
            auto_create=given.value(AUTO_CREATE),
            admin_url=admin,
            txn_app_id=app,
            txn_version=version,
            txn_timeout_ms=given.value(TXN_TIMEOUT),
            part_of=part_of,
            after_restore=given.value(AFTER_RESTORE),
            compression=given.value(COMPRESSION),
            entry_bytes=given.value(ENTRY_BYTES),
            entry_rows=given.value(ENTRY_ROWS),
            value_format=given.value(VALUE_FORMAT),
        )
