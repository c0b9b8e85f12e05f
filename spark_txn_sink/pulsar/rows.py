"""Converts rows into messages, with keys and values, by the schema of the topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from metadata.common.errors import OptionError, SchemaError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.entries import Rows
from pulsar_protocol.first_schema import register_first
from pulsar_protocol.messages import Schema
from pulsar_protocol.values import VALUE, Values, codec, codec_for
from spark_txn_sink.pulsar.options import ValueFormat


@dataclass(frozen=True)
class RowFormat:
    """How rows become messages. This object is pickled to the tasks. `key`: the column with the key of a message. `columns`: the
    columns that form the value of a message. `schema`: the topic's schema as bytes; None: the value is one binary column without a
    schema.
    """

    key: str | None
    columns: tuple[str, ...]
    schema: bytes | None

    def values(self) -> Values:
        return codec(None if self.schema is None else Schema.FromString(self.schema))

    def rows(self, batch: pa.RecordBatch, values: Values) -> Rows:
        """Return the messages of the rows of a batch. Raises SchemaError, ValueFormatError."""
        column = None if self.key is None else batch.column(batch.schema.get_field_index(self.key))
        return messages_of(batch.select(list(self.columns)), values, column)


def messages_of(batch: pa.RecordBatch, values: Values, column: pa.Array | None) -> Rows:
    """Return the messages of the rows of a batch. `column`: the keys of the messages; None: the topic's schema decides whether the
    rows have keys (KEY_VALUE). An integer key becomes its decimal text. Raises SchemaError, ValueFormatError.
    """
    if column is None:
        keys, binary = values.keys_of(batch), True
    else:
        keys, binary = _bytes(column), is_binary(column.type)
    marks = [key is not None for key in keys] if binary and keys is not None else None
    return Rows(values.encode(batch), range(batch.num_rows), keys, binary_keys=marks)


def row_format(
    client: PulsarClient, topic: str, segment: str, columns: pa.Schema, key: str | None, value_format: ValueFormat
) -> RowFormat:
    """Return the format of a write, and register a schema if the topic has none and the rows need one. Idempotent.

    The values are encoded by the topic's schema. If the topic has no schema, the format depends on the columns other than the key.
    A single binary column `value` is sent as it is. For a single column `value` of another type, the topic gets the schema of this
    type. For all other columns the topic gets an AVRO schema of a record. If entries of the topic name a version of a schema that
    is gone, the topic gets no schema (SchemaError). Raises SchemaError, OptionError, or SchemaRefused by the broker.
    """
    kept = None if value_format == "binary" else client.schema(topic)
    values = _new(columns, key, value_format) if kept is None else codec(kept, topic)
    names = _checked(columns, values, key, topic)
    if kept is None and values.schema is not None:
        register_first(client, topic, segment, values.schema)
    return RowFormat(key, names, None if values.schema is None else values.schema.SerializeToString())


def check_new_topic(topic: str, columns: pa.Schema, key: str | None, value_format: ValueFormat) -> None:
    """Check that a topic without a schema takes these columns. So a refused write does not leave an empty topic. Raises
    SchemaError, OptionError.
    """
    _checked(columns, _new(columns, key, value_format), key, topic)


def _checked(columns: pa.Schema, values: Values, key: str | None, topic: str) -> tuple[str, ...]:
    """Return the columns that form the values of messages, after a check of their types. Raises SchemaError, OptionError."""
    names = value_columns(columns.names, values, key, topic)
    empty = columns.empty_table().select(list(names))
    values.encode(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in empty.schema], schema=empty.schema))
    return names


def value_columns(names: Sequence[str], values: Values, key: str | None, topic: str) -> tuple[str, ...]:
    """Return which columns of rows form the values of messages: all, without the key column if the topic's schema does not have it.
    Raises SchemaError unless these are the columns of the topic. Raises OptionError if there are two sources of the key.
    """
    if values.takes_keys and key is not None:
        raise OptionError(
            f"The key column is {key!r}, but the schema of {topic} has the keys in its rows (KEY_VALUE, separated).",
            advice="Give no key column (the option keyColumn, the argument key): leave it out.",
        )
    wanted = values.columns.names
    found = tuple(name for name in names if name != key or name in wanted)
    if sorted(found) == sorted(wanted):
        return found
    missing, more = [name for name in wanted if name not in found], [name for name in found if name not in wanted]
    advice = [f"Add the missing columns (null where there is no value): {', '.join(missing)}."] if missing else []
    if more:
        advice.append(
            f"Leave out: {', '.join(more)}. Or register a version of the schema that has them (pulsar-admin schemas upload): a "
            "write does not extend the schema of a Pulsar topic."
        )
    raise SchemaError(
        f"The rows have the columns {', '.join(found) or 'none'}, and the values of {topic} have {', '.join(wanted)}.",
        advice=" ".join(advice) or "Give every column once.",
    )


def _new(columns: pa.Schema, key: str | None, value_format: ValueFormat) -> Values:
    """Return the format of a topic that has no schema."""
    rest = pa.schema([field for field in columns if field.name != key or field.name == VALUE])
    if value_format == "binary" or (rest.names == [VALUE] and is_binary(rest.field(0).type)):
        return codec(None)
    if rest.names == [VALUE]:
        return codec_for(rest, "primitive")
    return codec_for(columns, "avro")


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _bytes(column: pa.Array) -> list[bytes | None]:
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found
