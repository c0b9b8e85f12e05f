"""The rows that a program without Spark appends: their schema at the broker, and their conversion into messages."""

from __future__ import annotations

import pyarrow as pa

from ledgers.arrow import arrow_schema, conform
from metadata.common.errors import SchemaError
from metadata.topics.topic import warn_of_segments
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Rows
from pulsar_protocol.layout import Layout
from pulsar_protocol.values import Values, codec
from spark_txn_sink.pulsar.admin import found_or_created, when_created
from spark_txn_sink.pulsar.rows import check_new_topic, is_binary, messages_of, row_format, value_columns
from txnsegment.schemas import from_arrow


def values_of(client: PulsarClient, topic: str) -> Values | None:
    """Return the value format of a topic, or None if the topic has no schema. Raises SchemaError, the broker's error."""
    schema = client.schema(topic)
    return None if schema is None else codec(schema, topic)


def layout_for(
    client: PulsarClient, topic: str, columns: pa.Schema, key: str | None, segments: int | None, admin_url: str | None
) -> Layout:
    """Return the layout of a topic that rows with these columns are sent to. If the topic does not exist, it is created as by a
    write of Spark. `admin_url`: None means that no topic is created. Raises TopicMissing, SchemaError, Refused.
    """

    def check() -> None:
        if key is not None:
            check_key(columns, key)
        check_new_topic(topic, arrow_schema(from_arrow(columns)), key, "columns")

    found = found_or_created(client, topic, admin_url, 1 if segments is None else segments, check)
    warn_of_segments(topic, segments, len(found.active), first=not any(one.parents for one in found.active))
    return found


def registered(client: PulsarClient, layout: Layout, columns: pa.Schema, key: str | None) -> Values:
    """Register the schema of the first rows of a topic that has none, as a write of Spark does, and return the value format. If
    another program has registered a schema meanwhile, its format is returned. Raises SchemaError, SchemaRefused.
    """
    if key is not None:
        check_key(columns, key)
    plain = arrow_schema(from_arrow(columns))
    return when_created(lambda: row_format(client, layout.topic, layout.active[0].name, plain, key, "columns").values())


def messages(batch: pa.RecordBatch, values: Values, key: str | None, topic: str) -> Rows:
    """Return the messages of rows. The rows must have the columns of the topic, in any order, and the key column. An integer column
    may have a wider type than the topic's if each value fits. Raises SchemaError, ValueFormatError, OptionError.
    """
    if key is not None:
        check_key(batch.schema, key)
    names = value_columns(batch.schema.names, values, key, topic)
    rows = conform(batch.select(list(names)), values.columns, "fitting")
    return messages_of(rows, values, None if key is None else batch.column(key))


def check_key(columns: pa.Schema, key: str) -> None:
    """Check that rows have the key column, and that its type is allowed for a key. Raises SchemaError."""
    if key not in columns.names:
        raise SchemaError(f"There is no column {key!r} for the key.", advice=f"The columns are: {', '.join(columns.names)}.")
    if columns.names.count(key) > 1:
        raise SchemaError(f"The rows have the column {key!r} twice.", advice="Give every column once.")
    kind = columns.field(key).type
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_binary(kind)):
        raise SchemaError(f"The column {key!r} has the type {kind}, which is no key.", advice="Give text, bytes or integers.")
