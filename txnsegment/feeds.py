"""The feeds of a consumer: one for the cluster's log, which orders all `topic://` topics, and one for the log of each
`persistent://` topic. When such a topic is migrated, its feed is merged into the feed of the cluster's log.
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
    """A consumer's progress in one log.

    `after`: all rows up to this number in the log are delivered, or were acknowledged before the feed began. `known`: a log number
    for each name. For a topic it is the guard that the topic had when the feed began. For the segment of a migrated topic whose
    former feed was merged into this feed (`Feeds`), it is the number up to which the former feed had delivered the rows of the
    segment. This feed delivers the rows of the segment above this number. `deleted_to`: the highest number of a seal that had
    deleted a topic when the feed began.

    Trims up to `known` and deletions up to `deleted_to` are no data loss.
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
        """Read the log, keep the reading in `reading`, and return it. The reading contains everything that was decided before this
        call. But a trim appends nothing to the log, so the reading may lack a trim of the last `following.MOST_SECONDS`. Raises
        TopicNotFound.
        """
        self.reading = self._following.read()
        return self.reading

    def forget(self) -> None:
        """Make the next `look` read the log again, even if nothing was appended to the log."""
        self._following.forget()

    def begin(self) -> dict[str, Rows]:
        """Restart at the subscription's cursors. Return the acknowledged rows, by segment. Raises
        SubscriptionNotFound, DataLoss.
        """
        done = self.done(self.reading)
        check_cursors(self.reading, done, self._subscription)
        self.after = backlog.first_pending(self.reading, done, self.reading.cut)
        self.known, self.deleted_to = self.reading.guards(), max(self.reading.deletions(), default=0)
        return done

    def done(self, reading: Reading) -> dict[str, Rows]:
        """Return the rows that the subscription has acknowledged, by segment of a reading. Raises SubscriptionNotFound."""
        return acknowledged(self._client, reading, self._subscription)

    def done_of_deleted(self, reading: Reading) -> dict[str, Rows]:
        """Return the rows that the subscription has acknowledged in segments of deleted topics. The cursors of these segments stay
        for the grace period. In a segment without a cursor no row counts as acknowledged.
        """
        found = {}
        for segment in reading.gone:
            where = (segment.name, self._subscription)
            with suppress(SubscriptionNotFound):
                found[segment.name] = acks.done(self._client.coordinator.acks.read([where])[where])
        return found

    def successor(self) -> str | None:
        """Return the topic:// that this log's topic was migrated to, by the last reading; None if it was not migrated. Raises
        TopicNotFound if the successor was deleted.
        """
        if self.reading.successor is None:
            return None
        try:
            to = str(Providers(self._client).resolve(self.reading.log))
        except TopicExists:
            # The migration is not complete, because another topic has the successor's name. The user must run the migration again
            # with another name. Until then the topic has no successor.
            return None
        return None if to == self.reading.log else to

    def covers(self, segment: str) -> bool:
        """Return whether this log orders the segment's rows."""
        return any(segment == found.name for found in self.reading.segments)

    def close(self) -> None:
        self._following.close()


class Feeds:
    """All feeds of a consumer. The feed of the cluster's log is the first. `done`: by segment, the rows that the subscription had
    acknowledged when the feeds began.

    The logs are read in the order of the feeds, and rows are delivered only after all logs were read (`metadata.client.logs` gives
    the reason).
    """

    def __init__(self, client: Client, names: Sequence[str], subscription: str, wake: threading.Event) -> None:
        """`names`: topics and segments by full name. `wake` is set when there may be new rows. Raises TopicNotFound."""
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
        """Restart at the subscription's cursors, after `check` has passed for each feed. Raises the errors of `check`,
        SubscriptionNotFound, DataLoss, TopicNotFound.
        """
        for feed in self._feeds:
            feed.forget()
        self.look()
        for feed in self._feeds:
            check(feed)
        self.done = {segment: done for feed in self._feeds for segment, done in feed.begin().items()}

    def look(self) -> None:
        """Read all logs. The feed of a migrated topic is merged into that of the cluster's log. Raises TopicNotFound, DataLoss."""
        while True:
            for feed in self._feeds:
                feed.look()
            migrated = next(((feed, to) for feed in self._feeds if (to := feed.successor()) is not None), None)
            if migrated is None:
                return
            self._join(*migrated)  # the merged feed's reading is newer than the others, so the loop reads all logs again

    def _join(self, ended: Feed, to: str) -> None:
        """Merge the feed of a migrated topic with the feed of the cluster's log. The merged feed also reads the successor. In the
        cluster's log the undelivered rows of the migrated topic lie above its delivered rows, so no row is delivered twice.
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
            if segment is None:  # retention has removed the segment; all rows of the successor are above `before.after`
                shown = ended.look()
                left = LogRange(shown, ended.after, shown.cut, self.done)
                check_trims(left, ended.known)
                if any(left.left(one) for one in shown.segments):
                    raise rows_gone(name, to, ended.after)
            else:
                assert segment.sealed_at is not None  # the read of the log has completed the migration
                known[name] = min(segment.number(ended.after + 1) - 1, segment.sealed_at)
                at.append(known[name])
            joined.after = min(at, default=0)
            joined.known = known | (dict(before.known) if before is not None else {})
            # `deleted_to` stays as it was. The successor was created after the feed of the cluster's log began, so a deletion of
            # the successor has a higher number.
            joined.deleted_to = 0 if before is None else before.deleted_to
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
    """Return a segment's name as it is, or the current full name of a topic. Raises OptionError."""
    return text if text.startswith("segment:") else str(Providers(client).resolve(text))
