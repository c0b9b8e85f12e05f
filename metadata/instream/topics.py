"""The records of persistent topics: creating and finding topics, their properties, and the system property for transactional
messages (docs/in_stream.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql.types import StructType

from ledgers.schema import check_writable, nullable
from metadata.cluster.cluster import Cluster, before_lost, check_not_lost
from metadata.common import metrics
from metadata.common.errors import BadVersion, NotAllowed, TopicExists, TopicNotFound, UnknownOutcome
from metadata.instream import paths
from metadata.records.cluster_records import LostNumbers
from metadata.records.names import SYSTEM, PersistentName, check_new, topic_name
from metadata.records.persistent_records import CONTAINS_TXN, PersistentLayout
from metadata.records.records import Layout, TopicSchema
from metadata.rules import migrated, strides
from metadata.store.contract import ABSENT, Record, View, decide, look, skip, until
from metadata.topics.schemas import TopicSchemas


@dataclass(frozen=True)
class PersistentTopic:
    """A persistent topic at one moment. `layout`: the content of its record. `record`: the record itself, which a later CAS
    expects.
    """

    name: PersistentName
    layout: PersistentLayout
    record: Record

    def check_not_lost(self, number: int) -> None:
        """Raise OffsetOutOfRange if a restore lost this number of the topic's log."""
        check_not_lost(self.layout.lost or (), number, str(self.name))

    def before_lost(self, number: int) -> int:
        """Return `number`, a number of the topic's log. If a restore lost this number, return the last number below the lost range
        instead.
        """
        return before_lost(self.layout.lost or (), number)


def of_record(name: PersistentName, record: Record | None) -> PersistentTopic | None:
    """Return the topic of a record. Return None if there is no record, or if the record is a tombstone."""
    if record is None:
        return None
    layout = PersistentLayout.of(record)
    return None if layout.deleted else PersistentTopic(name, layout, record)


def not_found(name: PersistentName) -> TopicNotFound:
    return TopicNotFound(f"There is no topic {name}.", advice=f"Create it (txnsegment topics create {name}) or write to it.")


class PersistentTopics:
    """The persistent topics of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.schemas = TopicSchemas(cluster)

    def find(self, name: PersistentName) -> PersistentTopic | None:
        return of_record(name, look(self._cluster.store, paths.topic(name)))

    def get(self, name: PersistentName) -> PersistentTopic:
        """Return a topic. Raises TopicNotFound."""
        topic = self.find(name)
        if topic is None:
            raise not_found(name)
        return topic

    def list(self, pattern: re.Pattern[str] | None = None) -> list[PersistentTopic]:
        """Return all topics, or those whose full name matches the whole `pattern`, sorted by name. Transaction logs, and migrated
        topics whose successor was deleted, are left out.
        """

        def body(view: View) -> list[PersistentTopic]:
            found = [t for t in every(view, pattern) if not t.layout.deleted]
            successors = {t.name: paths.topic(topic_name(t.layout.migrated_to)) for t in found if t.layout.migrated_to is not None}
            records = dict(zip(successors, view.get_many(list(successors.values())), strict=True)) if successors else {}
            layouts = {name: Layout.of(record) for name, record in records.items() if record is not None}
            return [t for t in found if not migrated.went_with(t.name, layouts.get(t.name))]

        return decide(self._cluster.store, body)

    def create(self, name: PersistentName, *, schema: StructType | None = None) -> PersistentTopic:
        """Create a topic. Its system property says that the topic has no transactional messages. Raises TopicExists. Raises
        OptionError for a name that a new topic cannot have.
        """
        check_new(name)
        if schema is not None:
            check_writable(schema)

        def body(view: View) -> PersistentTopic:
            record = view.get(paths.topic(name))
            if record is not None:
                raise _taken(name, PersistentLayout.of(record))
            lost = self._skip_lost(name)
            now_ms = view.now_ms()
            first = None if schema is None else TopicSchema(spark=nullable(schema).json(), created_at_ms=now_ms)
            layout = PersistentLayout(
                created_ms=now_ms,
                properties={CONTAINS_TXN: "false"},
                schema_id=None if first is None else self.schemas.put(view, name, first),
                lost=lost,
            )
            try:
                record = self._cluster.store.put(paths.topic(name), layout.to_bytes(), expect=ABSENT)
            except (BadVersion, UnknownOutcome) as error:
                now = self.find(name)
                if now is None:
                    raise
                if now.layout == layout:
                    return now
                raise TopicExists(
                    f"The topic {name} exists already.", advice="Choose another name, or use the topic as it is."
                ) from error
            return PersistentTopic(name, layout, record)

        return decide(self._cluster.store, body)

    def _skip_lost(self, name: PersistentName) -> tuple[LostNumbers, ...] | None:
        """On a restored cluster, start the log of a new topic above all numbers that the restore may have lost, and return the
        range of these numbers. The cluster that was lost may have had a topic of this name, created after the backup. Readers may
        have read the rows of that topic.
        """
        if not self._cluster.restored:
            return None
        following = strides.marked_from(self._cluster.restored[-1])
        skip(self._cluster.store, paths.log(name), following)
        return (LostNumbers(after=0, before=following),)

    def ensure(self, name: PersistentName, *, schema: StructType | None = None, create: bool = True) -> PersistentTopic:
        """Return the topic. If it does not exist, create it. Idempotent. Raises TopicNotFound if the topic does not exist and
        `create` is not set. Raises TopicExists if the topic was deleted.
        """
        topic = self.find(name)
        if topic is not None:
            return topic
        if not create:
            raise not_found(name)
        try:
            return self.create(name, schema=schema)
        except TopicExists:
            made = self.find(name)
            if made is None:
                raise
            return made

    # --- properties -----------------------------------------------------------------------------------------------

    def properties(self, name: PersistentName) -> dict[str, str]:
        """Return all properties, the system property included. Raises TopicNotFound."""
        return dict(self.get(name).layout.properties)

    def set_property(self, name: PersistentName, key: str, value: str) -> None:
        """Set a property. Raises TopicNotFound. Raises NotAllowed for the system property."""
        _refuse_system(key)
        self.change(name, lambda layout: layout.model_copy(update={"properties": {**layout.properties, key: value}}))

    def remove_property(self, name: PersistentName, key: str) -> None:
        """Remove a property. Raises TopicNotFound. Raises NotAllowed for the system property."""
        _refuse_system(key)
        self.change(
            name,
            lambda layout: layout.model_copy(update={"properties": {k: v for k, v in layout.properties.items() if k != key}}),
        )

    def expect_transactions(self, names: Iterable[PersistentName]) -> Sequence[PersistentTopic]:
        """Set the system property of each topic. Callers do this BEFORE they append a transactional message. A reader lists the log
        before it reads the property, so it never takes such a message for a plain one.

        Return the topics with the property set. The call takes one round trip if all properties were set before. Raises
        TopicNotFound.
        """
        wanted = list(names)
        records = decide(self._cluster.store, lambda view: view.get_many([paths.topic(n) for n in wanted])) if wanted else []
        found = []
        for name, record in zip(wanted, records, strict=True):
            topic = of_record(name, record)
            if topic is None:
                raise not_found(name)
            found.append(topic if topic.layout.contains_txn else self._flip(name))
        return found

    def _flip(self, name: PersistentName) -> PersistentTopic:
        flipped = self.change(
            name,
            lambda layout: layout if layout.contains_txn else with_system_property(layout, "true"),
        )
        metrics.USING_TXN_TOPICS.inc()
        return flipped

    # --- changing -------------------------------------------------------------------------------------------------

    def change(
        self, name: PersistentName, how: Callable[[PersistentLayout], PersistentLayout], *, deleted: bool = False
    ) -> PersistentTopic:
        """Replace the topic's layout by the result of `how`, and return the topic. After a lost CAS or reply this method calls
        `how` again with the newer layout. `deleted`: also change the layout of a tombstone.

        Raises TopicNotFound.
        """

        def step() -> PersistentTopic | None:
            topic = self.seen(name) if deleted else self.get(name)
            after = how(topic.layout)
            if after is topic.layout or after == topic.layout:
                return topic
            try:
                record = self._cluster.store.put(paths.topic(name), after.to_bytes(), expect=topic.record)
            except (BadVersion, UnknownOutcome):
                return None
            return PersistentTopic(name, after, record)

        return until(step)

    def seen(self, name: PersistentName) -> PersistentTopic:
        """Return the topic or its tombstone. Raises TopicNotFound."""
        record = look(self._cluster.store, paths.topic(name))
        if record is None:
            raise not_found(name)
        return PersistentTopic(name, PersistentLayout.of(record), record)


def _taken(name: PersistentName, layout: PersistentLayout) -> TopicExists:
    if layout.migrated_to is not None:
        return TopicExists(
            f"The topic {name} was migrated to {layout.migrated_to}, and its name refers to that topic.",
            advice=f"Write to {layout.migrated_to}, or create that topic again if it was deleted (txnsegment topics create).",
        )
    if layout.deleted:
        return TopicExists(
            f"The topic {name} was deleted. Names of deleted persistent topics cannot be used again.",
            advice=f"Choose another name, or create topic://{name.tenant}/{name.namespace}/{name.name}.",
        )
    return TopicExists(f"The topic {name} exists already.")


def with_system_property(layout: PersistentLayout, value: str) -> PersistentLayout:
    """Return the layout with the system property set."""
    return layout.model_copy(update={"properties": {**layout.properties, CONTAINS_TXN: value}})


def every(view: View, pattern: re.Pattern[str] | None = None) -> list[PersistentTopic]:
    """Return all persistent topics, tombstones included, sorted by name. Transaction logs, which hold no rows, are left out."""
    found = [paths.topic_at(path) for path in view.keys(paths.TOPICS)]
    names = sorted(n for n in found if not is_system(n) and (pattern is None or pattern.fullmatch(str(n))))
    records = view.get_many([paths.topic(n) for n in names]) if names else []
    return [PersistentTopic(n, PersistentLayout.of(r), r) for n, r in zip(names, records, strict=True) if r is not None]


def is_system(name: PersistentName) -> bool:
    """Return whether the name is in the system namespace. Only transaction logs have such names."""
    return (name.tenant, name.namespace) == SYSTEM


def _refuse_system(key: str) -> None:
    if key == CONTAINS_TXN:
        raise NotAllowed(
            f"The property {CONTAINS_TXN} is the system's: it can be read, but not set or removed.",
            advice="It says whether the topic has ever received a transactional message, and txnsegment maintains it.",
        )
