"""The columns of a read from Pulsar: those of the topic's schema, or one column `value`, and the metadata columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType, TimestampType

from ledgers import schema as schemas
from metadata.common.errors import OptionError, SchemaError
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.messages import Schema
from pulsar_protocol.values import Values, codec
from spark_txn_source import columns as others
from spark_txn_source.pulsar.asking import each
from spark_txn_source.pulsar.options import PulsarReadOptions
from spark_txn_source.pulsar.selection import topics_now
from spark_txn_source.pulsar.topics import layout, shared_client

METADATA_FIELDS = (
    *others.METADATA_FIELDS,
    StructField("__key", BinaryType()),
    StructField("__properties", MapType(StringType(), StringType())),
    StructField("__eventTime", TimestampType()),
    StructField("__orderingKey", BinaryType()),
)
"""The metadata columns of a read. The first ones are those of reads from a txnsegment cluster, with the same meanings. The others
exist only for Pulsar's messages.
"""
_KINDS = {field.name: field.dataType for field in METADATA_FIELDS}


@dataclass(frozen=True)
class PulsarColumns:
    """The columns of a read. `wanted`: the columns to read from the topic. `output`: the columns that Spark gets. `schema`: the
    schema of the topic as bytes, in the version of the option `schemaVersion`, or else in the version that was the latest when the
    read began. None: values are not decoded, and the column `value` has their bytes. `binary`: whether the user wants these bytes
    (valueFormat=binary). Otherwise an entry that names a version of a schema is an error if `schema` is None.
    """

    wanted: StructType
    output: StructType
    schema: bytes | None
    binary: bool = False

    def values(self, topic: str) -> Values:
        return codec(None if self.schema is None else Schema.FromString(self.schema), topic)


class Part(NamedTuple):
    """The part of a read that concerns one topic: the options as if only this topic were read, and the columns."""

    options: PulsarReadOptions
    columns: PulsarColumns


def columns_now(options: dict[str, str]) -> StructType:
    """Return the columns of a read for which the user gives no schema. Raises OptionError, TopicMissing, SchemaError."""
    found = PulsarReadOptions.parse(options, streaming=None)
    client = shared_client(found.url)
    full = united(_columns_of(client, found, topics_now(client, found.selection)))
    wanted = full if found.columns is None else schemas.columns(full, list(found.columns))
    return StructType([*wanted.fields, *(METADATA_FIELDS if found.include_metadata else ())])


def part_of(options: dict[str, str], given: StructType, *, streaming: bool) -> Part:
    """Return the options and columns of a read of one topic. `given`: see `parts_of`. Raises OptionError, TopicMissing,
    SchemaError.
    """
    found = PulsarReadOptions.parse(options, streaming=streaming)
    return Part(found, parts_of(shared_client(found.url), found, [found.topic], given)[found.topic])


def parts_of(
    client: PulsarClient, options: PulsarReadOptions, topics: Sequence[str], given: StructType
) -> dict[str, PulsarColumns]:
    """Return the columns of each topic of a read. `given`: the schema of the read, from `columns_now` or from the user. The user's
    schema may leave out, reorder or widen columns. The rows of all topics have the same columns. A column that a topic does not
    have is null. Raises OptionError, TopicMissing, SchemaError.
    """
    for field in given:
        if field.name in _KINDS and not options.include_metadata:
            raise SchemaError(f"The column {field.name} is a metadata column.", advice="Read it with includeMetadata=true.")
        if field.name in _KINDS and field.dataType != _KINDS[field.name]:
            raise SchemaError(
                f"The metadata column {field.name} is {_KINDS[field.name].simpleString()}; it cannot be read as "
                f"{field.dataType.simpleString()}.",
                advice="Read it with its own type and cast it after.",
            )
    wanted = StructType([field for field in given if field.name not in _KINDS])
    if options.columns is not None and wanted.fieldNames() != list(options.columns):
        raise OptionError(
            f"The option columns is {', '.join(options.columns)}, but the schema given has {', '.join(wanted.fieldNames())}.",
            advice="Give one of the two.",
        )
    columns = _columns_of(client, options, topics)
    if wanted.fields:
        schemas.project(united(columns), wanted)
    return {topic: PulsarColumns(wanted, given, schema, options.value_format == "binary") for topic, (_, schema) in columns.items()}


def united(columns: Mapping[str, tuple[StructType, bytes | None]]) -> StructType:
    """Return the union of the columns of several topics, by name and with widened types. Raises SchemaError if two columns of the
    same name conflict.
    """
    found = [columns_of for columns_of, _ in columns.values()]
    return found[0] if len(found) == 1 else schemas.nullable(schemas.union(found, list(columns)))


def _columns_of(
    client: PulsarClient, options: PulsarReadOptions, topics: Sequence[str]
) -> dict[str, tuple[StructType, bytes | None]]:
    """Return the columns of each topic, and the bytes of its schema."""

    def one(topic: str) -> tuple[StructType, bytes | None]:
        layout(client, topic)  # raises TopicMissing; the request for a schema does not tell whether the topic exists
        schema = None if options.value_format == "binary" else _schema(client, topic, options.schema_version)
        return from_arrow_schema(codec(schema, topic).columns), None if schema is None else schema.SerializeToString()

    found = each(topics, one)
    return {topic: found[topic] for topic in topics}


def _schema(client: PulsarClient, topic: str, version: int | None) -> Any | None:
    """Return a version of a topic's schema, or the latest version if `version` is None. Return None if the topic has no schema.
    Raises SchemaError if the topic does not have the version.
    """
    if version is None:
        return client.schema(topic)
    found = client.schema(topic, version.to_bytes(8, "big"))
    if found is None:
        raise SchemaError(
            f"{topic} has no schema version {version}.",
            advice="The versions count from 0 (pulsar-admin schemas get). Leave schemaVersion out to read by the latest one.",
        )
    return found
