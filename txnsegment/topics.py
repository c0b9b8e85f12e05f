"""The topics of a cluster, as a program sees them: `cluster.topics`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from ledgers.avro.modes import DEFAULT, Compatibility
from metadata.client import Client
from metadata.errors import OptionError, SchemaError
from metadata.names import TopicName, persistent_name, topic_name
from metadata.options import one_of
from metadata.records import SegmentState
from metadata.routing import check_key
from metadata.schemas import SchemaVersion
from metadata.topics import Topic
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
    """Create, list, describe, split, merge and delete topics. A bare `name` means `topic://public/default/name`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, name: str, *, segments: int = 1, key: str | None = None, schema: Schema | None = None) -> TopicDescription:
        """Make a topic with so many segments of even ranges. `key`: the column whose hash routes rows (string, binary, integer).

        Raises TopicExists, OptionError (a name, number or key that cannot be), SchemaError (a type that a topic cannot keep).
        """
        parsed = _whole_topic(name)
        struct = None if schema is None else _struct(schema)
        if key is not None:
            if not key.strip():
                raise OptionError(
                    "The key column's name is empty.", advice="Name a column, or leave it out for rows without a key."
                )
            if struct is not None:
                check_key(key, arrow_schema(struct))
        return self._described(self._client.topics.create(parsed, segments=segments, key=key, schema=struct))

    def list(self, pattern: str | None = None) -> list[TopicDescription]:
        """All topics whose full name matches the whole regular expression, in the order of their names. Raises OptionError."""
        return [self._described(topic) for topic in self._client.topics.list(pattern)]

    def describe(self, name: str) -> TopicDescription:
        """Raises TopicNotFound."""
        return self._described(self._client.topics.get(_whole_topic(name)))

    def delete(self, name: str) -> None:
        """Seal all segments of the topic; its rows are gone for every new read, its files after the grace period. For ever: a topic
        made again under the name has new segments. A read at offsets that need the rows raises DataLoss. Raises TopicNotFound.
        """
        self._client.topics.delete(_whole_topic(name))

    def split(self, name: str, segment: int) -> TopicDescription:
        """Halve the range of an active segment, given by its id: it is sealed, two children go on. Rows stay where they are; each
        key's rows keep their order for every reader. Writers that are under way go on to the children by themselves.

        Raises TopicNotFound, OptionError (no such segment, or it cannot be halved), SegmentSealed (it is not active any more).
        """
        return self._described(self._client.topics.split(_whole_topic(name), segment))

    def merge(self, name: str, first: int, second: int) -> TopicDescription:
        """Join two active neighbours, given by their ids: they are sealed, one child goes on. Raises as `split` does."""
        return self._described(self._client.topics.merge(_whole_topic(name), first, second))

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
        topic, schemas = self._client.topics.get(_whole_topic(name)), self._client.topics.schemas
        found = schemas.latest(topic) if version is None else schemas.version(topic, version)
        return None if found is None else _schema(found)

    def schemas(self, name: str) -> tuple[SchemaDescription, ...]:
        """All versions of the topic's schema, oldest first. Raises TopicNotFound."""
        history = self._client.topics.schemas.history(self._client.topics.get(_whole_topic(name)))
        return tuple(_schema(version) for version in reversed(tuple(history)))

    def set_schema(self, name: str, avro: str | Mapping[str, Any]) -> SchemaDescription:
        """Register an Avro schema (JSON) as the topic's next version; nothing happens if it is the last one. Programs can write and
        read its bytes from then on (`valueFormat=avro`); the topic gets the columns that it adds.

        Raises TopicNotFound, SchemaError: no Avro schema, a type that columns do not have, columns that do not fit the topic's, or
        what the compatibility mode refuses.
        """
        text = avro if isinstance(avro, str) else json.dumps(avro)
        return _schema(self._client.topics.schemas.register(_whole_topic(name), text))

    def compatibility(self, name: str) -> Compatibility:
        """How new versions of the topic's schema are judged: backward, or what somebody has set. Raises TopicNotFound."""
        return self._client.topics.get(_whole_topic(name)).layout.compatibility or DEFAULT

    def set_compatibility(self, name: str, mode: str) -> Compatibility:
        """Judge new versions by `none`, `backward`, `forward`, `full`, or `backward_transitive` and its like, from now on: those
        that are registered, and those that writes of new columns make. Raises TopicNotFound, OptionError.
        """
        found = Compatibility(one_of(*(m.value for m in Compatibility))("compatibility", mode))
        self._client.topics.schemas.set_compatibility(_whole_topic(name), found)
        return found

    def _described(self, topic: Topic) -> TopicDescription:
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
    return topic_name(name)


def _struct(schema: Schema) -> StructType:
    if isinstance(schema, StructType):
        return schema
    return parse_schema(schema) if isinstance(schema, str) else from_arrow(schema)
