"""The schemas of topics: versions, evolution by writes, registered Avro schemas, compatibility modes.

A version is a record `/schemas/<encoded topic>/<id>`. The record never changes. It counts as a version as soon as a layout has
named it. A process that loses a race leaves a record that no layout names. Each version names the previous one. In every
compatibility mode a topic keeps its columns: a new version only adds columns or widens their types, because the parts of all
versions are read with the current columns. A registered Avro schema need not have all columns of the topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from ledgers.avro.modes import DEFAULT, Compatibility
from ledgers.json_text import read_json
from ledgers.schema import check_writable, evolve, growth
from ledgers.spark_json import columns_from_json
from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, CorruptRecord, OptionError, SchemaError, TopicSealed, UnknownOutcome
from metadata.records import paths
from metadata.records.json_records import RECORD_ADVICE
from metadata.records.names import TopicName
from metadata.records.records import Layout, TopicSchema
from metadata.store.contract import ABSENT, View, decide, look, until
from metadata.topics.keys import check_key
from metadata.topics.topic import Topic, not_found, of_record

if TYPE_CHECKING:
    from ledgers.avro.rows import Codec
    from ledgers.avro.schema import Record

# The modules of Avro schemas are imported late, because every Spark process that plans a read imports this module, and most topics
# have no registered schema.


@dataclass(frozen=True)
class SchemaVersion:
    """One version of a topic's schema. `columns`: all columns that the topic has in this version."""

    topic: TopicName
    version: int
    columns: StructType
    record: TopicSchema

    @property
    def registered(self) -> bool:
        """Whether the Avro schema was registered or evolved from a registered one. Otherwise it is derived from the columns."""
        return self.record.avro is not None

    @property
    def created_ms(self) -> int:
        return self.record.created_at_ms

    @cached_property
    def avro(self) -> Record:
        """Return the Avro schema. Raises SchemaError that names the column if a column has no Avro type."""
        from ledgers.avro.columns import derived
        from ledgers.avro.parsing import parse

        if self.record.avro is not None:
            return parse(self.record.avro)
        return derived(self.columns, f"{self.topic.tenant}.{self.topic.namespace}.{self.topic.name}")

    @property
    def avro_text(self) -> str:
        """Return the Avro schema as JSON, in its registered form. Raises SchemaError as `avro` does."""
        from ledgers.avro.schema import dump

        return self.record.avro if self.record.avro is not None else json.dumps(dump(self.avro))


class TopicSchemas:
    """The schemas of a cluster's topics."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._versions: dict[tuple[TopicName, int], SchemaVersion] = {}  # versions never change

    # --- reading --------------------------------------------------------------------------------------------------

    def latest(self, topic: Topic) -> SchemaVersion | None:
        """Return the current schema version, or None if the topic has no schema yet."""
        return None if topic.layout.schema_id is None else self.get(topic.name, topic.layout.schema_id)

    def get(self, name: TopicName, schema_id: int) -> SchemaVersion:
        """Return a schema version. Raises SchemaError if its record does not exist."""
        if (name, schema_id) not in self._versions:
            record = look(self._cluster.store, paths.schema(str(name), schema_id))
            if record is None:
                raise SchemaError(
                    f"The topic {name} has no schema version {schema_id}.", advice="`txnsegment topics schema` lists its versions."
                )
            found = TopicSchema.of(record)
            try:
                columns = columns_from_json(found.spark)
            except ValueError as error:
                raise CorruptRecord(f"{record.key.path}: {error}.", advice=RECORD_ADVICE) from error
            self._versions[name, schema_id] = SchemaVersion(name, schema_id, columns, found)
        return self._versions[name, schema_id]

    def history(self, topic: Topic) -> Iterator[SchemaVersion]:
        """Yield the schema versions since the topic was last created, newest first."""
        found = self.latest(topic)
        while found is not None:
            yield found
            found = None if found.record.follows is None else self.get(topic.name, found.record.follows)

    def version(self, topic: Topic, version: int) -> SchemaVersion:
        """Return the schema version `version`. Raises SchemaError, which lists the existing versions, if it does not exist."""
        known = list(self.history(topic))
        found = next((one for one in known if one.version == version), None)
        if found is None:
            there = ", ".join(str(one.version) for one in reversed(known)) or "none yet"
            raise SchemaError(f"The topic {topic.name} has no schema version {version}.", advice=f"Its versions are: {there}.")
        return found

    def codec(self, topic: Topic) -> Codec | None:
        """Return the codec of the topic's registered Avro schema; None if no schema is registered."""
        last = self.latest(topic)
        if last is None or last.record.avro is None:
            return None
        from ledgers.avro.rows import Codec

        return Codec(last.avro)

    # --- evolution by writes --------------------------------------------------------------------------------------

    def grown(self, topic: Topic, incoming: StructType, *, grow: bool = True) -> StructType:
        """Return the columns that the topic has after a write of rows with the columns `incoming`. Raises SchemaError if `incoming`
        does not fit the topic's columns, or if the compatibility mode refuses the new schema. Without a mode, `grow` says whether
        the write may add columns and widen types.
        """
        return self._grown(topic, incoming, grow)[0]

    def _grown(self, topic: Topic, incoming: StructType, grow: bool) -> tuple[StructType, str | None]:
        """Return the result of `grown`, and the Avro schema of the next version (None: it is derived from the columns)."""
        last = self.latest(topic)
        columns = evolve(None if last is None else last.columns, incoming)
        if last is None or columns is last.columns:
            return columns, None if last is None else last.record.avro
        if not grow:
            self.check_growth(topic, last.columns, columns)
        mode = topic.layout.compatibility or Compatibility.NONE
        if mode is Compatibility.NONE and not last.registered:
            return columns, None
        from ledgers.avro.columns import derived, grown
        from ledgers.avro.schema import dump

        new = grown(last.avro, last.columns, columns) if last.registered else derived(columns, topic.name.name)
        self._check(topic, mode, new)
        return columns, json.dumps(dump(new)) if last.registered else None

    def check_growth(self, topic: Topic, old: StructType, new: StructType) -> None:
        """Check that a write which was not asked to change the topic leaves its columns as they are, unless the topic has a
        compatibility mode, which then decides. `old`, `new`: the columns before and after the write. Raises SchemaError.
        """
        found = growth(old, new)
        if found and topic.layout.compatibility is None:
            raise SchemaError(
                f"This write would change {topic.name} for good: {'; '.join(found)}.",
                advice="To let this write change it, give it mergeSchema=true (append and producer: merge_schema=True). To let all "
                f"writes do so: txnsegment topics schema {topic.name} --compatibility none. Or write the topic's columns only.",
            )

    def _check(self, topic: Topic, mode: Compatibility, new: Record) -> None:
        if mode is Compatibility.NONE:
            return
        from ledgers.avro import compatibility

        earlier = []
        for version in self.history(topic):
            earlier.append((version.version, version.avro))
            if not mode.transitive:
                break
        try:
            compatibility.check(mode, new, earlier)
        except SchemaError as error:
            raise SchemaError(f"{topic.name}: {error.message}", advice=error.advice) from error

    def evolve(self, name: TopicName, incoming: StructType, key: str | None = None, *, grow: bool = True) -> tuple[Topic, int]:
        """Evolve the topic's schema for rows with the columns `incoming`, and set the key column if `key` is given. Return the
        resulting topic and its schema id.

        Raises SchemaError (as `grown` does), TopicNotFound, OptionError (the topic has another key column), and TopicSealed (the
        topic is a persistent topic that was migrated, and its schema would change).
        """

        def body(view: View) -> tuple[Topic, int] | None:
            topic = self._seen(view, name)
            last = self.latest(topic)
            columns, avro = self._grown(topic, incoming, grow)
            layout = topic.layout
            if last is None or columns is not last.columns:
                layout = self._next(view, topic, columns, avro)
            if key is not None and layout.key not in (None, key):
                raise OptionError(
                    f"These rows were routed by {key!r}, but another write has just set {layout.key!r} as the key of {name}.",
                    advice="Run the write again without keyColumn: the topic has its key column.",
                )
            if key is not None and layout.key is None:
                layout = layout.model_copy(update={"key": key})
            if layout is topic.layout:
                assert layout.schema_id is not None
                return topic, layout.schema_id
            changed = self._change(topic, layout)
            if changed is None:
                return None
            assert layout.schema_id is not None
            return changed, layout.schema_id

        return until(lambda: decide(self._cluster.store, body))

    # --- registering ----------------------------------------------------------------------------------------------

    def register(self, name: TopicName, text: str) -> SchemaVersion:
        """Register an Avro schema as the topic's next version. If the last version has this schema already, return the last
        version. The topic keeps its columns and gets those that the schema adds. Idempotent.

        Raises TopicNotFound. Raises SchemaError if the text is not an Avro schema or has no columns, if a column does not fit the
        topic's column of the same name, or if the compatibility mode (backward by default) refuses the schema. Raises OptionError
        if the schema lacks the topic's key column, or gives it a type that cannot be a key. Raises TopicSealed as `evolve` does.
        """
        from ledgers.avro.columns import columns_of
        from ledgers.avro.parsing import parse

        given = parse(text)
        wanted = columns_of(given)
        check_writable(wanted)

        def body(view: View) -> SchemaVersion | None:
            topic = self._seen(view, name)
            last = self.latest(topic)
            if last is not None and last.record.avro is not None and read_json(last.record.avro) == read_json(text):
                return last
            columns = evolve(None if last is None else last.columns, wanted)
            if topic.layout.key is not None:
                check_key(topic.layout.key, arrow_schema(wanted))
            if last is not None:
                self._check(topic, topic.layout.compatibility or DEFAULT, given)
            layout = self._next(view, topic, columns, text)
            if self._change(topic, layout) is None:
                return None
            assert layout.schema_id is not None
            return self.get(name, layout.schema_id)

        return until(lambda: decide(self._cluster.store, body))

    def set_compatibility(self, name: TopicName, mode: Compatibility) -> Topic:
        """Set the compatibility mode. It applies to all later versions, also to those that writes create. Raises TopicNotFound, and
        TopicSealed as `evolve` does.
        """

        def body(view: View) -> Topic | None:
            topic = self._seen(view, name)
            if topic.layout.compatibility is mode:
                return topic
            return self._change(topic, topic.layout.model_copy(update={"compatibility": mode}))

        return until(lambda: decide(self._cluster.store, body))

    # --- writing --------------------------------------------------------------------------------------------------

    def _seen(self, view: View, name: TopicName) -> Topic:
        topic = of_record(name, view.get(paths.topic(name)))
        if topic is None:
            raise not_found(name)
        return topic

    def _change(self, topic: Topic, layout: Layout) -> Topic | None:
        """CAS the layout. Return None after a lost race or a lost reply, so that the caller reads again. Raises TopicSealed if the
        topic was migrated.
        """
        to = (topic.layout.model_extra or {}).get("migratedTo")  # only the layout of a persistent topic has this field
        if to is not None:
            raise TopicSealed(
                f"The topic {topic.name} was migrated to {to}: its schema changes there.",
                advice=f"Write to {to}; nothing was written.",
            )
        try:
            record = self._cluster.store.put(paths.topic(topic.name), layout.to_bytes(), expect=topic.record)
        except (BadVersion, UnknownOutcome):
            return None
        return Topic(topic.name, layout, record)

    def _next(self, view: View, topic: Topic, columns: StructType, avro: str | None) -> Layout:
        last = topic.layout.schema_id
        record = TopicSchema(spark=columns.json(), created_at_ms=view.now_ms(), avro=avro, follows=last)
        schema_id = self.put(view, topic.name, record, first=0 if last is None else last + 1)
        return topic.layout.model_copy(update={"schema_id": schema_id})

    def put(self, view: View, name: TopicName, record: TopicSchema, *, first: int = 0) -> int:
        """Write the record of a version under the next free id and return the id. The record counts as a version as soon as a
        layout names it.
        """
        taken = [int(path[-20:]) for path in view.keys(paths.schemas(str(name)))]
        ids = count(max([first, *(t + 1 for t in taken)]))

        def step() -> int | None:
            schema_id = next(ids)
            try:
                self._cluster.store.put(paths.schema(str(name), schema_id), record.to_bytes(), expect=ABSENT)
            except (BadVersion, UnknownOutcome):
                return None  # the id is taken, or the reply was lost; a record that no layout names is not a version
            return schema_id

        return until(step)
