"""The subscriptions of a cluster, as a program sees them: `cluster.subscriptions`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from metadata.client.client import Client
from metadata.client.providers import Providers, SubscriptionsProvider, model_of
from metadata.common.errors import OptionError, SubscriptionExists
from metadata.read import backlog
from metadata.read.backlog import Lag
from metadata.read.reading import Reading
from metadata.records.names import TopicName, segment_name
from metadata.records.persistent_records import Model
from metadata.records.row_ranges import before, texts
from metadata.rules.acks import boundary, done
from metadata.topics.subscriptions import checked
from spark_txn_source.plan import start_number, within_log
from spark_txn_source.selection import AtLog, AtTime, Earliest, Latest, Start

Where: TypeAlias = "str | int | datetime"
"""`earliest`, `latest`, a number of the log (everything up to it is behind the cursor; of a `persistent://` topic its own log, the
ledger of a position), or a moment with a time zone (everything published before it is)."""


@dataclass(frozen=True)
class CursorDescription:
    """Where a subscription stands in one segment.

    `mark_delete`: everything up to and with it is acknowledged, `ledger[:entry[:index]]`; None: nothing yet.
    `acked`: what is acknowledged beyond; `claims`: by OPEN transaction what it is about to acknowledge.
    """

    segment: str
    mark_delete: str | None
    acked: tuple[str, ...]
    claims: dict[str, tuple[str, ...]]
    lag: Lag


@dataclass(frozen=True)
class SubscriptionDescription:
    """A subscription of a topic: its cursors in the order of the segments' ids, and how far it lags behind what is committed."""

    topic: str
    name: str
    lag: Lag
    cursors: tuple[CursorDescription, ...]


class ClusterSubscriptions:
    """Made by `connect`. Each subscription belongs to one topic; the same name on another topic is another one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, topic: str, name: str, *, start: Where = "earliest") -> SubscriptionDescription:
        """Make a subscription. Raises TopicNotFound, SubscriptionExists, OptionError."""
        parsed, name = Providers(self._client).resolve(topic), checked(name)
        self._of(parsed).create(parsed, name, at=self._number(parsed, start))
        return self.describe(topic, name)

    def join(self, topics: Sequence[str], name: str, start: Where) -> None:
        """Make it on those of the topics that do not have it. Raises TopicNotFound, OptionError."""
        for topic in dict.fromkeys(
            segment_name(t).topic if t.startswith("segment:") else Providers(self._client).resolve(t) for t in topics
        ):
            if (topic, checked(name)) not in self._of(topic).list(topic):
                with suppress(SubscriptionExists):  # somebody beside us has just made it
                    self._of(topic).create(topic, checked(name), at=self._number(topic, start))

    def list(self, topic: str | None = None) -> list[SubscriptionDescription]:
        """All, or those of a topic, by topic and name. Raises TopicNotFound."""
        if topic is not None:
            parsed = Providers(self._client).resolve(topic)
            self._client.topics.get(parsed)
            return [self._described(found, name) for found, name in self._of(parsed).list(parsed)]
        both = [*self._client.subscriptions.list(), *Providers(self._client).by_model(Model.IN_STREAM).subscriptions.list()]
        return [self._described(found, name) for found, name in both]

    def describe(self, topic: str, name: str) -> SubscriptionDescription:
        """Raises TopicNotFound, SubscriptionNotFound."""
        return self._described(Providers(self._client).resolve(topic), name)

    def seek(self, topic: str, name: str, to: Where) -> SubscriptionDescription:
        """Move the cursors: everything before counts as acknowledged, nothing after. What OPEN transactions claim stays claimed. A
        running consumer notices when it next begins. A streaming query goes on by its checkpoint; after a move back its next
        commit fails, for it gives no row out twice.

        Raises TopicNotFound, SubscriptionNotFound, OptionError.
        """
        parsed = Providers(self._client).resolve(topic)
        self._of(parsed).seek(parsed, name, to=self._number(parsed, to))
        return self.describe(topic, name)

    def delete(self, topic: str, name: str) -> None:
        """Raises TopicNotFound, SubscriptionNotFound."""
        parsed = Providers(self._client).resolve(topic)
        self._of(parsed).delete(parsed, name)

    def _of(self, topic: TopicName) -> SubscriptionsProvider:
        return Providers(self._client).by_model(model_of(topic)).subscriptions

    def _number(self, topic: TopicName, where: Where) -> int:
        start = _start(where)
        if isinstance(start, Earliest):
            return 0
        reading = self._read(topic)
        number = start_number(reading, start)
        within_log(number, reading)
        if number > reading.cut:
            raise OptionError(f"The log is decided up to {reading.cut}, not to {number} yet.", advice="Try again, or latest.")
        return number

    def _read(self, topic: TopicName) -> Reading:
        return Providers(self._client).by_model(model_of(topic)).buffer.read(str(topic))

    def _described(self, topic: TopicName, name: str) -> SubscriptionDescription:
        reading = self._read(topic)
        acks = Providers(self._client).by_model(model_of(topic)).acks
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


def _start(where: Where) -> Start:
    match where:
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case int() if where >= 0 and not isinstance(where, bool):
            return AtLog(where)
        case datetime() if where.tzinfo is not None:
            return AtTime(round(where.timestamp() * 1000))
    raise OptionError(
        f"{where!r} is no place in the log.",
        advice="Give earliest, latest, a number of the log, or a datetime with a time zone.",
    )
