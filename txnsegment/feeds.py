"""What a consumer follows: the cluster's log, which orders all `topic://` topics together, and the log of each `persistent://`
topic. Once such a topic is migrated, the cluster's log orders its rows, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from metadata.client.client import Client
from metadata.client.logs import logs_of
from metadata.client.providers import Providers
from metadata.common.errors import SubscriptionNotFound, TopicExists
from metadata.read import backlog
from metadata.read.log_reader import LogReader, rows_gone
from metadata.read.reading import Reading
from metadata.read.selection import LOG
from metadata.records.row_ranges import Rows
from metadata.rules import acks
from spark_txn_source.acked import acknowledged
from spark_txn_source.following import Following
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.losses import check_cursors, check_trims


class Feed:
    """One log's part of a consumer. `after`: the number in that log up to which all has been delivered, or was never wanted.

    `known`: the same of single segments, where it is more; and of topics, what retention had taken when this began: no loss for it.
    `deleted_to`: the newest seal of a deletion when this began (0 if it was joined since): no loss for it either.
    """

    def __init__(self, client: Client, log: LogReader, subscription: str, wake: threading.Event) -> None:
        self._client, self._subscription, self.names = client, subscription, log.names
        self._following = Following(log, wake.set)
        self.after = 0
        self.known: Mapping[str, int] = {}
        self.deleted_to = 0
        try:
            self.reading = self.look()
        except BaseException:
            self.close()
            raise

    def look(self) -> Reading:
        """A reading with all that was decided before this call; it stays in `reading`. Raises TopicNotFound."""
        self.reading = self._following.read()
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

    def successor(self) -> str | None:
        """The topic:// that this log's topic was migrated to, as of the last look; None: it is not migrated. Raises TopicNotFound
        once the successor was deleted.
        """
        if self.reading.successor is None:
            return None
        try:
            to = str(Providers(self._client).resolve(self.reading.log))
        except TopicExists:
            return None  # another topic has taken the name: who migrates it gives it another one
        return None if to == self.reading.log else to

    def covers(self, segment: str) -> bool:
        """Whether the segment's rows come in the order of this log."""
        return any(segment == found.name for found in self.reading.segments)

    def close(self) -> None:
        self._following.close()


class Feeds:
    """All feeds of a consumer, that of the cluster's log first. `done`: what the subscription had done of each segment when they
    began.

    They are looked at in this order, and nothing is delivered before all were (`metadata.client.logs` says why).
    """

    def __init__(self, client: Client, names: Sequence[str], subscription: str, wake: threading.Event) -> None:
        """Of topics and segments by full name. `wake` is set when something may have come. Raises TopicNotFound."""
        self._client, self._subscription, self._wake = client, subscription, wake
        self.done: dict[str, Rows] = {}
        self._feeds: list[Feed] = []
        try:
            for log in logs_of(client, names):
                self._feeds.append(self._feed(log))
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
            migrated = next(((feed, to) for feed in self._feeds if (to := feed.successor()) is not None), None)
            if migrated is None:
                return
            self._join(*migrated)  # whose reading is newer than what the others were looked at for

    def _join(self, ended: Feed, to: str) -> None:
        """Read the successor of a migrated topic together with all that the cluster's log orders already, as one feed. What was not
        delivered of the migrated topic stands in that log, above everything that was delivered of it; what was delivered does not
        come again.
        """
        before = next((feed for feed in self._feeds if feed.reading.log == LOG), None)
        names = tuple(dict.fromkeys([*(() if before is None else before.names), to]))
        (log,) = logs_of(self._client, names)
        joined = self._feed(log)
        try:
            reading = joined.reading
            known = {topic: n for topic, n in reading.guards().items() if topic == to}
            at = [] if before is None else [before.after]
            (name,) = ended.names
            segment = next((s for s in reading.segments if s.name == name), None)
            if segment is None:  # it was let go since: what is there stands above it
                shown = ended.look()
                left = LogRange(shown, ended.after, shown.cut, self.done)
                check_trims(left, ended.known)
                if any(left.left(one) for one in shown.segments):
                    raise rows_gone(name, to, ended.after)
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

    def _feed(self, log: LogReader) -> Feed:
        return Feed(self._client, log, self._subscription, self._wake)

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()


def full_name(client: Client, text: str) -> str:
    """A segment's name as it is, of a topic the one that it goes by. Raises OptionError."""
    return text if text.startswith("segment:") else str(Providers(client).resolve(text))
