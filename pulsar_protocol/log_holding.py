"""The durable subscription of a writers' log (`sent_log`). Without it a broker without retention removes the log's records, and
reads then split transactions.

Writers make the subscription before they write a `Sent`. It follows the `Settled` of the log: when a writer appends one, the
subscription moves to what the `Settled` before it says. So records stay for a while after they are settled, because reads and
writes that have begun earlier may need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.layout import Position
from pulsar_protocol.sent_log import log_name
from pulsar_protocol.subscription import Subscription, all_but

SUBSCRIPTION: Final = "txnsegment-log"
"""It has a cursor in each segment of the log, and is not registered: the broker 5.0.0-M1 makes a controller for a topic with a
registered subscription, and leaves the topic damaged when it is deleted.
"""


class _Held:
    """For each topic, the segments of its log that this client holds already."""

    def __init__(self, client: PulsarClient) -> None:
        self.segments: dict[str, frozenset[str]] = {}


def hold(client: PulsarClient, topic: str, segment: str) -> None:
    """Make the subscription in all segments of the writers' log of a topic, unless this client has made it in `segment`, to which
    the caller writes. A log has new segments after a split. Idempotent. The log must exist. Raises TopicMissing, or the error that
    the broker reports.
    """
    held = client.kept(_Held, _Held).segments
    if segment in held.get(topic, ()):
        return
    name = log_name(topic)
    segments = [one.name for one in client.layout(name).segments.values()]
    subscription = Subscription(client, name, SUBSCRIPTION, None)
    try:
        subscription.give_cursors(segments)
    finally:
        subscription.close()
    held[topic] = frozenset(segments)


def forget(client: PulsarClient, topic: str) -> None:
    """Let the next `hold` make the subscription again. The log was deleted: a new log may have segments of the same names."""
    client.kept(_Held, _Held).segments.pop(topic, None)


def release(client: PulsarClient, topic: str, settled: Mapping[str, Position]) -> None:
    """Let the broker remove the records up to these positions of the log's segments. The ledger of the last one is kept
    (`SentLog` looks for it). Idempotent. Raises the error that the broker reports.
    """
    layout = client.layout(log_name(topic))
    names = {one.name for one in layout.segments.values()}
    known = {name: place for name, place in settled.items() if name in names and place.ledger >= 0}
    subscription = Subscription(client, layout.topic, SUBSCRIPTION, None)
    try:
        subscription.acknowledge({name: all_but(Position(place.ledger, max(place.entry, 0))) for name, place in known.items()})
    finally:
        subscription.close()
