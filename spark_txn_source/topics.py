"""What a read's topics look like together: their schemas as one, and what of it the user wants (issue 2, section 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ledgers import schema as schemas
from metadata import transaction_buffer
from metadata.client import Client
from metadata.errors import SchemaError
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


def full_schema(client: Client, topics: Iterable[Topic]) -> StructType:
    """The union of the topics' schemas by column name, widened where needed. Raises SchemaError for conflicts, or no schema."""
    found = [(str(t.name), client.topics.schema(t)) for t in topics]
    known = [(name, schema) for name, schema in found if schema is not None]
    if not known:
        raise SchemaError(
            f"None of the topics has a schema yet: {', '.join(name for name, _ in found) or 'no topic matches'}.",
            advice="Write to it first, create it with a schema, or give one: spark.read.schema(...).",
        )
    return schemas.union([schema for _, schema in known], [name for name, _ in known])


def columns_of(full: StructType, options: CommonReadOptions, given: StructType | None = None) -> Columns:
    """Project: the option `columns`, or a user's schema (it may subset, reorder or widen). Raises SchemaError for unknown names."""
    if given is None:
        wanted = full if options.columns is None else schemas.columns(full, list(options.columns))
        extra = list(METADATA_FIELDS) if options.include_metadata else []
        return Columns(full, wanted, StructType([*wanted.fields, *extra]))
    plain = StructType([f for f in given if not (options.include_metadata and f.name in METADATA_NAMES)])
    return Columns(full, schemas.project(full, plain), given)
