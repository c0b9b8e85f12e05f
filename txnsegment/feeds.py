"""What a consumer follows: all `topic://` topics together, which one log orders, and each `persistent://` topic by itself, until it
is migrated: from then on it is one of those that the one log orders.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from metadata.client.client import Client
from metadata.client.providers import Providers, one_model
from metadata.common.errors import SubscriptionNotFound, TopicExists
from metadata.instream import paths
from metadata.read import backlog
from metadata.read.reading import Reading, Selection
from metadata.records.names import PersistentName, is_persistent, persistent_name
from metadata.records.persistent_records import Model, PersistentLayout
from metadata.records.row_ranges import NONE, Rows
from metadata.rules import acks
from spark_txn_source.acked import acknowledged
from spark_txn_source.following import Following
from spark_txn_source.losses import check_cursors, check_trims
from spark_txn_source.persistent import check_nothing_left


class _Follows(Protocol):
    def read(self) -> Reading: ...

    def close(self) -> None: ...


class _FollowingOne:
    """A persistent topic: its log wakes, and is listed at each look."""

    def __init__(self, client: Client, name: PersistentName, wake: threading.Event) -> None:
        self._name, self._buffer = str(name), Providers(client).by_model(Model.IN_STREAM).buffer
        self._watch = client.cluster.store.watch(paths.log(name), wake.set)

    def read(self) -> Reading:
        return self._buffer.read(self._name)

    def close(self) -> None:
        self._watch.close()


class Feed:
    """One log's part of a consumer. `after`: the number in that log up to which all has been delivered, or was never wanted.

    `known`: the same of single segments, where it is more; and of topics, what retention had taken when this began: no loss for it.
    `deleted_to`: the newest seal of a deletion when this began (0 if it was joined since): no loss for it either.
    """

    def __init__(self, client: Client, names: Sequence[str], follows: _Follows, subscription: str) -> None:
        self._client, self._follows, self._subscription = client, follows, subscription
        self.names, self.model = tuple(names), one_model(names)
        self.after = 0
        self.known: Mapping[str, int] = {}
        self.deleted_to = 0
        self.reading = self.look()

    def look(self) -> Reading:
        """A reading with all that was decided before this call; it stays in `reading`. Raises TopicNotFound."""
        self.reading = self._follows.read()
        return self.reading

    def begin(self) -> dict[str, Rows]:
        """Begin anew where the subscription stands; what it has done of each segment. Raises SubscriptionNotFound, DataLoss."""
        done = self.done(self.reading)
        check_cursors(self.reading, done, self._subscription)
        self.after = backlog.first_pending(self.reading, done, self.reading.cut)
        self.known, self.deleted_to = self.reading.guards(), max(self.reading.deletions(), default=0)
        return done

    def done(self, reading: Reading) -> dict[str, Rows]:
        """What the subscription has acknowledged of each segment of a reading. Raises SubscriptionNotFound."""
        return acknowledged(self._client, reading, self._subscription)

    def done_of_deleted(self, reading: Reading) -> dict[str, Rows]:
        """What the subscription has acknowledged of the segments of deleted topics. Their cursors stay for the grace period. Of a
        segment without a cursor nothing counts as acknowledged.
        """
        found = {}
        for segment in reading.gone:
            where = (segment.name, self._subscription)
            with suppress(SubscriptionNotFound):
                found[segment.name] = acks.done(self._client.coordinator.acks.read([where])[where])
        return found

    def onward(self) -> str | None:
        """The topic:// that goes on from this persistent topic, as of the last look; None: it is not migrated. Raises TopicNotFound
        once that was deleted.
        """
        if self.model is Model.METADATA:
            return None
        (topic,) = self.reading.topics
        if not isinstance(topic.layout, PersistentLayout) or topic.layout.migrated_to is None:
            return None
        name = persistent_name(str(topic.name))
        try:
            to = Providers(self._client).resolve(str(name))
        except TopicExists:
            return None  # another topic has taken the name: who migrates it gives it another one
        return None if isinstance(to, PersistentName) else str(to)

    def covers(self, segment: str) -> bool:
        """Whether the segment's rows come in the order of this log."""
        return any(segment == found.name for found in self.reading.segments)

    def close(self) -> None:
        self._follows.close()


class Feeds:
    """All feeds of a consumer, that of `topic://` first. `done`: what the subscription had done of each segment when they began.

    They are looked at in this order, and nothing is delivered before all were. A persistent topic that has not been migrated when
    it is looked at goes on above the cut of the reading before; so no row of `topic://` is passed that stands above what goes on.
    """

    def __init__(self, client: Client, names: Sequence[str], subscription: str, wake: threading.Event) -> None:
        """Of topics and segments by full name. `wake` is set when something may have come. Raises TopicNotFound."""
        self._client, self._subscription, self._wake = client, subscription, wake
        self.done: dict[str, Rows] = {}
        self._feeds: list[Feed] = []
        scalable = [name for name in names if not is_persistent(name)]
        older = list(dict.fromkeys(persistent_name(name) for name in names if is_persistent(name)))
        for name in older:
            client.instream.topics.get(name)  # before anything watches a log
        try:
            if scalable:
                self._feeds.append(self._feed(scalable, Following(client, Selection(tuple(scalable)), wake.set)))
            for name in older:
                self._feeds.append(self._feed([str(name)], _FollowingOne(client, name, wake)))
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Feed]:
        return iter(self._feeds)

    def begin(self, check: Callable[[Feed], None]) -> None:
        """Begin anew where the subscription stands, once each feed has passed the check. Raises what it raises,
        SubscriptionNotFound, DataLoss, TopicNotFound.
        """
        self.look()
        for feed in self._feeds:
            check(feed)
        self.done = {segment: done for feed in self._feeds for segment, done in feed.begin().items()}

    def look(self) -> None:
        """Look at all of them. What is found to be migrated is joined to `topic://`. Raises TopicNotFound, DataLoss."""
        while True:
            for feed in self._feeds:
                feed.look()
            onward = next(((feed, to) for feed in self._feeds if (to := feed.onward()) is not None), None)
            if onward is None:
                return
            self._join(*onward)  # whose reading is newer than what the others were looked at for

    def _join(self, ended: Feed, to: str) -> None:
        """Go on with all topics of `topic://` and the one that a persistent topic became as one feed. What was not delivered of the
        persistent one stands in the same log, above everything that was delivered of it; what was delivered does not come again.
        """
        before = next((feed for feed in self._feeds if feed.model is Model.METADATA), None)
        names = list(dict.fromkeys([*(() if before is None else before.names), to]))
        joined = self._feed(names, Following(self._client, Selection(tuple(names)), self._wake.set))
        try:
            reading = joined.reading
            known = {topic: n for topic, n in reading.guards().items() if topic == to}
            at = [] if before is None else [before.after]
            (name,) = ended.names
            segment = next((s for s in reading.segments if s.name == name), None)
            if segment is None:  # it was let go since: what is there stands above it
                shown = ended.look()
                check_trims(shown, ended.after, shown.cut, ended.known, self.done)
                check_nothing_left(self._client, shown, ended.after, self.done.get(name, NONE))
            else:
                assert segment.sealed_at is not None  # a reading completes what was migrated
                known[name] = min(segment.number(ended.after + 1) - 1, segment.sealed_at)
                at.append(known[name])
            joined.after = min(at, default=0)
            joined.known = known | (dict(before.known) if before is not None else {})
            joined.deleted_to = 0 if before is None else before.deleted_to  # the topic is no older than what began on its log
            self.done = joined.done(reading) | self.done
        except BaseException:
            joined.close()
            raise
        self._feeds = [joined, *(feed for feed in self._feeds if feed not in (before, ended))]
        for one in (before, ended):
            if one is not None:
                one.close()

    def _feed(self, names: Sequence[str], follows: _Follows) -> Feed:
        try:
            return Feed(self._client, names, follows, self._subscription)
        except BaseException:
            follows.close()
            raise

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()


def full_name(client: Client, text: str) -> str:
    """A segment's name as it is, of a topic the one that it goes by. Raises OptionError."""
    return text if text.startswith("segment:") else str(Providers(client).resolve(text))
