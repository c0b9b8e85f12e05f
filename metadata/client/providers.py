"""Select the transaction model that serves a topic (docs/in_stream.md, Providers). The topic's domain (`topic://` or
`persistent://`) or its namespace's policy determines the model.

The transactions of `topic://` topics are decided in the metadata store. `persistent://` topics are marker-based: markers in the
logs of the topics decide. The policy of a namespace may say that each new persistent name becomes a topic:// of the same name.
Existing persistent topics stay marker-based until they are migrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.types import StructType

from ledgers.arrow import arrow_schema
from metadata.client.client import Client
from metadata.client.logs import logs_of
from metadata.common.errors import BadVersion, OptionError, TopicSealed, UnknownOutcome
from metadata.cursors.cursors import Where
from metadata.read.log_reader import ClusterLog, LogReader
from metadata.read.reading import LogSelection
from metadata.records import paths
from metadata.records.json_records import JsonRecord
from metadata.records.names import PersistentName, TopicName, any_topic_name, check_new, is_persistent, persistent_name, topic_name
from metadata.records.paths import Key
from metadata.records.persistent_records import Model, NamespaceModel, PersistentLayout
from metadata.records.records import Cursor
from metadata.records.row_ranges import Rows
from metadata.rules.acks import Ack
from metadata.rules.migrated import is_its_own
from metadata.rules.transitions import Claim
from metadata.store.contract import ABSENT, Record, decide, look, until
from metadata.topics.keys import check_key
from metadata.topics.topic import Topic, warn_of_segments
from metadata.write.write_set import Committed, WriteSet


class Selected(JsonRecord):
    """The model that serves a topic, and the topic's name in that model."""

    model: Model
    name: str


class SubscriptionsProvider(Protocol):
    """The subscriptions of the topics of one transaction model. `at` and `to` are numbers of the log that orders the topic's rows.
    Rows at or below such a number count as acknowledged.
    """

    def create(self, topic: TopicName, name: str, *, at: int) -> None: ...

    def delete(self, topic: TopicName, name: str) -> None: ...

    def seek(self, topic: TopicName, name: str, *, to: int) -> None: ...

    def list(self, topic: TopicName | None = None) -> Sequence[tuple[TopicName, str]]: ...


class CoordinatorProvider(Protocol):
    """Commits a write set. Each model has an implementation."""

    def commit(self, work: WriteSet) -> Committed: ...

    def abort_attempt(self, app: str, app_topic: str, claim: Claim) -> None: ...


class PendingAckProvider(Protocol):
    """Keeps cursors and pending acks. Each model has an implementation."""

    def acknowledge(self, wanted: Sequence[Ack]) -> None: ...

    def advance(self, wanted: Sequence[Ack]) -> None: ...

    def seek(self, to: Mapping[Where, Rows]) -> None: ...

    def read(self, where: Iterable[Where]) -> dict[Where, Cursor]: ...


@dataclass(frozen=True)
class Provider:
    """The services of one model."""

    model: Model
    acks: PendingAckProvider
    subscriptions: SubscriptionsProvider
    coordinator: CoordinatorProvider


def model_of(name: str | TopicName) -> Model:
    """Return the model of a topic or segment by the domain of its current name. `Providers.select` returns current names."""
    return Model.IN_STREAM if is_persistent(str(name)) else Model.METADATA


def _the_one(models: Mapping[str, Model]) -> Model:
    by_model = {model: [name for name, found in models.items() if found is model] for model in Model}
    if all(by_model.values()):
        raise _spans_both(by_model)
    return Model.IN_STREAM if by_model[Model.IN_STREAM] else Model.METADATA


@dataclass(frozen=True)
class Providers:
    """Selects the model of each topic for one client."""

    client: Client

    def select(self, names: Sequence[TopicName]) -> dict[TopicName, Selected]:
        """Return the model and the current name of each topic, also of topics that do not exist. A migrated topic has its
        successor's name. The call costs one round trip, and one more for each migrated topic.

        Raises TopicExists if a foreign topic has the successor's name. Raises TopicNotFound if the successor was deleted.
        """
        mine = sorted({name for name in names if isinstance(name, PersistentName)})
        keys = [paths.topic(name) for name in mine] + [namespace_key(name.tenant, name.namespace) for name in mine]
        records = decide(self.client.cluster.store, lambda view: view.get_many(keys)) if keys else []
        found = {name: Selected(model=Model.METADATA, name=str(name)) for name in names}
        for i, name in enumerate(mine):
            record, said = records[i], records[len(mine) + i]
            layout = None if record is None else PersistentLayout.of(record)
            if layout is not None and layout.migrated_to is not None:
                to = self.client.topics.find(topic_name(layout.migrated_to))
                if to is None or not is_its_own(to.layout, name):
                    self.client.instream.migrator.finish(name)  # completes an unfinished migration, or raises an error
                found[name] = Selected(model=Model.METADATA, name=layout.migrated_to)
            elif _made_as_newer(record, said):
                found[name] = Selected(model=Model.METADATA, name=str(TopicName(*name)))
            else:
                found[name] = Selected(model=Model.IN_STREAM, name=str(name))
        return found

    def resolve(self, text: str) -> TopicName:
        """Return the current name of a topic. A persistent name becomes a topic:// name in two cases: the topic was migrated, or it
        does not exist and its namespace creates new topics as topic://. A persistent name costs one round trip. Raises
        OptionError.
        """
        name = any_topic_name(text)
        return any_topic_name(self.select([name])[name].name) if isinstance(name, PersistentName) else name

    def evolve(self, name: TopicName, types: StructType, key: str | None = None, *, grow: bool = True) -> tuple[Topic, int]:
        """Evolve the topic's schema for a write (see `TopicSchemas.evolve`). If the topic is a migrated persistent topic, evolve
        its successor's schema: parts that were staged before the migration are registered in the successor, with the successor's
        schema id.
        """
        try:
            return self.client.topics.evolve(name, types, key, grow=grow)
        except TopicSealed:
            to = self.client.instream.migrator.made(name) if isinstance(name, PersistentName) else None
            if to is None:
                raise
            return self.client.topics.evolve(to, types, key, grow=grow)

    def ensure(
        self, name: TopicName, columns: StructType, *, segments: int | None = None, key: str | None = None, create: bool = True
    ) -> Topic:
        """Return the topic that a write with these columns goes to. Every write, with or without Spark, finds its topic by this
        call. If the topic does not exist and `create` is set, it is created with these columns, `segments` and `key`. A topic that
        was created stays, also if the write fails. Idempotent.

        `name`: the current name (`resolve`). `segments`: None: the write gives no number, and a new topic has one segment. Warns
        (SegmentsIgnored) if the topic exists with another number. Raises TopicNotFound (the topic does not exist, and `create` is
        not set), SchemaError (a topic cannot keep the columns), OptionError (the column cannot be a key), TopicExists (the name is
        that of a deleted persistent topic).
        """
        if isinstance(name, PersistentName):
            made = self.client.instream.topics.ensure(name, schema=columns, create=create)
            return Topic(made.name, made.layout, made.record)
        if key is not None:
            check_key(key, arrow_schema(columns))
        wanted = 1 if segments is None else segments
        topic = self.client.topics.ensure(name, segments=wanted, key=key, schema=columns, create=create)
        active = topic.active()
        warn_of_segments(str(name), segments, len(active), first=not any(info.parent_ids for info in active))
        return topic

    def named(self, text: str) -> TopicName:
        """Return the topic that the name `text` means in operations on a persistent topic itself. Unlike `resolve`, this method
        returns an existing persistent topic under its own name, also if the topic was migrated. Raises OptionError.
        """
        name = any_topic_name(text)
        if not isinstance(name, PersistentName):
            return name
        keys = [paths.topic(name), namespace_key(name.tenant, name.namespace)]
        record, said = decide(self.client.cluster.store, lambda view: view.get_many(keys))
        return TopicName(*name) if _made_as_newer(record, said) else name

    def of(self, names: Iterable[str | TopicName]) -> Provider:
        """Return the services of these topics or segments. Raises OptionError if they have different models."""
        return self.by_model(self.model(names))

    def model(self, names: Iterable[str | TopicName]) -> Model:
        """Return the common model of these topics or segments; METADATA if there are none. Raises OptionError if they have
        different models.
        """
        return _the_one(self.models(names))

    def models(self, names: Iterable[str | TopicName]) -> dict[str, Model]:
        """Return the model of each topic or segment by its full name. A migrated persistent topic is a segment of its successor, so
        its model is METADATA. The call takes one round trip if there are persistent names.
        """
        texts = list(dict.fromkeys(map(str, names)))
        older = {name: persistent_name(name) for name in texts if is_persistent(name)}
        found = self.select(list(older.values())) if older else {}
        return {name: found[older[name]].model if name in older else Model.METADATA for name in texts}

    def serving(self, name: TopicName) -> Provider:
        """Return the services of the model that the domain of the topic's name selects. This method does not read the store, so it
        does not notice that a persistent topic was migrated.
        """
        return self.by_model(model_of(name))

    def by_model(self, model: Model) -> Provider:
        """Return the services of a model."""
        client = self.client
        if model is Model.METADATA:
            return Provider(model, client.coordinator.acks, client.subscriptions, client.coordinator)
        from metadata.instream.acknowledging import RedirectedAcks
        from metadata.instream.subscriptions import InStreamSubscriptions  # imported late, because few processes need it

        mine = client.instream
        subscriptions = InStreamSubscriptions(mine.topics, mine.acks, lambda: mine.migrator, client.subscriptions)
        acks = RedirectedAcks(mine.acks, lambda: mine.coordinator.redirect)
        return Provider(model, acks, subscriptions, mine.coordinator)

    def coordinator(self, staged: Iterable[str | TopicName], others: Iterable[str | TopicName] = ()) -> CoordinatorProvider:
        """Return the coordinator of a transaction. `staged`: the topics or segments for which rows were staged. `others`: all other
        topics and segments of the transaction.

        If rows were staged for a persistent topic, the result is the marker-based coordinator, and the store is not read. If the
        topic was migrated meanwhile, that coordinator commits the rows in the successor. Without such rows the common model of all
        names decides. This takes one round trip if one of `others` is persistent. Raises OptionError if the names have different
        models.
        """
        written = [str(name) for name in staged]
        marker_based = any(map(is_persistent, written))
        return self.by_model(Model.IN_STREAM if marker_based else self.model([*others, *written])).coordinator

    def acknowledge(self, wanted: Iterable[Ack]) -> None:
        """Acknowledge rows without a transaction, on topics of both models. Each model gets one call. If the call to one model
        fails, the call to the other model may have taken effect. Raises AckConflict, SubscriptionNotFound.
        """
        for provider, acks in self._by_model(list(wanted)):
            provider.acks.acknowledge(acks)

    def advance(self, wanted: Iterable[Ack]) -> None:
        """Acknowledge rows cumulatively, without a transaction, on topics of both models. Rows that are acknowledged already are
        skipped. Idempotent. Raises as `acknowledge` does.
        """
        for provider, acks in self._by_model(list(wanted)):
            provider.acks.advance(acks)

    def _by_model(self, wanted: Sequence[Ack]) -> Iterator[tuple[Provider, list[Ack]]]:
        models = self.models(ack.segment for ack in wanted)
        for model in Model:
            if some := [ack for ack in wanted if models[ack.segment] is model]:
                yield self.by_model(model), some

    def subscribe(self, topic: TopicName, name: str, *, at: int) -> None:
        """Create a subscription on the topic, or on its successor if it was migrated. Raises TopicNotFound, SubscriptionExists."""
        there = self.resolve(str(topic))
        self.serving(there).subscriptions.create(there, name, at=at)

    def namespace(self, tenant: str, namespace: str) -> Model:
        """Return the model that serves new persistent names of a namespace."""
        record = look(self.client.cluster.store, namespace_key(tenant, namespace))
        return (NamespaceModel() if record is None else NamespaceModel.of(record)).new_persistent

    def set_namespace(self, tenant: str, namespace: str, new_persistent: Model) -> None:
        """Set the model that serves new persistent names of a namespace. Existing topics are not changed. Idempotent."""
        check_new(TopicName(tenant, namespace, ""))
        key, said = namespace_key(tenant, namespace), NamespaceModel(new_persistent=new_persistent)

        def step() -> bool | None:
            record = look(self.client.cluster.store, key)
            if record is not None and NamespaceModel.of(record).new_persistent is new_persistent:
                return True
            after = said if record is None else NamespaceModel.of(record).model_copy(update=dict(said))
            try:
                self.client.cluster.store.put(key, after.to_bytes(), expect=ABSENT if record is None else record)
            except (BadVersion, UnknownOutcome):
                return None
            return True

        until(step)


def logs_of_segments(client: Client, names: Sequence[str]) -> list[LogReader]:
    """Return readers of the logs that hold the rows of these segments now. A migrated persistent topic is a segment of the
    cluster's log.
    """
    models = Providers(client).models(names)
    mine = tuple(name for name, model in models.items() if model is Model.METADATA)
    shared: list[LogReader] = [ClusterLog(client.buffer, LogSelection(mine))] if mine else []
    return [*shared, *logs_of(client, [name for name in models if name not in mine])]


def _made_as_newer(record: Record | None, policy: Record | None) -> bool:
    """Return whether a persistent name means the topic:// of the same name. This is so if the persistent topic has no record, and
    the policy of its namespace creates new topics as topic://. `record`: the topic's record. `policy`: the namespace's record
    with the policy.
    """
    return record is None and policy is not None and NamespaceModel.of(policy).new_persistent is Model.METADATA


def _spans_both(by_model: Mapping[Model, Sequence[str]]) -> OptionError:
    older, newer = (
        ", ".join(found[:3]) + (" .." if len(found) > 3 else "")
        for found in map(by_model.__getitem__, (Model.IN_STREAM, Model.METADATA))
    )
    return OptionError(
        f"{older} keep their transactions in the stream (persistent://), {newer} in the metadata store (topic://): one transaction "
        "never spans both.",
        advice="Nothing was committed. Use two transactions, or migrate the persistent topics (txnsegment topics migrate).",
    )


def namespace_key(tenant: str, namespace: str) -> Key:
    return Key(f"/persistent/namespaces/{paths.encode(tenant)}/{paths.encode(namespace)}", "")
