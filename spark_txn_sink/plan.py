"""The plan of one write: its topic, segments and column types. The driver makes it before a row is staged."""

from __future__ import annotations

from pyspark.sql.types import BinaryType, StructType

from ledgers.arrow import arrow_schema
from ledgers.avro.columns import columns_of
from ledgers.schema import check_writable
from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import OptionError, SchemaError
from metadata.records.names import PersistentName, TopicName
from metadata.store.contract import time_ms
from metadata.topics.keys import key_of
from metadata.topics.routing import targets
from spark_txn_sink.options import SEGMENTS, WriteOptions
from spark_txn_sink.planned import WritePlan

OVERWRITE = OptionError(
    "Overwrite mode and complete output mode are not supported: a topic is a log, and readers may have read its rows.",
    advice='Write mode("append") or outputMode("append"); for results that change, append each version with its batch id, or '
    "write to a new topic.",
)


def plan_write(client: Client, options: WriteOptions, schema: StructType) -> WritePlan:
    """Return the plan of a write. Find the topic, or create it if the options allow that, and check that it can take the rows.
    Idempotent.

    Raises SchemaError, OptionError, TopicNotFound.
    """
    if options.value_format == "avro":
        return _plan_values(client, options, schema)
    check_writable(schema)
    segments = options.segments if SEGMENTS.name in options.routing else None
    topic = Providers(client).ensure(
        where_to(client, options), schema, segments=segments, key=options.key_column, create=options.auto_create
    )
    key = key_of(topic, options.key_column, arrow_schema(schema))
    latest = client.topics.schemas.latest(topic)
    grown = client.topics.schemas.grown(topic, schema, grow=options.merge_schema)
    same = latest is not None and grown is latest.columns
    types = StructType([grown[field.name] for field in schema])
    return WritePlan(
        topic=topic.name,
        to=targets(topic),
        key=key,
        types=types,
        schema_id=topic.layout.schema_id if same and key == topic.layout.key else None,
        staged_ms=time_ms(client.cluster.store),
        storage_uri=client.cluster.storage.uri,
        options=options.for_tasks(),
        avro=None if latest is None else latest.record.avro,
        statistics=client.cluster.has_statistics,
        grows=options.merge_schema,
    )


def where_to(client: Client, options: WriteOptions) -> TopicName:
    """Return the topic that the given name stands for now. The name of a migrated `persistent://` topic stands for its successor
    `topic://`. A `persistent://` name of which no topic exists stands for a `topic://` if its namespace creates new topics as
    `topic://`. Raises OptionError if the options have `routing` and the topic is marker-based, because such a topic has no
    segments.
    """
    name = Providers(client).resolve(str(options.topic))
    if isinstance(name, PersistentName) and options.routing:
        first = options.routing[0]
        raise OptionError(
            f"The option {first} is given, but {name} is a persistent:// topic, which has one log and no segments.",
            advice=f"Leave {first} out, or write to a topic:// topic.",
        )
    return name


def _plan_values(client: Client, options: WriteOptions, schema: StructType) -> WritePlan:
    """Return the plan of a write whose rows are Avro values. The tasks decode these values by a version of the topic's schema."""
    if [(f.name, f.dataType) for f in schema] != [("value", BinaryType())]:
        raise SchemaError(
            f"With valueFormat=avro a write has one column, value (binary), and not {schema.simpleString()}.",
            advice='Write df.select("value"). keyColumn names a field of the Avro record.',
        )
    topic, schemas = client.topics.get(where_to(client, options)), client.topics.schemas
    found = schemas.latest(topic) if options.schema_version is None else schemas.version(topic, options.schema_version)
    if found is None:
        raise SchemaError(
            f"The topic {topic.name} has no schema to read the values by.",
            advice="Register one first (txnsegment topics schema TOPIC --set FILE).",
        )
    types = columns_of(found.avro)
    key = key_of(topic, options.key_column, arrow_schema(types))
    return WritePlan(
        topic=topic.name,
        to=targets(topic),
        key=key,
        types=types,
        schema_id=found.version if key == topic.layout.key else None,
        staged_ms=time_ms(client.cluster.store),
        storage_uri=client.cluster.storage.uri,
        options=options.for_tasks(),
        avro=found.avro_text,
        values=True,
        statistics=client.cluster.has_statistics,
    )
