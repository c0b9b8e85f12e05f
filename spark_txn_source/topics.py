"""What a read's topics look like together: their schemas as one, and what of it the user wants (issue 2, section 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ledgers import schema as schemas
from metadata import transaction_buffer
from metadata.client import Client
from metadata.errors import OptionError, SchemaError
from metadata.names import SegmentName
from metadata.topics import Topic
from spark_txn_source.options import CommonReadOptions
from spark_txn_source.selection import Pattern, Selection

METADATA_FIELDS = (
    StructField("__topic", StringType()),
    StructField("__segment", StringType()),
    StructField("__messageId", StringType()),
    StructField("__publishTime", TimestampType()),
    StructField("__txnId", StringType()),
)
METADATA_NAMES = frozenset(f.name for f in METADATA_FIELDS)


def selected(selection: Selection) -> transaction_buffer.Selection:
    """The selection in the words of the transaction buffer."""
    if isinstance(selection, Pattern):
        return transaction_buffer.Selection(pattern=selection.regex)
    return transaction_buffer.Selection(names=tuple(str(n) for n in selection.names))


def topics_now(client: Client, selection: Selection) -> list[Topic]:
    """The topics that a selection names today. Raises TopicNotFound; a pattern may match none."""
    if isinstance(selection, Pattern):
        return client.topics.list(selection.regex)
    names = dict.fromkeys(n.topic if isinstance(n, SegmentName) else n for n in selection.names)
    return [client.topics.get(name) for name in names]


@dataclass(frozen=True)
class Columns:
    """`full`: all columns of the topics; `wanted`: those of the read, without metadata columns; `output`: what Spark gets."""

    full: StructType
    wanted: StructType
    output: StructType


def full_schema(client: Client, topics: Iterable[Topic]) -> StructType | None:
    """The union of the topics' schemas by column name, widened where needed; None while none has one. SchemaError for conflicts."""
    known = [(str(t.name), schema) for t in topics if (schema := client.topics.schema(t)) is not None]
    if not known:
        return None
    return schemas.union([schema for _, schema in known], [name for name, _ in known])


def columns_of(full: StructType | None, options: CommonReadOptions) -> Columns:
    """What a read gives when the user gives no schema: all columns, or those of the option `columns`. Raises SchemaError."""
    if full is None:
        raise SchemaError(
            "What is read has no schema yet: nothing was written, or no topic matches.",
            advice="Write first, create the topic with a schema, or give one: spark.read.schema(...).",
        )
    wanted = full if options.columns is None else schemas.columns(full, list(options.columns))
    extra = list(METADATA_FIELDS) if options.include_metadata else []
    return Columns(full, wanted, StructType([*wanted.fields, *extra]))


def columns_given(full: StructType | None, options: CommonReadOptions, given: StructType) -> Columns:
    """What a read gives in the schema that Spark hands over: the one of `columns_of`, or the user's, which may subset, reorder or
    widen, and say NOT NULL (a null is then an error). Raises SchemaError, OptionError.
    """
    metadata = [f for f in given if f.name in METADATA_NAMES]
    for field in metadata:
        if not options.include_metadata:
            raise SchemaError(f"The column {field.name} is a metadata column.", advice="Read it with includeMetadata=true.")
        kind = next(f.dataType for f in METADATA_FIELDS if f.name == field.name)
        if field.dataType != kind:
            raise SchemaError(
                f"The metadata column {field.name} is {kind.simpleString()}; it cannot be read as {field.dataType.simpleString()}.",
                advice="Read it with its own type and cast it after.",
            )
    wanted = StructType([f for f in given if f.name not in METADATA_NAMES])
    if options.columns is not None and wanted.fieldNames() != list(options.columns):
        raise OptionError(
            f"The option columns is {', '.join(options.columns)}, but the schema given has {', '.join(wanted.fieldNames())}.",
            advice="Give one of the two.",
        )
    if full is None:
        schemas.check_writable(wanted)
        return Columns(schemas.nullable(wanted), wanted, given)
    if wanted.fields:
        schemas.project(full, wanted)
    return Columns(full, wanted, given)
