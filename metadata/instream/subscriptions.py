"""Subscriptions of persistent topics. The methods are those of `metadata.topics.subscriptions`, but `at` and `to` are numbers of
the topic's own log. Each subscription has one cursor, which its pending-ack log determines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from metadata.common.errors import SubscriptionMigrated
from metadata.instream.migrating import Migrator
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.topics import PersistentTopics
from metadata.records.names import PersistentName, TopicName
from metadata.records.row_ranges import NONE, Rows, before, end_of
from metadata.rules.migrated import to_cluster
from metadata.topics.subscriptions import Subscriptions, legacy_shift


@dataclass(frozen=True)
class InStreamSubscriptions:
    """The subscriptions of a cluster's persistent topics."""

    topics: PersistentTopics
    acks: InStreamAcks
    migrator: Callable[[], Migrator]
    further: Subscriptions
    """The subscriptions of successor topics."""

    def create(self, topic: TopicName, name: str, *, at: int) -> None:
        """Create a subscription that has acknowledged everything at or below the number `at`. Trimmed rows always count as
        acknowledged.

        If the topic is migrated meanwhile, the subscription is created on its successor. Raises TopicNotFound, SubscriptionExists.
        """
        try:
            self.acks.create(str(topic), name, self._behind(_persistent(topic), at))
        except SubscriptionMigrated:
            to = self.migrator().cursor_successor((str(topic), name))
            self.further.create(to.name, name, at=to_cluster(at, legacy_shift(to, str(topic))))

    def delete(self, topic: TopicName, name: str) -> None:
        """Delete a subscription. Raises TopicNotFound, SubscriptionNotFound."""
        self.topics.get(_persistent(topic))
        try:
            self.acks.delete(str(topic), name)
        except SubscriptionMigrated:
            self.further.delete(self.migrator().cursor_successor((str(topic), name)).name, name)

    def seek(self, topic: TopicName, name: str, *, to: int) -> None:
        """Make exactly the rows at or below the number `to` count as acknowledged. Pending acks of OPEN transactions stay.

        Raises TopicNotFound, SubscriptionNotFound.
        """
        try:
            self.acks.seek({(str(topic), name): self._behind(_persistent(topic), to)})
        except SubscriptionMigrated:
            successor = self.migrator().cursor_successor((str(topic), name))
            self.further.seek(successor.name, name, to=to_cluster(to, legacy_shift(successor, str(topic))))

    def list(self, topic: TopicName | None = None) -> Sequence[tuple[TopicName, str]]:
        """Return (topic, subscription) pairs, sorted by name, without migrated subscriptions."""
        names = [t.name for t in self.topics.list() if t.layout.migrated_to is None] if topic is None else [_persistent(topic)]
        return [(name, subscription) for name in names for subscription in self.acks.list(str(name))]

    def _behind(self, topic: PersistentName, number: int) -> Rows:
        layout = self.topics.get(topic).layout
        last = max(number, layout.trimmed_log)
        return before(end_of(last)) if last else NONE


def _persistent(topic: TopicName) -> PersistentName:
    assert isinstance(topic, PersistentName), f"{topic} is not a persistent topic"
    return topic
