"""The plan of one write to Pulsar. The driver makes it before a task runs, and opens the transaction."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from metadata.common.errors import OptionError, SchemaError
from metadata.topics.routing import check_key
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Compression
from pulsar_protocol.layout import Bits, Layout
from spark_txn_sink.pulsar.admin import found_or_created
from spark_txn_sink.pulsar.attempts import Opened, open_transaction
from spark_txn_sink.pulsar.options import HashBits, PulsarWriteOptions

VALUE = "value"


@dataclass(frozen=True)
class PulsarPlan:
    """The plan of one write. It is pickled to the tasks. `layout`: the segments at the start of the write. `key`: the column that
    routes rows. `opened`: the transaction that takes the rows.
    """

    service_url: str
    topic: str
    layout: Layout
    bits: Bits
    key: str | None
    compression: Compression
    entry_bytes: int
    entry_rows: int
    opened: Opened


def plan_write(client: PulsarClient, options: PulsarWriteOptions, schema: StructType, unique: str) -> PulsarPlan:
    """Return the plan of a write, with an open transaction. Raises SchemaError, OptionError, TopicMissing, the broker's error."""
    check_columns(options, schema)
    admin = options.admin_url if options.auto_create else None
    layout = found_or_created(client, options.topic, admin, options.segments)
    return PulsarPlan(
        service_url=options.service_url,
        topic=options.topic,
        layout=layout,
        bits=hash_bits(options.hash_bits, client),
        key=options.key_column,
        compression=options.compression,
        entry_bytes=options.entry_bytes,
        entry_rows=options.entry_rows,
        opened=open_transaction(client, options.topic, options.admin_url, options.txn_timeout_ms, unique),
    )


def check_columns(options: PulsarWriteOptions, schema: StructType) -> None:
    """Check that the rows have a column `value` of bytes or text, and beside it the key only. Raises SchemaError, OptionError."""
    columns = arrow_schema(schema)
    if options.key_column is not None:
        check_key(options.key_column, columns)
    names = [name for name in columns.names if name != options.key_column or name == VALUE]
    if names != [VALUE] or not _is_bytes(columns.field(VALUE).type):
        raise SchemaError(
            f"A write to the topic {options.topic} has the columns {', '.join(columns.names)}, and not {VALUE} (binary or string).",
            advice=f"Select one column {VALUE}, and the column that keyColumn names.",
        )


def _is_bytes(kind: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(test(kind) for test in tests)


def hash_bits(option: HashBits, client: PulsarClient) -> Bits:
    """Return the bits of a key's hash by which the broker's clients route. Raises OptionError for an unknown version."""
    if option != "auto":
        return option
    server = client.channel().ready.server
    version = server.removeprefix("Pulsar Server").removeprefix("-v").removeprefix("pulsar-").strip()
    if not version[:1].isdigit():
        raise OptionError(
            f"The broker's version is {server!r}, so it is unknown how its clients route keys.", advice="Give hashBits=low or high."
        )
    return "low" if version.startswith("5.0.0-M1") else "high"
