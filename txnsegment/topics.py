"""`cluster.topics`: create, list, describe, split, merge, migrate and delete topics, and manage their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from ledgers.avro.modes import DEFAULT, Compatibility
from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common.errors import OptionError, SchemaError
from metadata.common.options import one_of
from metadata.records import paths
from metadata.records.names import PersistentName, TopicName, any_topic_name, persistent_name
from metadata.records.persistent_records import Model, PersistentLayout
from metadata.records.records import SegmentInfo, SegmentState
from metadata.store.contract import look
from metadata.topics.policies import namespace_of
from metadata.topics.routing import check_key
from metadata.topics.schemas import SchemaVersion
from metadata.topics.topic import of_record
from metadata.topics.topics import Topic, compiled
from spark_txn_source.columns import METADATA_NAMES
from txnsegment.ddl import parse_schema
from txnsegment.descriptions import PersistentDescription as PersistentDescription
from txnsegment.descriptions import SchemaDescription as SchemaDescription
from txnsegment.descriptions import SegmentDescription as SegmentDescription
from txnsegment.descriptions import TopicDescription as TopicDescription
from txnsegment.filters import Filter
from txnsegment.reading import Place, follow, options_of, read
from txnsegment.schemas import from_arrow

Schema: TypeAlias = "StructType | pa.Schema | str"
"""A Spark schema, an Arrow schema, or Spark's DDL text, such as `id bigint, name string`."""


class ClusterTopics:
    """The topics of a cluster. A bare `name` means `topic://public/default/name`.

        cluster.topics.create("orders", segments=4, key="customer", schema="customer string, amount double")

    Marker-based topics are named in full, `persistent://tenant/namespace/name`. They have neither segments nor a key
    (docs/in_stream.md).
    """

    metadata_columns = METADATA_NAMES
    """The columns that `read` and `follow` add with `metadata=True`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, name: str, *, segments: int = 1, key: str | None = None, schema: Schema | None = None) -> TopicDescription:
        """Create a topic. `segments`: the number of segments. Their hash ranges have equal sizes. `key`: the column whose hash
        routes rows (string, binary or integer).

        Raises TopicExists, OptionError (an invalid name, number or key), SchemaError (a type that a topic cannot keep).
        """
        parsed = named(self._client, name)  # a namespace may turn new persistent:// names into topic://
        struct = None if schema is None else _struct(schema)
        if isinstance(parsed, PersistentName):
            if segments != 1:
                raise no_segments(parsed, f"It cannot have {segments}")
            if key is not None:
                raise no_segments(parsed, f"Rows are not routed by a key such as {key!r}")
            self._client.instream.topics.create(parsed, schema=struct)
            return self.describe(name)
        if key is not None:
            if not key.strip():
                raise OptionError(
                    "The key column's name is empty.", advice="Name a column, or leave it out for rows without a key."
                )
            if struct is not None:
                check_key(key, arrow_schema(struct))
        return self._described(self._client.topics.create(parsed, segments=segments, key=key, schema=struct))

    def list(self, pattern: str | None = None) -> list[TopicDescription]:
        """Return all topics whose full name matches the whole regular expression `pattern`, sorted by name. Marker-based topics
        come last. Raises OptionError for an invalid pattern.
        """
        scalable = [self._described(topic) for topic in self._client.topics.list(pattern)]
        marker_based = self._client.instream.topics.list(compiled(pattern))
        return [*scalable, *(self._described(Topic(topic.name, topic.layout, topic.record)) for topic in marker_based)]

    def describe(self, name: str) -> TopicDescription:
        """Return the current state of a topic. Raises TopicNotFound."""
        parsed = named(self._client, name)
        if isinstance(parsed, PersistentName):
            self._client.instream.migrator.check_there(parsed)
        return self._described(self._client.topics.get(parsed))

    def read(
        self,
        name: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        start: Place = "earliest",
        end: Place = "latest",
        filter: Filter | None = None,
        metadata: bool = False,
    ) -> pa.RecordBatchReader:
        """Return the committed rows of a topic as a stream of Arrow batches, which pandas, Polars and DuckDB take. No subscription
        is needed. The call plans the read, and the rows are read from their files as they are taken.

            cluster.topics.read("orders").read_pandas()
            polars.DataFrame(cluster.topics.read("orders", columns=["customer"], filter=[("amount", ">", 100)]))

        `name`: a topic, one `segment://..`, or a list of them, whose rows are read as a union. The rows are in the order of the
        log. A `persistent://` topic has its own order. `columns`: the columns to read; default: all. `start`, `end`: the rows after
        and up to a place: `earliest`, `latest` (now), a log number, a datetime with a time zone, or the JSON text of an offset,
        such as a result of `cluster.snapshot`. `filter`: conditions (column, operator, value) that a row must meet, all of them.
        The operators are `=`, `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`, and `= None` asks for nulls. Files whose statistics
        show that they have no such row are not read. `metadata`: whether to add the columns `__topic`, `__segment`, `__messageId`,
        `__publishTime` and `__txnId`.

        Raises the errors of a batch read of Spark: TopicNotFound, SchemaError (no such column, or the topic has no schema yet),
        OptionError, OffsetOutOfRange, DataLoss (rows after `start` are gone). The stream raises CorruptPart, StorageError.
        """
        options = options_of(self._client.cluster.url, name, columns, start, end, metadata=metadata)
        return read(self._client, options, () if filter is None else filter)

    def columns_now(self, name: str) -> StructType | None:
        """Return the columns of a topic; None if it does not exist, or has no schema yet. Raises OptionError for a bad name."""
        topic = self._client.topics.find(current_topic(self._client, name))
        return None if topic is None else self._client.topics.schema(topic)

    def follow(
        self,
        name: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        start: Place = "latest",
        metadata: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the committed rows of a topic after `start`, and wait for more without end. No subscription is needed, and nothing
        remembers what was read. A commit wakes the caller that waits.

        The arguments are those of `read`. Rows of a key are in order. When the topic gets a new column, later batches have it; with
        `columns` a change of their types is a SchemaChanged. Raises the errors of `read`, and DataLoss for rows that are deleted or
        trimmed before they are read.
        """
        return follow(self._client, options_of(self._client.cluster.url, name, columns, start, metadata=metadata))

    def delete(self, name: str) -> None:
        """Delete a topic and all of its rows. This cannot be undone.

        All segments are sealed. New reads see no rows. A read at offsets that need the rows raises DataLoss. The files are deleted
        after the grace period. A topic that is created again under the name has new segments.

        The name of a deleted marker-based topic (`persistent://`) cannot be used again. A migrated topic cannot be deleted alone.
        It is deleted with its successor `topic://`. If the successor is created again, the old name stands for the new topic, which
        does not have the earlier rows. Raises TopicNotFound, NotAllowed (the topic was migrated).
        """
        parsed = named(self._client, name)
        if isinstance(parsed, PersistentName):
            self._client.instream.migrator.check_there(parsed)
            self._client.instream.sealing.delete(parsed)
        else:
            self._client.topics.delete(parsed)

    def split(self, name: str, segment: int) -> TopicDescription:
        """Split an active segment, given by its id. The segment is sealed, and two children take one half of its hash range each.
        No row moves, and rows of a key keep their order for every reader. Running writers continue in the children.

        Raises TopicNotFound, OptionError (no such segment, or its range cannot be halved), SegmentSealed (the segment is not
        active).
        """
        return self._described(self._client.topics.split(scalable(self._client, name, "It cannot be split"), segment))

    def merge(self, name: str, first: int, second: int) -> TopicDescription:
        """Merge two active neighbouring segments, given by their ids. Both segments are sealed, and one child takes their hash
        range. Raises the same errors as `split` does.
        """
        return self._described(self._client.topics.merge(scalable(self._client, name, "It cannot be merged"), first, second))

    # --- properties -------------------------------------------------------------------------------------------------

    def properties(self, name: str) -> dict[str, str]:
        """Return all properties of a marker-based topic, including the system property. Raises TopicNotFound, OptionError (a
        `topic://` has none).
        """
        return self._client.instream.topics.properties(_marker_based(self._client, name))

    def set_property(self, name: str, key: str, value: str) -> dict[str, str]:
        """Set one property, and return all properties. Raises NotAllowed (`__contains_txn_messages` belongs to the system),
        TopicNotFound, OptionError.
        """
        topic = _marker_based(self._client, name)
        if not key.strip() or not key.isprintable():
            raise OptionError(f"{key!r} cannot be the name of a property.", advice="Give printable characters.")
        self._client.instream.topics.set_property(topic, key, value)
        return self.properties(name)

    def remove_property(self, name: str, key: str) -> dict[str, str]:
        """Remove one property if it exists, and return the remaining properties. Raises NotAllowed, TopicNotFound, OptionError."""
        self._client.instream.topics.remove_property(_marker_based(self._client, name), key)
        return self.properties(name)

    def model(self, namespace: str) -> str:
        """Return the transaction model of new `persistent://` topics in a `namespace://tenant/namespace`: `in-stream` (the topics
        are marker-based) or `metadata` (the topics are made as `topic://` topics of the same name). Raises OptionError.
        """
        tenant, name = namespace_of(namespace)
        return Providers(self._client).namespace(tenant, name).value

    def set_model(self, namespace: str, new_persistent: str) -> str:
        """Set the transaction model of new `persistent://` topics in a namespace, and return it. Set `metadata` before a migration,
        so that programs create no more marker-based topics. Existing topics do not change. Idempotent. Raises OptionError.
        """
        tenant, name = namespace_of(namespace)
        Providers(self._client).set_namespace(
            tenant, name, Model(one_of(*(m.value for m in Model))("new_persistent", new_persistent))
        )
        return self.model(namespace)

    def migrate(
        self, name: str, to: str, *, segments: int = 1, wait: timedelta | float | None = None, force: bool = False
    ) -> TopicDescription:
        """Turn a marker-based topic (`persistent://`) into the `topic://` named `to`, without copying rows.

        The log becomes the sealed first segment of the new topic, under its old name. Positions, message ids, subscriptions,
        and the committed versions of applications are kept. Running writers continue in the new topic. `segments`: the number
        of active segments that the new topic starts with. Idempotent: another call completes a migration that crashed.

        If transactions are open in the topic, the call raises TxnConflict, which names these transactions. `wait`: how long to wait
        for their end before this error, in seconds or as a timedelta. `force`: whether to abort these transactions. Raises
        TopicExists, TopicNotFound, TopicSealed, OptionError.
        """
        persistent, onto = persistent_name(name), _whole_topic(to)
        seconds = wait.total_seconds() if isinstance(wait, timedelta) else (wait or 0)
        if seconds < 0 or (seconds and force):
            raise OptionError(
                "Open transactions are either waited for or aborted at once.", advice="Give wait (not negative), or force."
            )
        made = self._client.instream.migrator.migrate(
            persistent, onto, segments=segments, wait_ms=round(seconds * 1000), force=force
        )
        return self._described(made)

    # --- schemas ------------------------------------------------------------------------------------------------

    def schema(self, name: str, version: int | None = None) -> SchemaDescription | None:
        """Return a version of the topic's schema; default: the latest. None if nothing was written yet and no schema was given.

        Raises TopicNotFound, SchemaError (no such version).
        """
        topic, schemas = self._client.topics.get(current_topic(self._client, name)), self._client.topics.schemas
        found = schemas.latest(topic) if version is None else schemas.version(topic, version)
        return None if found is None else _schema(found)

    def schemas(self, name: str) -> tuple[SchemaDescription, ...]:
        """Return all versions of the topic's schema, oldest first. Raises TopicNotFound."""
        history = self._client.topics.schemas.history(self._client.topics.get(current_topic(self._client, name)))
        return tuple(_schema(version) for version in reversed(tuple(history)))

    def set_schema(self, name: str, avro: str | Mapping[str, Any]) -> SchemaDescription:
        """Register an Avro schema (JSON) as the topic's next version. Registering the latest version again changes nothing. The
        topic gets the columns that the schema adds, and programs can write and read bytes of this schema (`valueFormat=avro`).

        Raises TopicNotFound. Raises SchemaError if this is not an Avro schema, if a topic cannot keep one of its types, if its
        columns do not fit the topic's, or if the compatibility mode refuses it.
        """
        text = avro if isinstance(avro, str) else json.dumps(avro)
        return _schema(self._client.topics.schemas.register(current_topic(self._client, name), text))

    def compatibility(self, name: str) -> Compatibility:
        """Return the mode by which new schema versions are checked: `backward` if no mode was set. Raises TopicNotFound."""
        return self._client.topics.get(current_topic(self._client, name)).layout.compatibility or DEFAULT

    def set_compatibility(self, name: str, mode: str) -> Compatibility:
        """Set the mode by which new schema versions are checked: `none`, `backward`, `forward`, `full`, or one of the last three
        with the ending `_transitive`. The mode applies to schemas that are registered and to new columns in writes. Raises
        TopicNotFound, OptionError.
        """
        found = Compatibility(one_of(*(m.value for m in Compatibility))("compatibility", mode))
        self._client.topics.schemas.set_compatibility(current_topic(self._client, name), found)
        return found

    def _described(self, topic: Topic) -> TopicDescription:
        if isinstance(topic.name, PersistentName):
            layout = PersistentLayout.of(topic.record)
            return PersistentDescription(
                name=str(topic.name),
                key=None,
                schema=self._client.topics.schema(topic),
                epoch=0,
                segments=(),
                properties=dict(layout.properties),
                created_ms=layout.created_ms,
                sealed=bool(layout.sealing),
                migrated_to=layout.migrated_to,
            )
        return TopicDescription(
            name=str(topic.name),
            key=topic.layout.key,
            schema=self._client.topics.schema(topic),
            epoch=topic.layout.epoch,
            segments=tuple(segment_of(topic, info) for info in topic.layout.kept()),
        )


def segment_of(topic: Topic, info: SegmentInfo) -> SegmentDescription:
    return SegmentDescription(
        name=topic.segment(info),
        id=info.segment_id,
        start=info.hash_range.start,
        end=info.hash_range.end,
        state=info.state,
        parents=info.parent_ids,
        children=info.child_ids,
        created_ms=info.created_at_ms,
        sealed_ms=info.sealed_at_ms if info.state is SegmentState.SEALED else None,
    )


def _schema(version: SchemaVersion) -> SchemaDescription:
    try:
        avro, why = version.avro_text, None
    except SchemaError as error:
        avro, why = None, error.message
    return SchemaDescription(
        topic=str(version.topic),
        version=version.version,
        registered=version.registered,
        avro=avro,
        why=why,
        columns=version.columns,
        created_ms=version.created_ms,
    )


def _whole_topic(name: str) -> TopicName:
    if name.startswith("segment:"):
        raise OptionError(f"{name} names a segment.", advice="Name the topic: topic://tenant/namespace/name.")
    return any_topic_name(name)


def no_segments(name: TopicName, what: str) -> OptionError:
    """Return the error of an operation that needs segments and was called for a marker-based topic. `what`: a sentence that names
    the operation, without its full stop.
    """
    return OptionError(
        f"{name} has no segments, it is one log. {what}.",
        advice=f"Make topic://{name.tenant}/{name.namespace}/{name.name} instead, or migrate this one to it "
        "(txnsegment topics migrate).",
    )


def named(client: Client, name: str) -> TopicName:
    """Return the topic of this exact name. A `persistent://` name of which no topic exists becomes a `topic://` name if its
    namespace creates new topics as `topic://` (`set_model`).
    """
    return Providers(client).named(str(_whole_topic(name)))


def to_be_created(client: Client, name: str) -> TopicName | None:
    """Return the name of the topic that a first write to `name` would create; None if no write creates one, because the topic
    exists, was migrated, or has the name of a deleted persistent topic.
    """
    found = named(client, name)
    record = look(client.cluster.store, paths.topic(found))
    missing = record is None if isinstance(found, PersistentName) else of_record(found, record) is None
    return found if missing else None


def current_topic(client: Client, name: str) -> TopicName:
    """Return the topic that the name stands for now. For a migrated topic this is its successor `topic://`."""
    return Providers(client).resolve(str(_whole_topic(name)))


def scalable(client: Client, name: str, why: str) -> TopicName:
    """Return the topic of this name, which must have segments. Raises OptionError for a marker-based topic, migrated or not. `why`:
    the reason in the error.
    """
    parsed = named(client, name)
    if isinstance(parsed, PersistentName):
        raise no_segments(parsed, why)
    return parsed


def _marker_based(client: Client, name: str) -> PersistentName:
    """Return the marker-based topic of this name. Raises OptionError for a topic with segments."""
    parsed = named(client, name)
    if not isinstance(parsed, PersistentName):
        raise OptionError(
            f"{parsed} is no persistent:// topic; only those have properties.",
            advice="Give the full name: persistent://tenant/namespace/name.",
        )
    return parsed


def _struct(schema: Schema) -> StructType:
    if isinstance(schema, StructType):
        return schema
    return parse_schema(schema) if isinstance(schema, str) else from_arrow(schema)
