"""`cluster.subscriptions` of a Pulsar cluster: create, list, describe, seek and delete subscriptions, by Pulsar's REST interface.

The binary protocol cannot list or delete the subscriptions of a scalable topic. It can only tell the positions of a subscription
whose name is known.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from metadata.common.errors import SubscriptionExists, SubscriptionNotFound
from metadata.records.names import topic_name
from metadata.records.row_ranges import FIRST, Row
from metadata.topics.subscriptions import checked
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.cut import Segment
from pulsar_protocol.errors import LogDamaged, TopicDamaged
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.owned_names import ack_log_name, has_ack_log
from pulsar_protocol.rest import NOT_EMPTY, Refused, Rest, admin_url, path_of
from pulsar_protocol.retries import PATIENCE_SECONDS, repeat
from pulsar_protocol.subscription import patiently, put_on_list
from spark_txn_source.pulsar.topics import layout
from txnsegment.pulsar.ack_log import Clock, SubscriptionBusy, ack_log
from txnsegment.pulsar.ack_records import WHOLE, RowsBySegment, beginning
from txnsegment.pulsar.feeding import Where, read_options, rows_before, starting
from txnsegment.pulsar.refused import rest
from txnsegment.pulsar.topics import delete_topic, sound_topics

log = logging.getLogger("txnsegment.subscriptions.pulsar")

BUSY_SECONDS: Final = 90.0
"""How long the deletion of a subscription is repeated. The broker 5.0.0-M1 does not delete the empty node `consumers` of a
subscription, so it cannot delete the node of the subscription either. ZooKeeper removes `consumers` within a minute.
"""


@dataclass(frozen=True)
class PulsarCursor:
    """The position of a subscription in one segment. `mark_delete`: the entry (`ledger:entry`) up to which all entries are
    acknowledged; None: nothing is acknowledged. The other fields are always empty. They exist because `CursorDescription` has them,
    and a broker does not tell them to clients.
    """

    segment: str
    mark_delete: str | None
    acked: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    lag: None = None


@dataclass(frozen=True)
class PulsarSubscription:
    """A subscription of a topic. `consumers`: the number of consumers that are connected (None: not known). `cursors`: only
    `describe` asks for them, and only if no consumer is connected, because the request would disturb a consumer. `lag` is not
    known.
    """

    topic: str
    name: str
    consumers: int | None
    cursors: tuple[PulsarCursor, ...] = ()
    lag: None = None


class PulsarSubscriptions:
    """The subscriptions of a Pulsar cluster, for scalable topics and for `persistent://` topics. They need the REST interface: the
    variable TXNSEGMENT_PULSAR_ADMIN_URL.
    """

    def __init__(self, client: PulsarClient) -> None:
        self._client = client
        self.url = client.url

    def create(self, topic: str, name: str, *, start: Where = "earliest") -> PulsarSubscription:
        """Create a subscription; for a scalable topic it has the type STREAM. `start`: `earliest`, `latest`, or a datetime with a
        time zone. Entries that are not decided yet count as after `latest`, and after any time. Raises TopicMissing,
        SubscriptionExists (also if an interrupted deletion has left acknowledgements), SubscriptionBusy (a consumer creates it at
        the same time), OptionError, or an error of the REST interface.
        """
        full, name = _full(topic), checked(name)
        starting(start)  # raises OptionError
        if name in self._names(full):
            raise SubscriptionExists(f"{full} has a subscription {name} already.", advice="Take another name, or seek this one.")
        self._check_no_acks(full, name)
        rows, _ = rows_before(read_options(self._client.url, full), start)
        if full.startswith("topic://"):
            self._ask("PUT", full, name, "?type=STREAM")
        # A cursor that is new begins with the first entry. (The REST interface would put those of persistent:// at the end.)
        self._places(full, name)
        self._forward(name, rows)
        return self.describe(full, name)

    def _check_no_acks(self, topic: str, name: str) -> None:
        """Raise SubscriptionExists if there are acknowledgements of a subscription that the broker does not have. They would hide
        rows of a new one. Raises SubscriptionBusy if a consumer creates it at the same time.
        """
        if not has_ack_log(self._client, topic, name):
            return
        acks = ack_log(self._client.url, topic, name, Clock())
        try:
            if acks.state().exists:
                raise _left_over(topic, name)
        finally:
            acks.close()

    def list(self, topic: str | None = None, *, namespace: str = "public/default") -> list[PulsarSubscription]:
        """Return the subscriptions of a topic. If `topic` is None, return those of all scalable topics of the namespace, and log a
        warning for each topic that is damaged. Raises TopicMissing, TopicDamaged (`topic` is damaged), OptionError.
        """
        names = [_full(topic)] if topic is not None else sound_topics(self._client, namespace)
        return [PulsarSubscription(full, name, count) for full in names for name, count in sorted(self._names(full).items())]

    def describe(self, topic: str, name: str) -> PulsarSubscription:
        """Return a subscription with its positions. Raises TopicMissing, SubscriptionNotFound, OptionError."""
        full, name = _full(topic), checked(name)
        count = self._existing(full, name)
        cursors = [] if count else [self._cursor(one.name, name) for one in layout(self._client, full).segments.values()]
        return PulsarSubscription(full, name, count, tuple(cursors))

    def seek(self, topic: str, name: str, where: Where) -> PulsarSubscription:
        """Move a subscription to `earliest`, `latest` or a datetime (see `create`). If this is interrupted, the subscription is at
        the old or at the new place, and the broker keeps the rows after both. Raises the errors of `describe`, and SubscriptionBusy
        if a consumer of `cluster.consumer` has it.
        """
        full, name = _full(topic), checked(name)
        starting(where)  # raises OptionError
        self._existing(full, name)
        acks = ack_log(self._client.url, full, name, Clock()) if has_ack_log(self._client, full, name) else None
        try:
            if acks is not None:
                acks.state()  # raises SubscriptionBusy before anything is moved
            rows, sent = rows_before(read_options(self._client.url, full), where)
            # The cursors go back before the log does, and forward after it. So they never pass what the log has not.
            ends = {segment: beginning(found) for segment, found in rows.items()}
            if any(_passes(place, ends.get(segment, FIRST)) for segment, place in self._places(full, name).items()):
                self._to_earliest(full, name)
            if acks is not None:
                acks.move(rows, sent)
            self._forward(name, rows)
        finally:
            if acks is not None:
                acks.close()
        return self.describe(full, name)

    def delete(self, topic: str, name: str) -> None:
        """Delete a subscription: at the broker, and then its log of acknowledgements. If this method raises, run it again: it goes
        on where it stopped.

        Raises TopicMissing, SubscriptionNotFound, SubscriptionBusy (it has consumers), OptionError, TopicDamaged or LogDamaged (the
        log of acknowledgements cannot be deleted), or an error of the REST interface.
        """
        full, name = _full(topic), checked(name)
        known = self._names(full)
        try:
            logged = has_ack_log(self._client, full, name)
        except TopicDamaged as error:
            if name in known:
                self._delete_at_broker(full, name)
            raise TopicDamaged(
                f"The broker has no subscription {name!r} of {full} any more, but the log of its acknowledgements is not deleted: "
                f"{error.message}",
                advice=error.advice,
            ) from error
        if logged:
            self._delete_logged(full, name, is_known=name in known)
        else:
            self._existing(full, name)
            self._delete_at_broker(full, name)

    def _delete_logged(self, topic: str, name: str, *, is_known: bool) -> None:
        """Delete a subscription that has a log of acknowledgements. `is_known`: whether the broker has the subscription."""
        damage: LogDamaged | None = None
        acks = ack_log(self._client.url, topic, name, Clock())
        try:
            try:
                exists = acks.state().exists  # raises SubscriptionBusy before anything is deleted
            except LogDamaged as error:
                damage, exists = error, True
            if is_known:
                self._delete_at_broker(topic, name)
            if exists and damage is None:
                acks.delete()
        finally:
            acks.close()
        log_name = ack_log_name(topic, name)
        if not self._client.layout(log_name).controlled:
            delete_topic(self._client, log_name, force=True)
        elif damage is not None:
            raise damage
        elif not (is_known or exists):
            self._existing(topic, name)

    def _delete_at_broker(self, topic: str, name: str) -> None:
        """Delete what the broker has of a subscription. Raises SubscriptionBusy if the subscription has consumers."""
        if count := self._names(topic).get(name):
            raise _in_use(topic, name, f"has {count} consumers, as the broker counts them")

        def ask(_: float) -> None:
            self._ask("DELETE", topic, name)

        try:
            repeat(ask, BUSY_SECONDS, stop=threading.Event(), when=lambda error: NOT_EMPTY in error.message)
        except Refused as error:
            if NOT_EMPTY not in error.message:
                raise
            raise _in_use(topic, name, "has records of consumers that ZooKeeper has not removed yet") from error

    def keep(self, topic: str, name: str) -> None:
        """Put a subscription on the list of its topic again, if the broker has lost it, and log a warning. Does nothing if the URL
        of the REST interface is not set. Raises the errors of the REST interface.
        """
        url, stop = admin_url(), threading.Event()
        if url is None or not topic.startswith("topic://") or name in patiently(lambda: self._names(topic), stop):
            return
        patiently(lambda: put_on_list(Rest(url), topic, name), stop)
        log.warning(
            "The broker had lost the subscription %s of %s. It is made again, and its acknowledgements are kept. While it was "
            "lost, brokers may have deleted sealed segments with unread rows.",
            name,
            topic,
        )

    def check_unused(self, topic: str, name: str) -> None:
        """Raise SubscriptionBusy if a subscription has consumers. It has no records of acknowledgements, so they are of a stream of
        Spark, or of another client of Pulsar. They would acknowledge rows which `cluster.consumer` has not acknowledged.
        """
        if topic.startswith("topic://"):
            count = self._names(topic).get(name)
        else:
            parts = [one.name for one in layout(self._client, topic).segments.values()]
            told = [rest("cluster.subscriptions").ask("GET", f"{path_of(part)}/stats") for part in parts]
            count = sum(len(one["subscriptions"].get(name, {}).get("consumers", ())) for one in told)
        if count:
            raise SubscriptionBusy(
                f"The subscription {name!r} of {topic} has {count} consumers, as the broker counts them. But its log of "
                f"acknowledgements {ack_log_name(topic, name)} does not exist, or has no records: cluster.consumer or "
                "cluster.transaction would have written them.",
                advice="If a stream has the option subscription with this name, or another client has the subscription, end it, or "
                "take another name. Otherwise somebody has deleted the log, or skipped its records: then end the consumer of the "
                "subscription. (The next one begins at the cursors, so it may deliver acknowledged rows again.) Then wait a "
                "minute: a broker forgets a consumer a minute after its end.",
            )

    def positions(self, topic: str, name: str) -> dict[str, Position] | None:
        """Return the position of a subscription in each segment; None: there is no such subscription. Raises TopicMissing,
        OptionError.
        """
        if name not in self._names(topic):
            return None
        return self._places(topic, name)

    def _names(self, topic: str) -> dict[str, int | None]:
        """Return the subscriptions of a topic by name, each with the number of its consumers (None: not known)."""
        layout(self._client, topic)  # raises TopicMissing
        found = rest("cluster.subscriptions")
        if topic.startswith("topic://"):
            told: dict[str, Any] = found.ask("GET", f"{path_of(topic)}/stats")["subscriptions"]
            return {name: one.get("consumerCount") for name, one in told.items()}
        return dict.fromkeys(found.ask("GET", f"{path_of(topic)}/subscriptions"))

    def _existing(self, topic: str, name: str) -> int | None:
        found = self._names(topic)
        if name not in found:
            raise SubscriptionNotFound(
                f"{topic} has no subscription {name}.", advice=f"It has: {', '.join(sorted(found)) or 'none'}."
            )
        return found[name]

    def _ask(self, method: str, topic: str, name: str, more: str = "") -> None:
        group = "subscriptions" if topic.startswith("topic://") else "subscription"
        rest("cluster.subscriptions").ask(method, f"{path_of(topic)}/{group}/{quote(name, safe='')}{more}")

    def _to_earliest(self, topic: str, name: str) -> None:
        """Move all cursors of a subscription to the first entry that is kept."""
        self._ask("POST", topic, name, "/seek?timestamp=0" if topic.startswith("topic://") else "/resetcursor/0")

    def _forward(self, name: str, rows: RowsBySegment) -> None:
        """Let the cursors of a subscription pass these rows. Brokers can also move cursors to the end, or to a time. But then they
        pass entries of open transactions, which are lost if the transactions commit.
        """
        places = {}
        for segment, found in rows.items():
            end = beginning(found)
            whole = end >= WHOLE
            places[segment] = Segment(self._client, segment).last() if whole else Position(end.ledger_id, end.entry_id - 1)

        def once(_: float) -> None:
            for segment, place in places.items():
                if place.entry >= 0:
                    with Consumer.durable(self._client.broker_of(segment), segment, name) as consumer:
                        consumer.acknowledge(place)

        repeat(once, PATIENCE_SECONDS, stop=threading.Event())

    def _places(self, topic: str, name: str) -> dict[str, Position]:
        """Return the position of each cursor of a subscription. A segment without a cursor gets one."""
        return {one.name: self._position(one.name, name) for one in layout(self._client, topic).segments.values()}

    def _cursor(self, segment: str, name: str) -> PulsarCursor:
        place = self._position(segment, name)
        return PulsarCursor(segment, None if place == EARLIEST or place.entry < 0 else place.text)

    def _position(self, segment: str, name: str) -> Position:
        with Consumer.durable(self._client.broker_of(segment), segment, name) as consumer:
            return consumer.position


def _in_use(topic: str, name: str, why: str) -> SubscriptionBusy:
    return SubscriptionBusy(
        f"The subscription {name!r} of {topic} {why}, so it is not deleted.",
        advice="End the programs that have a consumer or a stream of it. A broker forgets them a minute after their end.",
    )


def _full(topic: str) -> str:
    return topic if topic.startswith("persistent://") else str(topic_name(topic))


def _passes(cursor: Position, end: Row) -> bool:
    """Return whether a cursor has passed entries at or after `end`, the end of the rows before a place."""
    return Row(cursor.ledger, cursor.entry + 1, 0) > end


def _left_over(topic: str, name: str) -> SubscriptionExists:
    return SubscriptionExists(
        f"The broker has no subscription {name!r} of {topic}, but a log has acknowledgements of it: {ack_log_name(topic, name)}. A "
        "deletion of the subscription was interrupted, or it was deleted by other means than cluster.subscriptions.delete.",
        advice="To begin anew, call cluster.subscriptions.delete (txnsegment subscriptions delete) once more, then create it. To "
        "go on with the rows that are not acknowledged, open it by cluster.consumer.",
    )
