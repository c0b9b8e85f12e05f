"""A durable subscription of a reader that keeps its own positions. It reads no messages. It tells the broker which entries are
done, so that retention and the deletion of sealed segments keep those that are not.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Final

from pulsar_protocol.channel import Channel
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.connection import Delivery
from pulsar_protocol.errors import ConnectionLost, PulsarError
from pulsar_protocol.layout import Position
from pulsar_protocol.retries import repeat

PATIENCE_SECONDS: Final = 60.0
"""The time for which requests are repeated while a broker is away."""
_STREAM: Final = 0
_FAILOVER: Final = 2
"""The type of the subscription of a segment. Several consumers may be connected, as after a restart of the reader."""
_EARLIEST: Final = 1
_CUMULATIVE: Final = 1


class Subscription:
    """A subscription of a topic. It may be used by one thread at a time. `close` ends the connections. The subscription stays."""

    def __init__(self, client: PulsarClient, topic: str, name: str) -> None:
        self._client, self.topic, self.name = client, topic, name
        self._consumer_name = f"txnsegment-{uuid.uuid4().hex}"
        self._closed = threading.Event()
        self._registered: tuple[Channel, int] | None = None
        self._consumers: dict[str, tuple[Channel, int]] = {}

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Acknowledge all entries of segments up to these positions, inclusive. Idempotent. A segment without a cursor gets one.
        Raises ConnectionLost if the broker stays away, the broker's other errors.
        """

        def once(left: float) -> None:
            for segment, position in positions.items():
                self._acknowledge(segment, position)

        repeat(once, PATIENCE_SECONDS, stop=self._closed)

    def hold(self, segments: list[str]) -> None:
        """Register the subscription, and give it a cursor in each of these segments if it has none. A new cursor stands at the
        beginning. Raises ConnectionLost, the broker's error.
        """

        def once(left: float) -> None:
            if self.topic.startswith("topic://"):
                self._register()
            for segment in segments:
                self._consumer(segment)

        repeat(once, PATIENCE_SECONDS, stop=self._closed)

    def _register(self) -> None:
        """Make the subscription known to the controller of a scalable topic, which gives its cursors to new segments."""
        if self._registered is not None and self._registered[0].alive:
            return
        channel = self._client.channel()
        number = channel.add("consumer", _ignore)
        try:
            channel.ask(
                "scalable_topic_subscribe",
                topic=self.topic,
                subscription=self.name,
                consumer_name=self._consumer_name,
                consumer_id=number,
                consumer_type=_STREAM,
            )
        except BaseException:
            channel.remove("consumer", number)
            raise
        self._registered = channel, number

    def _consumer(self, segment: str) -> tuple[Channel, int]:
        found = self._consumers.get(segment)
        if found is not None and found[0].alive:
            return found
        channel = self._client.broker_of(segment)
        number = channel.add("consumer", self._forgetting(segment))
        try:
            channel.ask(
                "subscribe",
                topic=segment,
                subscription=self.name,
                sub_type=_FAILOVER,
                consumer_id=number,
                consumer_name=self._consumer_name,
                durable=True,
                initial_position=_EARLIEST,
            )
        except BaseException:
            channel.remove("consumer", number)
            raise
        self._consumers[segment] = channel, number
        return channel, number

    def _forgetting(self, segment: str) -> Callable[[Delivery | PulsarError], None]:
        """Return a handler that forgets a consumer that the broker closed, for example because the segment moves."""

        def handler(event: Delivery | PulsarError) -> None:
            if isinstance(event, PulsarError) or event.name == "close_consumer":
                self._consumers.pop(segment, None)

        return handler

    def _acknowledge(self, segment: str, position: Position) -> None:
        channel, number = self._consumer(segment)
        place = {"ledger_id": position.ledger, "entry_id": position.entry}
        channel.ask("ack", consumer_id=number, ack_type=_CUMULATIVE, message_id=[place])

    def close(self) -> None:
        """End the consumers of this object. Idempotent."""
        self._closed.set()
        consumers = [*self._consumers.values(), *([self._registered] if self._registered else [])]
        self._consumers, self._registered = {}, None
        for channel, number in consumers:
            channel.remove("consumer", number)
            if channel.alive:
                try:
                    channel.ask("close_consumer", consumer_id=number)
                except ConnectionLost:
                    continue


def _ignore(event: Delivery | PulsarError) -> None:
    """Take the assignments of segments. A reader with its own positions reads all segments itself."""
