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
    """The topics whose logs this client holds already."""

    def __init__(self, client: PulsarClient) -> None:
        self.topics: set[str] = set()


def hold(client: PulsarClient, topic: str) -> None:
    """Make the subscription of the writers' log of a topic, if this client has not made it yet. Idempotent. The log must exist.
    Raises TopicMissing, or the error that the broker reports.
    """
    held = client.kept(_Held, _Held)
    if topic in held.topics:
        return
    name = log_name(topic)
    subscription = Subscription(client, name, SUBSCRIPTION, None)
    try:
        subscription.give_cursors([one.name for one in client.layout(name).segments.values()])
    finally:
        subscription.close()
    held.topics.add(topic)


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
