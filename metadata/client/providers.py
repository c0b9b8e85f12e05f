"""Which model serves a topic: by its domain, or as its namespace says (docs/in_stream.md, Providers).

`topic://` keeps transactions in the metadata store, `persistent://` in the stream. A namespace may be told to use the newer model
for persistent names, too: those that do not exist yet become topic:// of the same name, those that exist stay until they are
migrated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql.types import StructType

from metadata.client.client import Client
from metadata.common.errors import BadVersion, OptionError, TopicSealed, UnknownOutcome
from metadata.cursors.cursors import Where
from metadata.read.reading import Reading, Selection
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
from metadata.topics.topic import Topic
from metadata.write.write_set import Committed, WriteSet


class Selected(JsonRecord):
    """The model that serves a topic, and the name that it has there."""

    model: Model
    name: str


class TransactionBufferProvider(Protocol):
    """What a reader may see of a topic or segment, of either model."""

    def read(self, name: str) -> Reading: ...


class SubscriptionsProvider(Protocol):
    """The subscriptions of topics of either model; numbers are of the log that orders the topic's rows."""

    def create(self, topic: TopicName, name: str, *, at: int) -> None: ...

    def delete(self, topic: TopicName, name: str) -> None: ...

    def seek(self, topic: TopicName, name: str, *, to: int) -> None: ...

    def list(self, topic: TopicName | None = None) -> Sequence[tuple[TopicName, str]]: ...


class CoordinatorProvider(Protocol):
    """What commits a write set, of either model."""

    def commit(self, work: WriteSet) -> Committed: ...

    def abort_attempt(self, app: str, app_topic: str, claim: Claim) -> None: ...


class PendingAckProvider(Protocol):
    """What keeps cursors and claims, of either model."""

    def acknowledge(self, wanted: Sequence[Ack]) -> None: ...

    def advance(self, wanted: Sequence[Ack]) -> None: ...

    def seek(self, to: Mapping[Where, Rows]) -> None: ...

    def read(self, where: Iterable[Where]) -> dict[Where, Cursor]: ...


@dataclass(frozen=True)
class Provider:
    """All that serves the topics of one model."""

    model: Model
    buffer: TransactionBufferProvider
    acks: PendingAckProvider
    subscriptions: SubscriptionsProvider
    coordinator: CoordinatorProvider


def model_of(name: str | TopicName) -> Model:
    """Of the name that a topic or segment goes by (as `Providers.select` gives it): its domain says it."""
    return Model.IN_STREAM if is_persistent(str(name)) else Model.METADATA


def one_model(names: Iterable[str | TopicName]) -> Model:
    """The model of all of these topics and segments (of none: the metadata's). Raises OptionError: no transaction spans both."""
    return _the_one({name: model_of(name) for name in dict.fromkeys(map(str, names))})


def _the_one(models: Mapping[str, Model]) -> Model:
    by_model = {model: [name for name, found in models.items() if found is model] for model in Model}
    if all(by_model.values()):
        raise _spans_both(by_model)
    return Model.IN_STREAM if by_model[Model.IN_STREAM] else Model.METADATA


@dataclass(frozen=True)
class Providers:
    """The choice between the models for one client."""

    client: Client

    def select(self, names: Sequence[TopicName]) -> dict[TopicName, Selected]:
        """The model of each topic, whether it exists or not. A migrated one goes by its topic:// name. One round trip,
        and one for each migrated topic. Raises TopicExists if what it was to become was made by somebody else, TopicNotFound if it
        was deleted.
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
                    self.client.instream.migrator.finish(name)  # nobody has made it yet, or somebody else has
                found[name] = Selected(model=Model.METADATA, name=layout.migrated_to)
            elif _made_as_newer(record, said):
                found[name] = Selected(model=Model.METADATA, name=str(TopicName(*name)))
            else:
                found[name] = Selected(model=Model.IN_STREAM, name=str(name))
        return found

    def resolve(self, text: str) -> TopicName:
        """The topic that a name stands for: a persistent one goes by its topic:// name once it is migrated, or if its namespace has
        new topics made so. A round trip for a persistent name, none for others. Raises OptionError.
        """
        name = any_topic_name(text)
        return any_topic_name(self.select([name])[name].name) if isinstance(name, PersistentName) else name

    def evolve(self, name: TopicName, types: StructType, key: str | None = None) -> tuple[Topic, int]:
        """As `Topics.evolve`: of a persistent topic that was migrated the schema of the topic that goes on, by whose id parts that
        were staged before name it there.
        """
        try:
            return self.client.topics.evolve(name, types, key)
        except TopicSealed:
            to = self.client.instream.migrator.made(name) if isinstance(name, PersistentName) else None
            if to is None:
                raise
            return self.client.topics.evolve(to, types, key)

    def named(self, text: str) -> TopicName:
        """As `resolve`, but a persistent topic that is there goes by its own name, migrated or not: for what is about the topic
        itself. Raises OptionError.
        """
        name = any_topic_name(text)
        if not isinstance(name, PersistentName):
            return name
        keys = [paths.topic(name), namespace_key(name.tenant, name.namespace)]
        record, said = decide(self.client.cluster.store, lambda view: view.get_many(keys))
        return TopicName(*name) if _made_as_newer(record, said) else name

    def of(self, names: Iterable[str | TopicName]) -> Provider:
        """What serves these topics or segments, all of one model. Raises OptionError."""
        return self.by_model(self.model(names))

    def model(self, names: Iterable[str | TopicName]) -> Model:
        """The one model of all of these (of none: the metadata's). Raises OptionError."""
        return _the_one(self.models(names))

    def models(self, names: Iterable[str | TopicName]) -> dict[str, Model]:
        """The model of each topic or segment by its full name. A persistent topic that was migrated is a segment of the topic that
        goes on. A round trip if there are persistent ones.
        """
        texts = list(dict.fromkeys(map(str, names)))
        older = {name: persistent_name(name) for name in texts if is_persistent(name)}
        found = self.select(list(older.values())) if older else {}
        return {name: found[older[name]].model if name in older else Model.METADATA for name in texts}

    def by_model(self, model: Model) -> Provider:
        client = self.client
        if model is Model.METADATA:
            return Provider(model, _Segments(client), client.coordinator.acks, client.subscriptions, client.coordinator)
        from metadata.instream.acknowledging import OnwardAcks
        from metadata.instream.subscriptions import InStreamSubscriptions  # here: most processes never meet one

        mine = client.instream
        subscriptions = InStreamSubscriptions(mine.topics, mine.acks, lambda: mine.migrator, client.subscriptions)
        acks = OnwardAcks(mine.acks, lambda: mine.coordinator.onward)
        return Provider(model, _InStream(client), acks, subscriptions, mine.coordinator)

    def coordinator(self, work: WriteSet) -> CoordinatorProvider:
        """What commits this write set, by the names of its segments. Raises OptionError if it spans both models."""
        touched = {*work.parts, *(ack.segment for ack in work.acks)}
        model = self.model(sorted(touched) if touched or work.app_topic is None else [work.app_topic])
        if any(is_persistent(name) for name in work.parts):
            return self.client.instream.coordinator  # also of one that was migrated since: it knows where its rows go on
        return self.client.instream.coordinator if model is Model.IN_STREAM else self.client.coordinator

    def acknowledge(self, wanted: Iterable[Ack]) -> None:
        """Acknowledge without a transaction on topics of either model. One call for each: after an error the one may have been
        done, and not the other. Raises AckConflict, SubscriptionNotFound.
        """
        for provider, acks in self._by_model(list(wanted)):
            provider.acks.acknowledge(acks)

    def advance(self, wanted: Iterable[Ack]) -> None:
        """Acknowledge cumulatively, as `acknowledge`, what is not behind the cursors already. Idempotent."""
        for provider, acks in self._by_model(list(wanted)):
            provider.acks.advance(acks)

    def _by_model(self, wanted: Sequence[Ack]) -> Iterator[tuple[Provider, list[Ack]]]:
        models = self.models(ack.segment for ack in wanted)
        for model in Model:
            if some := [ack for ack in wanted if models[ack.segment] is model]:
                yield self.by_model(model), some

    def subscribe(self, topic: TopicName, name: str, *, at: int) -> None:
        """Make a subscription where the topic goes by now. Raises TopicNotFound, SubscriptionExists."""
        there = self.resolve(str(topic))
        self.by_model(model_of(there)).subscriptions.create(there, name, at=at)

    def namespace(self, tenant: str, namespace: str) -> Model:
        """Which model serves persistent names of a namespace that do not exist yet."""
        record = look(self.client.cluster.store, namespace_key(tenant, namespace))
        return (NamespaceModel() if record is None else NamespaceModel.of(record)).new_persistent

    def set_namespace(self, tenant: str, namespace: str, new_persistent: Model) -> None:
        """Say which model serves persistent names of a namespace that do not exist yet. Idempotent."""
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


@dataclass(frozen=True)
class _Segments:
    client: Client

    def read(self, name: str) -> Reading:
        return self.client.buffer.read(Selection((name,)))


@dataclass(frozen=True)
class _InStream:
    client: Client

    def read(self, name: str) -> Reading:
        from metadata.instream.view import as_reading

        return as_reading(self.client.instream.buffer.read(persistent_name(name)))


def _made_as_newer(record: Record | None, said: Record | None) -> bool:
    """Whether a persistent name is a topic:// of the same name: the persistent topic has no record, and its namespace says so."""
    return record is None and said is not None and NamespaceModel.of(said).new_persistent is Model.METADATA


def _spans_both(by_model: Mapping[Model, Sequence[str]]) -> OptionError:
    older, newer = (
        ", ".join(found[:3]) + (" .." if len(found) > 3 else "")
        for found in map(by_model.__getitem__, (Model.IN_STREAM, Model.METADATA))
    )
    return OptionError(
        f"{older} keep their transactions in the stream, {newer} in the metadata store: one transaction never spans both.",
        advice="Nothing was committed. Use two transactions, or migrate the persistent topics (txnsegment topics migrate).",
    )


def namespace_key(tenant: str, namespace: str) -> Key:
    return Key(f"/persistent/namespaces/{paths.encode(tenant)}/{paths.encode(namespace)}", "")
