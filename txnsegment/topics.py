"""The topics of a cluster, as a program sees them: `cluster.topics`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from metadata.records.names import PersistentName, TopicName, any_topic_name, persistent_name
from metadata.records.persistent_records import Model, PersistentLayout
from metadata.records.records import SegmentState
from metadata.topics.policies import namespace_of
from metadata.topics.routing import check_key
from metadata.topics.schemas import SchemaVersion
from metadata.topics.topics import Topic, compiled
from txnsegment.ddl import parse_schema
from txnsegment.schemas import from_arrow


@dataclass(frozen=True)
class SegmentDescription:
    """One segment of a topic: its full name and id, the range of the ring it holds (both ends inclusive), `ACTIVE` or `SEALED`,
    the ids of those it came from and of those that went on, when it was made and sealed (ms since 1970; None: not sealed).
    """

    name: str
    id: int
    start: int
    end: int
    state: SegmentState
    parents: tuple[int, ...]
    children: tuple[int, ...]
    created_ms: int
    sealed_ms: int | None


@dataclass(frozen=True)
class TopicDescription:
    """A topic as it is now. `key`: the column that routes rows (None: none yet). `schema` None: nothing was written yet and no
    schema given. `epoch` counts the changes of its layout.
    """

    name: str
    key: str | None
    schema: StructType | None
    epoch: int
    segments: tuple[SegmentDescription, ...]


@dataclass(frozen=True)
class PersistentDescription(TopicDescription):
    """A `persistent://` topic as it is now: one log, no segments, no key. `properties`: the system's among them, such as
    `__contains_txn_messages`. `sealed`: it takes no more entries, or soon will not; `migrated_to`: the topic:// that goes on.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    created_ms: int = 0
    sealed: bool = False
    migrated_to: str | None = None


@dataclass(frozen=True)
class SchemaDescription:
    """One version of a topic's schema. `columns`: what the topic keeps, which only grows. `avro`: the Avro schema as JSON text, or
    None if the columns have none (`why` says it). `registered`: somebody gave it; else it is made from the columns.
    """

    topic: str
    version: int
    registered: bool
    avro: str | None
    why: str | None
    columns: StructType
    created_ms: int


Schema: TypeAlias = "StructType | pa.Schema | str"
"""Spark's, Arrow's, or Spark's DDL text, such as `id bigint, name string`."""


class ClusterTopics:
    """Create, list, describe, split, merge and delete topics. A bare `name` means `topic://public/default/name`; topics of the
    older model are named whole, `persistent://tenant/namespace/name`, and have neither segments nor a key (docs/in_stream.md).
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, name: str, *, segments: int = 1, key: str | None = None, schema: Schema | None = None) -> TopicDescription:
        """Make a topic with so many segments of even ranges. `key`: the column whose hash routes rows (string, binary, integer).

        Raises TopicExists, OptionError (a name, number or key that cannot be), SchemaError (a type that a topic cannot keep).
        """
        parsed = named(self._client, name)  # its namespace may have new ones made as topic://
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
        """All topics whose full name matches the whole regular expression, in the order of their names, those of `persistent://`
        behind the others. Raises OptionError.
        """
        scalable = [self._described(topic) for topic in self._client.topics.list(pattern)]
        older = self._client.instream.topics.list(compiled(pattern))
        return [*scalable, *(self._described(Topic(topic.name, topic.layout, topic.record)) for topic in older)]

    def describe(self, name: str) -> TopicDescription:
        """Raises TopicNotFound."""
        parsed = named(self._client, name)
        if isinstance(parsed, PersistentName):
            self._client.instream.migrator.check_there(parsed)
        return self._described(self._client.topics.get(parsed))

    def delete(self, name: str) -> None:
        """Seal all segments of the topic; its rows are gone for every new read, its files after the grace period. For ever: a topic
        made again under the name has new segments. A read at offsets that need the rows raises DataLoss. A `persistent://` topic is
        never made again under its name: its log goes on for ever. One that was migrated is not deleted by itself: it goes with the
        topic:// that it became; if that is made again, the old name stands for it, without a row of before. Raises TopicNotFound,
        NotAllowed (it was migrated).
        """
        parsed = named(self._client, name)
        if isinstance(parsed, PersistentName):
            self._client.instream.migrator.check_there(parsed)
            self._client.instream.sealing.delete(parsed)
        else:
            self._client.topics.delete(parsed)

    def split(self, name: str, segment: int) -> TopicDescription:
        """Halve the range of an active segment, given by its id: it is sealed, two children go on. Rows stay where they are; each
        key's rows keep their order for every reader. Writers that are under way go on to the children by themselves.

        Raises TopicNotFound, OptionError (no such segment, or it cannot be halved), SegmentSealed (it is not active any more).
        """
        return self._described(self._client.topics.split(scalable(self._client, name, "Nothing of it can be split"), segment))

    def merge(self, name: str, first: int, second: int) -> TopicDescription:
        """Join two active neighbours, given by their ids: they are sealed, one child goes on. Raises as `split` does."""
        return self._described(
            self._client.topics.merge(scalable(self._client, name, "Nothing of it can be merged"), first, second)
        )

    # --- properties -------------------------------------------------------------------------------------------------

    def properties(self, name: str) -> dict[str, str]:
        """All properties of a `persistent://` topic, the system's among them. Raises TopicNotFound, OptionError (topic://)."""
        return self._client.instream.topics.properties(_older(self._client, name))

    def set_property(self, name: str, key: str, value: str) -> dict[str, str]:
        """Set one; all of them then. Raises NotAllowed (`__contains_txn_messages` is the system's), TopicNotFound, OptionError."""
        topic = _older(self._client, name)
        if not key.strip() or not key.isprintable():
            raise OptionError(f"{key!r} is no name of a property.", advice="Give printable characters.")
        self._client.instream.topics.set_property(topic, key, value)
        return self.properties(name)

    def remove_property(self, name: str, key: str) -> dict[str, str]:
        """Remove one, there or not; all of them then. Raises NotAllowed, TopicNotFound, OptionError."""
        self._client.instream.topics.remove_property(_older(self._client, name), key)
        return self.properties(name)

    def model(self, namespace: str) -> str:
        """What serves `persistent://` names that a `namespace://tenant/namespace` does not have yet: `in-stream` (the older model),
        or `metadata`: they become `topic://` of the same name. Raises OptionError.
        """
        tenant, name = namespace_of(namespace)
        return Providers(self._client).namespace(tenant, name).value

    def set_model(self, namespace: str, new_persistent: str) -> str:
        """Say it: for a migration, so that programs which name `persistent://` topics make no more of them. What exists stays as it
        is until it is migrated. Idempotent. Raises OptionError.
        """
        tenant, name = namespace_of(namespace)
        Providers(self._client).set_namespace(
            tenant, name, Model(one_of(*(m.value for m in Model))("new_persistent", new_persistent))
        )
        return self.model(namespace)

    def migrate(
        self, name: str, to: str, *, segments: int = 1, wait: timedelta | float | None = None, force: bool = False
    ) -> TopicDescription:
        """Let a `persistent://` topic go on as the `topic://` named `to`, with so many active segments, without copying a row: it
        becomes the sealed first segment there, under its own name; positions, message ids, subscriptions and what applications have
        committed are kept. Its writers go on into the new topic by themselves. Idempotent; what a crash left is completed.

        Transactions that are open there are an error that names them (TxnConflict), unless they end within `wait` (seconds, or a
        timedelta), or are to be aborted (`force`). Raises TopicExists, TopicNotFound, TopicSealed, OptionError.
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
        """A version of the topic's schema, the last one by default; None while nothing was written and none was given.

        Raises TopicNotFound, SchemaError (there is no such version).
        """
        topic, schemas = self._client.topics.get(going_on(self._client, name)), self._client.topics.schemas
        found = schemas.latest(topic) if version is None else schemas.version(topic, version)
        return None if found is None else _schema(found)

    def schemas(self, name: str) -> tuple[SchemaDescription, ...]:
        """All versions of the topic's schema, oldest first. Raises TopicNotFound."""
        history = self._client.topics.schemas.history(self._client.topics.get(going_on(self._client, name)))
        return tuple(_schema(version) for version in reversed(tuple(history)))

    def set_schema(self, name: str, avro: str | Mapping[str, Any]) -> SchemaDescription:
        """Register an Avro schema (JSON) as the topic's next version; nothing happens if it is the last one. Programs can write and
        read its bytes from then on (`valueFormat=avro`); the topic gets the columns that it adds.

        Raises TopicNotFound, SchemaError: no Avro schema, a type that columns do not have, columns that do not fit the topic's, or
        what the compatibility mode refuses.
        """
        text = avro if isinstance(avro, str) else json.dumps(avro)
        return _schema(self._client.topics.schemas.register(going_on(self._client, name), text))

    def compatibility(self, name: str) -> Compatibility:
        """How new versions of the topic's schema are judged: backward, or what somebody has set. Raises TopicNotFound."""
        return self._client.topics.get(going_on(self._client, name)).layout.compatibility or DEFAULT

    def set_compatibility(self, name: str, mode: str) -> Compatibility:
        """Judge new versions by `none`, `backward`, `forward`, `full`, or `backward_transitive` and its like, from now on: those
        that are registered, and those that writes of new columns make. Raises TopicNotFound, OptionError.
        """
        found = Compatibility(one_of(*(m.value for m in Compatibility))("compatibility", mode))
        self._client.topics.schemas.set_compatibility(going_on(self._client, name), found)
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
        infos = topic.layout.kept()
        return TopicDescription(
            name=str(topic.name),
            key=topic.layout.key,
            schema=self._client.topics.schema(topic),
            epoch=topic.layout.epoch,
            segments=tuple(
                SegmentDescription(
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
                for info in infos
            ),
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
    """What is told to whoever asks of a persistent topic what only topic:// has; `what` says what that is."""
    return OptionError(
        f"{name} has no segments, it is one log. {what}.",
        advice=f"Make topic://{name.tenant}/{name.namespace}/{name.name} instead, or migrate this one to it "
        "(txnsegment topics migrate).",
    )


def named(client: Client, name: str) -> TopicName:
    """The topic itself: a persistent name that does not exist is that of a topic:// where its namespace says so."""
    return Providers(client).named(str(_whole_topic(name)))


def going_on(client: Client, name: str) -> TopicName:
    """The topic that the name stands for: of a persistent topic that was migrated, the topic:// that goes on."""
    return Providers(client).resolve(str(_whole_topic(name)))


def scalable(client: Client, name: str, why: str) -> TopicName:
    """The topic with segments of this name. Raises OptionError for a persistent topic, migrated or not, and says why."""
    parsed = named(client, name)
    if isinstance(parsed, PersistentName):
        raise no_segments(parsed, why)
    return parsed


def _older(client: Client, name: str) -> PersistentName:
    """Raises OptionError for anything but a persistent topic."""
    parsed = named(client, name)
    if not isinstance(parsed, PersistentName):
        raise OptionError(f"{parsed} is no persistent:// topic; only those have properties.", advice="Name one as a whole.")
    return parsed


def _struct(schema: Schema) -> StructType:
    if isinstance(schema, StructType):
        return schema
    return parse_schema(schema) if isinstance(schema, str) else from_arrow(schema)
