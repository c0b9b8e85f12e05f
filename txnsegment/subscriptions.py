"""`cluster.subscriptions`: create, list, describe, seek and delete subscriptions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from metadata.client.client import Client
from metadata.client.logs import log_of
from metadata.client.providers import Providers, SubscriptionsProvider
from metadata.common.errors import OptionError, SubscriptionExists
from metadata.common.html import Shown
from metadata.read import backlog
from metadata.read.backlog import Lag
from metadata.read.reading import Reading
from metadata.read.selection import AtTime, Earliest, Latest, Start
from metadata.records.names import TopicName, segment_name
from metadata.records.persistent_records import Model
from metadata.records.row_ranges import before, texts
from metadata.rules.acks import boundary, done
from metadata.topics.subscriptions import checked
from spark_txn_source.log_ranges import start_number

Where: TypeAlias = "str | int | datetime"
"""A place in the log: `earliest`, `latest`, a log number, or a datetime with a time zone. Rows up to the number, or published
before the time, count as acknowledged. For a marker-based topic the number is a ledger id of the topic's own log.
"""


@dataclass(frozen=True)
class CursorDescription(Shown):
    """The cursor of a subscription in one segment.

    `mark_delete`: the mark-delete position, `ledger[:entry[:index]]`; None: nothing is acknowledged cumulatively yet. `acked`:
    acknowledged ranges beyond this position. `claims`: pending acks, by the id of the OPEN transaction. `lag`: the unacknowledged
    rows of the segment.
    """

    segment: str
    mark_delete: str | None
    acked: tuple[str, ...]
    claims: dict[str, tuple[str, ...]]
    lag: Lag


@dataclass(frozen=True)
class SubscriptionDescription(Shown):
    """A subscription of a topic, with its lag behind the committed rows, and its cursor in each segment."""

    topic: str
    name: str
    lag: Lag
    cursors: tuple[CursorDescription, ...]


class ClusterSubscriptions:
    """The subscriptions of a cluster. Each subscription belongs to one topic. Subscriptions of the same name on two topics are
    independent.

        cluster.subscriptions.create("orders", "billing", start="latest")
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, topic: str, name: str, *, start: Where = "earliest") -> SubscriptionDescription:
        """Create a subscription. `start`: the place of its cursors. Raises TopicNotFound, SubscriptionExists, OptionError."""
        parsed, name = Providers(self._client).resolve(topic), checked(name)
        self._of(parsed).create(parsed, name, at=self._number(parsed, start))
        return self.describe(topic, name)

    def join(self, topics: Sequence[str], name: str, start: Where) -> None:
        """Create the subscription on each of the topics that does not have it. Raises TopicNotFound, OptionError."""
        for topic in dict.fromkeys(
            segment_name(t).topic if t.startswith("segment:") else Providers(self._client).resolve(t) for t in topics
        ):
            if (topic, checked(name)) not in self._of(topic).list(topic):
                with suppress(SubscriptionExists):  # another process has just created it
                    self._of(topic).create(topic, checked(name), at=self._number(topic, start))

    def list(self, topic: str | None = None) -> list[SubscriptionDescription]:
        """Return all subscriptions, or the subscriptions of one topic, sorted by topic and name. Subscriptions of marker-based
        topics come last. Raises TopicNotFound.
        """
        if topic is not None:
            parsed = Providers(self._client).resolve(topic)
            self._client.topics.get(parsed)
            return [self._described(found, name) for found, name in self._of(parsed).list(parsed)]
        both = [*self._client.subscriptions.list(), *Providers(self._client).by_model(Model.IN_STREAM).subscriptions.list()]
        return [self._described(found, name) for found, name in both]

    def describe(self, topic: str, name: str) -> SubscriptionDescription:
        """Return the cursors and the lag of a subscription. Raises TopicNotFound, SubscriptionNotFound."""
        return self._described(Providers(self._client).resolve(topic), name)

    def seek(self, topic: str, name: str, to: Where) -> SubscriptionDescription:
        """Move the cursors to a place. Every row before the place then counts as acknowledged, and no row after the place does.
        Pending acks of OPEN transactions stay.

        A running consumer continues at its own position until it next rewinds or starts. A streaming query continues from its
        checkpoint. After a move back the query's next commit fails, because a stream delivers no row twice. Raises TopicNotFound,
        SubscriptionNotFound, OptionError.
        """
        parsed = Providers(self._client).resolve(topic)
        self._of(parsed).seek(parsed, name, to=self._number(parsed, to))
        return self.describe(topic, name)

    def delete(self, topic: str, name: str) -> None:
        """Delete a subscription of one topic. Raises TopicNotFound, SubscriptionNotFound."""
        parsed = Providers(self._client).resolve(topic)
        self._of(parsed).delete(parsed, name)

    def _of(self, topic: TopicName) -> SubscriptionsProvider:
        return Providers(self._client).serving(topic).subscriptions

    def _number(self, topic: TopicName, where: Where) -> int:
        start = _start(where)
        if isinstance(start, Earliest):
            return 0
        reading = self._read(topic)
        number = start if isinstance(start, int) else start_number(reading, start)
        reading.check_reached(number)
        if number > reading.cut:
            raise OptionError(f"The log is decided up to {reading.cut}, not to {number} yet.", advice="Try again, or latest.")
        return number

    def _read(self, topic: TopicName) -> Reading:
        return log_of(self._client, str(topic)).now()

    def _described(self, topic: TopicName, name: str) -> SubscriptionDescription:
        reading = self._read(topic)
        acks = Providers(self._client).serving(topic).acks
        found = acks.read((segment.name, name) for segment in reading.segments)
        lags, described = {}, []
        for segment in reading.segments:
            cursor = found[segment.name, name]
            lags[segment.name] = backlog.lag(reading, segment, done(cursor), reading.cut)
            mark = None if cursor.mark_delete is None else texts(before(boundary(cursor.mark_delete)))[0].rpartition("..")[2]
            claims = {txn: tuple(texts(rows)) for txn, rows in cursor.claims.items()}
            described.append(CursorDescription(segment.name, mark, tuple(texts(cursor.acked)), claims, lags[segment.name]))
        whole = backlog.total(lags)
        backlog.measure(str(topic), name, whole)
        return SubscriptionDescription(str(topic), name, whole, tuple(described))


def _start(where: Where) -> Start | int:
    match where:
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case int() if where >= 0 and not isinstance(where, bool):
            return where
        case datetime() if where.tzinfo is not None:
            return AtTime(round(where.timestamp() * 1000))
    raise OptionError(
        f"{where!r} is no place in the log.",
        advice="Give earliest, latest, a number of the log, or a datetime with a time zone.",
    )
