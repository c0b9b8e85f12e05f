"""What transactions of a topic are made of, chosen by the domain of its name: `topic://` keeps their state in the metadata store,
`persistent://` in the data (docs/in_stream.md, Providers). Whoever works on topics asks here and need not know which kind they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from metadata.acks import Ack
from metadata.cursors import Where
from metadata.errors import OptionError
from metadata.names import TopicName, is_persistent, persistent_name
from metadata.records import Cursor
from metadata.row_ranges import Rows
from metadata.transaction_buffer import Reading, Selection
from metadata.transitions import Claim
from metadata.write_set import Committed, WriteSet

if TYPE_CHECKING:
    from metadata.client import Client


class Domain(StrEnum):
    """By what a name begins with; a segment is of its topic's."""

    TOPIC = "topic"
    PERSISTENT = "persistent"


class TransactionBufferProvider(Protocol):
    """What a reader may see."""

    def read(self, name: str) -> Reading:
        """One decision about one topic (or segment). Raises TopicNotFound."""


class PendingAckProvider(Protocol):
    """Acknowledgements of (segment, subscription), where a persistent topic is its own segment."""

    def acknowledge(self, wanted: Sequence[Ack]) -> None: ...

    def advance(self, wanted: Sequence[Ack]) -> None: ...

    def seek(self, to: Mapping[Where, Rows]) -> None: ...

    def read(self, where: Iterable[Where]) -> dict[Where, Cursor]: ...


class SubscriptionsProvider(Protocol):
    """The subscriptions of topics; numbers are of the log that orders the topic's rows."""

    def create(self, topic: TopicName, name: str, *, at: int) -> None: ...

    def delete(self, topic: TopicName, name: str) -> None: ...

    def seek(self, topic: TopicName, name: str, *, to: int) -> None: ...

    def list(self, topic: TopicName | None = None) -> Sequence[tuple[TopicName, str]]: ...


class CoordinatorProvider(Protocol):
    """Who decides a transaction."""

    def commit(self, work: WriteSet) -> Committed: ...

    def abort_attempt(self, app: str, app_topic: str, claim: Claim) -> None: ...


@dataclass(frozen=True)
class Provider:
    """All of one domain."""

    domain: Domain
    buffer: TransactionBufferProvider
    acks: PendingAckProvider
    subscriptions: SubscriptionsProvider
    coordinator: CoordinatorProvider


def domain_of(name: str | TopicName) -> Domain:
    """Of the full name of a topic or segment."""
    return Domain.PERSISTENT if is_persistent(str(name)) else Domain.TOPIC


def one_domain(names: Iterable[str | TopicName]) -> Domain:
    """The domain of all of them (of none at all: `topic://`). Raises OptionError: one transaction never spans both kinds."""
    found: dict[Domain, list[str]] = {}
    for name in dict.fromkeys(map(str, names)):
        found.setdefault(domain_of(name), []).append(name)
    if len(found) > 1:
        ours, older = (", ".join(found[domain][:3]) + (" .." if len(found[domain]) > 3 else "") for domain in Domain)
        raise OptionError(
            f"One transaction never spans both kinds of topics: {ours} on the one side, {older} on the other.",
            advice="Nothing was committed. Use a transaction for each kind, or migrate the persistent topics to topic:// first.",
        )
    return next(iter(found), Domain.TOPIC)


def provider(client: Client, names: Iterable[str | TopicName]) -> Provider:
    """What works on these topics or segments, all of one kind. Raises OptionError."""
    return provider_of(client, one_domain(names))


def provider_of(client: Client, domain: Domain) -> Provider:
    """What works on the topics of a domain."""
    if domain is Domain.TOPIC:
        coordinator = client.coordinator
        return Provider(Domain.TOPIC, _Segments(client), coordinator.acks, client.subscriptions, coordinator)
    from metadata.instream.subscriptions import InStreamSubscriptions  # here: most processes never meet one

    older = client.instream.coordinator
    subscriptions = InStreamSubscriptions(client.instream.topics, older.acks)
    return Provider(Domain.PERSISTENT, _InStream(client), older.acks, subscriptions, older)


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
