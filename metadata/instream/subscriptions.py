"""Subscriptions of persistent topics: the calls that `metadata.subscriptions` has for topic://, where numbers are of the topic's
own log and its one cursor is that of the pending-ack log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.topics import PersistentTopics
from metadata.names import PersistentName, TopicName
from metadata.row_ranges import NONE, Rows, before, end_of


@dataclass(frozen=True)
class InStreamSubscriptions:
    """The subscriptions of a cluster's persistent topics."""

    topics: PersistentTopics
    acks: InStreamAcks

    def create(self, topic: TopicName, name: str, *, at: int) -> None:
        """Make a subscription that has everything at or below the number `at` behind it (0: nothing but what was trimmed).

        Raises TopicNotFound, SubscriptionExists.
        """
        self.acks.create(str(topic), name, self._behind(_persistent(topic), at))

    def delete(self, topic: TopicName, name: str) -> None:
        """Raises TopicNotFound, SubscriptionNotFound."""
        self.topics.get(_persistent(topic))
        self.acks.delete(str(topic), name)

    def seek(self, topic: TopicName, name: str, *, to: int) -> None:
        """Move it: exactly the rows at or below the number `to` count as acknowledged. What OPEN transactions claim stays claimed.

        Raises TopicNotFound, SubscriptionNotFound.
        """
        self.acks.seek({(str(topic), name): self._behind(_persistent(topic), to)})

    def list(self, topic: TopicName | None = None) -> Sequence[tuple[TopicName, str]]:
        """Topics and their subscriptions, by name."""
        names = [t.name for t in self.topics.list()] if topic is None else [_persistent(topic)]
        return [(name, subscription) for name in names for subscription in self.acks.list(str(name))]

    def _behind(self, topic: PersistentName, number: int) -> Rows:
        layout = self.topics.get(topic).layout
        last = max(number, layout.trimmed_log)
        return before(end_of(last)) if last else NONE


def _persistent(topic: TopicName) -> PersistentName:
    assert isinstance(topic, PersistentName), f"{topic} is no persistent topic"
    return topic
