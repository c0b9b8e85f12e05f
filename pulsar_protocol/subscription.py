"""A durable subscription of a reader that keeps its own positions. The subscription reads no messages. It tells the broker which
entries the reader is done with, so that retention and the deletion of sealed segments keep all other entries.

A scalable topic has a list of its subscriptions. When a broker splits or merges segments, it gives each subscription of the list a
cursor in the new segments, and it keeps a sealed segment until each of them has read it. A request of the REST interface puts a
subscription on the list for good. The registration of a consumer puts it there, too. But then ZooKeeper removes it from the list
some minutes after the broker has forgotten the last consumer (measured with 5.0.0-M1: the broker creates only the consumer's node
and leaves the node of the subscription empty, as a container). So `hold` asks the REST interface first.

The broker 5.0.0-M1 forgets a registered consumer a minute after the end of its connection. The request that closes a consumer
has no effect on it. So a registered consumer has a connection of its own, which ends with it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import quote

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.errors import PulsarError, Unreachable
from pulsar_protocol.layout import Position
from pulsar_protocol.rest import ADMIN_VARIABLE, Refused, Rest, path_of
from pulsar_protocol.retries import PATIENCE_SECONDS, Result, repeat

log = logging.getLogger("txnsegment.subscriptions.pulsar")

_AWAY: Final = (502, 503, 504)


def all_but(position: Position) -> Position:
    """Return the position just before an entry. A reader that has read the entry acknowledges only up to this position. So the
    broker keeps the ledger of the entry. If the entry is the first of its ledger, the broker may delete the earlier ledgers.

    If all entries of a ledger were acknowledged, the broker could delete it. A reader whose position is in a deleted ledger cannot
    know whether the ledger had more entries. The cursor does not tell this. When a ledger is deleted, the broker moves the cursor
    to the beginning of the next ledger. The cursor is there as well if the subscription was made again, or if somebody skipped
    entries.
    """
    return Position(position.ledger, position.entry - 1)


class Subscription:
    """A subscription of a topic. One thread at a time may use it. `close` ends the consumers of this object. The subscription stays
    at the broker.
    """

    def __init__(self, client: PulsarClient, topic: str, name: str, admin_url: str | None) -> None:
        """`admin_url`: the REST interface, which puts the subscription on the list of the topic. None: there is none."""
        self._client, self.topic, self.name, self._admin_url = client, topic, name, admin_url
        self._consumer_name = f"txnsegment-{uuid.uuid4().hex}"
        self._closed = threading.Event()
        self._registered: Consumer | None = None
        self._registering: PulsarClient | None = None
        """The connection of the registered consumer."""
        self._consumers: dict[str, Consumer] = {}

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Acknowledge all entries of each segment up to its position, inclusive. Idempotent. A segment without a cursor gets one.
        Raises ConnectionLost if the broker stays away, or another error that the broker reports.
        """

        def once(left: float) -> None:
            for segment, position in positions.items():
                self._consumer(segment).acknowledge(position)

        repeat(once, PATIENCE_SECONDS, stop=self._closed)

    def hold(self, segments: list[str]) -> None:
        """Register the subscription of a `topic://` topic, and give it a cursor in each of these segments where it has none. A new
        cursor begins with the first entry. Raises ConnectionLost, or another error that the broker reports.
        """

        def once(left: float) -> None:
            if self.topic.startswith("topic://"):
                self._register()

        repeat(once, PATIENCE_SECONDS, stop=self._closed)
        self.give_cursors(segments)

    def give_cursors(self, segments: Iterable[str]) -> None:
        """Give the subscription a cursor in each of these segments where it has none, as `hold` does, but do not register it: the
        broker then gives it no cursors in new segments, and makes no controller for the topic.
        """

        def once(left: float) -> None:
            for segment in segments:
                self._consumer(segment)

        repeat(once, PATIENCE_SECONDS, stop=self._closed)

    def _register(self) -> None:
        if self._registered is not None and self._registered.alive:
            return
        if self._registering is None:
            self._put_on_list()
        if self._registering is None or self._registering.closed:
            self._registering = self._client.another()
        self._registered = Consumer.registered(self._registering.channel(), self.topic, self.name, name=self._consumer_name)

    def _put_on_list(self) -> None:
        if (url := self._admin_url) is not None:
            patiently(lambda: put_on_list(Rest(url), self.topic, self.name), self._closed)
        else:
            log.warning(
                "The subscription %s of %s is lost some minutes after its last consumer has ended, if it was not created by "
                "Pulsar's REST interface: then brokers may delete sealed segments with unread rows. Set the variable %s, such as "
                "http://host:8080, or create the subscription (txnsegment subscriptions create).",
                self.name,
                self.topic,
                ADMIN_VARIABLE,
            )

    def _consumer(self, segment: str) -> Consumer:
        """Return the consumer of a segment. If the broker closed it, for example because the segment moves, open another one."""
        found = self._consumers.get(segment)
        if found is None or not found.alive:
            channel = self._client.broker_of(segment)
            found = Consumer.durable(channel, segment, self.name, name=self._consumer_name)
            self._consumers[segment] = found
        return found

    def close(self) -> None:
        """End the consumers of this object. Idempotent."""
        self._closed.set()
        with contextlib.ExitStack() as all_of_them:  # closes each of them, although one may raise
            if self._registering is not None:
                all_of_them.callback(self._registering.close)
            for one in [*self._consumers.values(), *([self._registered] if self._registered else [])]:
                all_of_them.callback(one.close)
            self._consumers, self._registered, self._registering = {}, None, None


def patiently(call: Callable[[], Result], stop: threading.Event) -> Result:
    """Return what a request of the REST interface returns. Repeat it while the interface is away, because its broker restarts, for
    at most `PATIENCE_SECONDS`. Raises the errors of the REST interface.
    """

    def away(error: PulsarError) -> bool:
        return isinstance(error, Unreachable) or (isinstance(error, Refused) and error.status in _AWAY)

    return repeat(lambda _: call(), PATIENCE_SECONDS, stop=stop, when=away)


def put_on_list(interface: Rest, topic: str, name: str) -> None:
    """Put a subscription of the type STREAM on the list of a scalable topic, and give it a cursor in each active segment that has
    none. Idempotent. Raises the errors of the REST interface.
    """
    interface.ask("PUT", f"{path_of(topic)}/subscriptions/{quote(name, safe='')}?type=STREAM")
