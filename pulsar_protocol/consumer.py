"""One consumer of a segment or topic. A durable one keeps a position at the broker, a temporary one is for a read."""

from __future__ import annotations

import queue
import threading
import uuid
from types import TracebackType
from typing import Any, Final, Self

from pulsar_protocol.channel import Channel
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.connection import Delivery
from pulsar_protocol.errors import ConnectionLost, PulsarError
from pulsar_protocol.layout import Position
from pulsar_protocol.retries import repeat

_EXCLUSIVE: Final = 0
_STREAM: Final = 0
_FAILOVER: Final = 2
_LATEST: Final = 0
_EARLIEST: Final = 1
_CUMULATIVE: Final = 1
REFUSED_SECONDS: Final = 10.0
_UNKNOWN_ERROR: Final = 0
"""Pulsar's code for an exception in the broker that has no code of its own."""
_PASSING: Final = (_UNKNOWN_ERROR, 6)
"""The codes of refusals that pass: UnknownError and ServiceNotReady."""


class Consumer:
    """One consumer, for one thread. `durable`, `registered` and `temporary` make it. It gets no messages before `permit`."""

    def __init__(self, channel: Channel, topic: str, subscription: str, *, ask: str = "subscribe", **fields: Any) -> None:
        """`ask`: the command that opens the consumer. `fields`: further fields of this command. Raises ConnectionLost, TimedOut, or
        the error that the broker reports.
        """
        self.topic, self._channel = topic, channel
        self._over = False
        self._events: queue.SimpleQueue[Delivery | PulsarError] = queue.SimpleQueue()
        self._id = channel.add("consumer", self._take)
        try:
            channel.ask(ask, topic=topic, subscription=subscription, consumer_id=self._id, **fields)
        except BaseException:
            channel.remove("consumer", self._id)
            raise

    @staticmethod
    def durable(channel: Channel, topic: str, subscription: str, *, name: str | None = None) -> Consumer:
        """Open a durable subscription. It may have several consumers. A subscription that is new begins with the first entry."""
        fields: dict[str, Any] = {"sub_type": _FAILOVER, "initial_position": _EARLIEST, "consumer_name": name}
        return Consumer(channel, topic, subscription, durable=True, **fields)

    @staticmethod
    def registered(channel: Channel, topic: str, subscription: str, *, name: str) -> Consumer:
        """Make a subscription known to the controller of a scalable topic, which then gives it a cursor in each new segment."""
        ask = "scalable_topic_subscribe"
        return Consumer(channel, topic, subscription, ask=ask, consumer_name=name, consumer_type=_STREAM)

    @staticmethod
    def temporary(
        client: PulsarClient, topic: str, at: Position, *, else_earliest: bool, broker: Channel | None = None
    ) -> Consumer:
        """Open a subscription that the broker forgets when it is closed. It begins at the entry `at`. `else_earliest`: whether it
        begins with the first entry of the topic if there is no entry at or after `at`. `broker`: a connection to the broker that
        has the topic; None: this broker is looked up.

        If the broker answers UnknownError or ServiceNotReady, the broker of the topic is looked up, and the subscription is opened
        again, for up to `REFUSED_SECONDS`. The broker 5.0.0-M1 answers UnknownError if the ledger of a segment has no first
        position (seen after restarts, in segments that were split or merged), and ServiceNotReady while it seals a segment. A
        broker that does not have the topic any more answers ServiceNotReady, too.
        """
        place: dict[str, Any] = {"start_message_id": at.message_id, "initial_position": _EARLIEST if else_earliest else _LATEST}
        known = [broker or client.broker_of(topic)]

        def opened(left: float) -> Consumer:
            channel = known.pop() if known else client.broker_of(topic)
            return Consumer(channel, topic, f"txnsegment-{uuid.uuid4().hex}", durable=False, sub_type=_EXCLUSIVE, **place)

        return repeat(opened, REFUSED_SECONDS, stop=threading.Event(), when=lambda error: error.code in _PASSING)

    @property
    def alive(self) -> bool:
        """Whether the consumer is open. `close`, the broker, or the end of the connection closes it."""
        return self._channel.alive and not self._over

    @property
    def position(self) -> Position:
        """The position up to which the subscription has acknowledged. For a new temporary subscription this is the position before
        its first entry.
        """
        found = self._channel.ask("get_last_message_id", consumer_id=self._id)
        return Position.of(found.consumer_mark_delete_position)

    def acknowledge(self, to: Position) -> None:
        """Acknowledge all entries up to a position, inclusive. Idempotent. The broker answers an UnknownError for a position before
        the one up to which all is acknowledged already.
        """
        try:
            self._channel.ask("ack", consumer_id=self._id, ack_type=_CUMULATIVE, message_id=[to.message_id])
        except PulsarError as error:
            if error.code != _UNKNOWN_ERROR or self.position < to:
                raise

    def permit(self, messages: int) -> None:
        """Let the broker send this many further messages."""
        self._channel.tell("flow", consumer_id=self._id, message_permits=messages)

    def next(self, seconds: float) -> Delivery:
        """Return the next `message` or `reached_end_of_topic`. Raises queue.Empty if none came in time, and ConnectionLost or the
        error of the connection if the consumer was closed.
        """
        event = self._events.get(timeout=max(0.0, seconds))
        if isinstance(event, PulsarError):
            raise event.again()
        if event.name == "close_consumer":
            raise ConnectionLost(f"The broker closed the consumer of {self.topic}.", advice="Try again; the topic moves.")
        return event

    def _take(self, event: Delivery | PulsarError) -> None:
        if isinstance(event, PulsarError) or event.name == "close_consumer":
            self._over = True
        elif event.name not in ("message", "reached_end_of_topic"):
            return  # what the broker tells about other consumers does not matter
        self._events.put(event)

    def close(self) -> None:
        """Close the consumer. Idempotent. If the connection has ended, the broker has closed the consumer already. An error of the
        broker is only logged.
        """
        was_alive, self._over = self.alive, True
        if was_alive:
            self._channel.close_one("consumer", self._id, self.topic)
        else:
            self._channel.remove("consumer", self._id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
