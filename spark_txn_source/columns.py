"""Finds the columns of a read: all columns of the topics, and those that the read returns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, StringType, StructField, StructType, TimestampType

from ledgers import schema as schemas
from metadata.client.client import Client
from metadata.client.logs import Logs
from metadata.common.errors import OptionError, SchemaError
from metadata.topics.schemas import SchemaVersion
from metadata.topics.topics import Topic
from spark_txn_source.options import CommonReadOptions

METADATA_FIELDS = (
    StructField("__topic", StringType()),
    StructField("__segment", StringType()),
    StructField("__messageId", StringType()),
    StructField("__publishTime", TimestampType()),
    StructField("__txnId", StringType()),
)
VALUE_FIELD = StructField("value", BinaryType())
METADATA_NAMES = frozenset(f.name for f in METADATA_FIELDS)


@dataclass(frozen=True)
class Columns:
    """The columns of a read. `full`: all columns of the topics. `wanted`: the columns to read from the topics. `output`: the
    columns that Spark gets.

    With `valueFormat=avro` Spark gets each row as Avro bytes. Then `avro` is the schema by which the rows are encoded, and
    `version` is the version of this schema. With `valueFormat=columns` both are None. `pinned`: whether the user chose a schema
    version.
    """

    full: StructType
    wanted: StructType
    output: StructType
    avro: str | None = None
    version: int | None = None
    pinned: bool = False

    @property
    def with_metadata(self) -> bool:
        """Whether the output has metadata columns, or a value column in place of the topics' columns."""
        return [f.name for f in self.output] != [f.name for f in self.wanted]


def full_schema(client: Client, topics: Iterable[Topic]) -> StructType | None:
    """Return the union of the topics' schemas, by column name and with widened types, or None if no topic has a schema. Raises
    SchemaError if two schemas conflict.
    """
    known = [(str(t.name), schema) for t in topics if (schema := client.topics.schema(t)) is not None]
    if not known:
        return None
    return schemas.union([schema for _, schema in known], [name for name, _ in known])


def columns_now(client: Client, options: CommonReadOptions) -> Columns:
    """Return the columns of a read for which the user gives no schema. By default these are all current columns of the topics, or
    all columns of the schema version that the user chose. The option `columns` selects some of them. With `valueFormat=avro` the
    value column takes their place. `includeMetadata=true` adds the metadata columns. Raises TopicNotFound, SchemaError.
    """
    full, version = _schemas(client, options)
    if full is None:
        raise SchemaError(
            "The topics of the read have no schema yet: nothing was written, or no topic matches.",
            advice="Write first, create the topic with a schema, or give one: spark.read.schema(...).",
        )
    extra = list(METADATA_FIELDS) if options.include_metadata else []
    if options.value_format == "avro":
        return _values(full, version, StructType([VALUE_FIELD, *extra]), options)
    known = full if version is None else version.columns
    wanted = known if options.columns is None else schemas.columns(known, list(options.columns))
    return Columns(full, wanted, StructType([*wanted.fields, *extra]), pinned=version is not None)


def columns_wanted(client: Client, options: CommonReadOptions, given: StructType) -> Columns:
    """Return the columns of a read with the schema `given`, which Spark passes: the schema from `columns_now`, or one that the user
    gave. The user's schema may leave out, reorder or widen columns. The user's schema may also declare a column NOT NULL. Then a
    null in this column is an error. Raises TopicNotFound, SchemaError, OptionError.
    """
    full, version = _schemas(client, options)
    for field in (f for f in given if f.name in METADATA_NAMES):
        _check_metadata(field, options)
    wanted = StructType([f for f in given if f.name not in METADATA_NAMES])
    if options.value_format == "avro":
        if [(f.name, f.dataType) for f in wanted] != [(VALUE_FIELD.name, VALUE_FIELD.dataType)]:
            raise SchemaError(
                f"With valueFormat=avro a read has the column value (binary), and not {wanted.simpleString()}.",
                advice="Leave the schema out. Which fields a value has is the topic's schema, by schemaVersion.",
            )
        if full is None:
            raise SchemaError("The topic has no schema yet.", advice="Register one (txnsegment topics schema TOPIC --set FILE).")
        return _values(full, version, given, options)
    if options.columns is not None and wanted.fieldNames() != list(options.columns):
        raise OptionError(
            f"The option columns is {', '.join(options.columns)}, but the schema given has {', '.join(wanted.fieldNames())}.",
            advice="Give one of the two.",
        )
    if full is None:
        schemas.check_writable(wanted)
        return Columns(schemas.nullable(wanted), wanted, given)
    if wanted.fields:
        schemas.project(full if version is None else version.columns, wanted)
    return Columns(full, wanted, given, pinned=version is not None)


def _schemas(client: Client, options: CommonReadOptions) -> tuple[StructType | None, SchemaVersion | None]:
    """Return two values: all current columns of the topics, and the schema version that the user chose for the read. If the user
    chose no version, the second value is the latest version for Avro values, and None for columns.
    """
    topics = Logs(client, options.selection).topics_now()
    full = full_schema(client, topics)
    if options.schema_version is not None:
        return full, client.topics.schemas.version(topics[0], options.schema_version)
    return full, client.topics.schemas.latest(topics[0]) if options.value_format == "avro" else None


def _values(full: StructType, version: SchemaVersion | None, output: StructType, options: CommonReadOptions) -> Columns:
    assert version is not None, "a topic with columns has a version"
    from ledgers.avro.columns import columns_of  # imported late, because few reads return Avro values

    wanted = columns_of(version.avro)
    schemas.project(full, wanted)
    return Columns(full, wanted, output, version.avro_text, version.version, options.schema_version is not None)


def _check_metadata(field: StructField, options: CommonReadOptions) -> None:
    if not options.include_metadata:
        raise SchemaError(f"The column {field.name} is a metadata column.", advice="Read it with includeMetadata=true.")
    kind = next(f.dataType for f in METADATA_FIELDS if f.name == field.name)
    if field.dataType != kind:
        raise SchemaError(
            f"The metadata column {field.name} is {kind.simpleString()}; it cannot be read as {field.dataType.simpleString()}.",
            advice="Read it with its own type and cast it after.",
        )
