"""A topic with one segment, for the fake broker. It has entries and durable cursors, and delivers entries to consumers."""

from __future__ import annotations

from typing import Any

from pulsar_protocol.entries import Message, encode_batch
from pulsar_protocol.layout import Position
from tests.support.fake_broker import Action, FakeBroker, Peer

LEDGER = 7
REQUESTS = ("scalable_topic_lookup", "lookup_topic", "subscribe", "get_last_message_id", "flow", "ack")
"""The requests that a fault may meet."""


class FakeSegment:
    """Each value is the one message of an entry, and all entries are decided. The fake broker answers for this topic only.

    `fault`: the action that takes the place of the answer to request number `fault_at` of `REQUESTS`, counted from 0. `asked`: how
    many of these requests came. `url`: that of the broker. `held_at`: the entry at which deliveries stop, as if the broker were
    slow; None: all are delivered.
    """

    def __init__(self, broker: FakeBroker, topic: str, values: list[bytes]) -> None:
        self.name = f"segment://{topic.partition('://')[2]}/0000-ffff-0"
        self.values, self.cursors = values, dict[str, int]()
        self.fault: Action | None = None
        self.fault_at = self.asked = 0
        self.held_at: int | None = None
        self.url = broker.url
        self._consumers: dict[tuple[int, int], tuple[str, int]] = {}
        """For each consumer, by connection and number, its durable subscription (or no text), and its next entry."""
        for name in REQUESTS:
            broker.on(name, self._or_fault(getattr(self, f"_{name}")))
        broker.on("close_consumer", lambda peer, body: peer.send("success", request_id=body.request_id))

    def _or_fault(self, answer: Action) -> Action:
        def act(peer: Peer, body: Any) -> None:
            number, self.asked = self.asked, self.asked + 1
            (self.fault if self.fault is not None and number == self.fault_at else answer)(peer, body)

        return act

    def _scalable_topic_lookup(self, peer: Peer, body: Any) -> None:
        segment = {"segment_id": 0, "hash_start": 0, "hash_end": 0xFFFF, "state": 0}
        peer.send("scalable_topic_update", session_id=body.session_id, dag={"epoch": 1, "segments": [segment]})

    def _lookup_topic(self, peer: Peer, body: Any) -> None:
        fields: dict[str, Any] = {"response": 1, "broker_service_url": self.url, "authoritative": True}
        peer.send("lookup_topic_response", request_id=body.request_id, **fields)

    def _subscribe(self, peer: Peer, body: Any) -> None:
        if body.durable:
            start = self.cursors.setdefault(body.subscription, 0)
        else:
            at = Position.of(body.start_message_id)
            start = 0 if at.ledger < LEDGER else max(0, at.entry) if at.ledger == LEDGER else len(self.values)
        self._consumers[peer.number, body.consumer_id] = (body.subscription if body.durable else "", min(start, len(self.values)))
        peer.send("success", request_id=body.request_id)

    def _get_last_message_id(self, peer: Peer, body: Any) -> None:
        _, start = self._consumers[peer.number, body.consumer_id]
        places = {"last_message_id": place(len(self.values) - 1), "consumer_mark_delete_position": place(start - 1)}
        peer.send("get_last_message_id_response", request_id=body.request_id, **places)

    def _flow(self, peer: Peer, body: Any) -> None:
        key = peer.number, body.consumer_id
        subscription, start = self._consumers[key]
        end = min(len(self.values) if self.held_at is None else self.held_at, start + body.message_permits)
        for number in range(start, end):
            entry = encode_batch([Message(self.values[number])], producer="p", sequence=number, publish_ms=1)
            peer.send("message", entry, consumer_id=body.consumer_id, message_id=place(number))
        self._consumers[key] = subscription, max(start, end)

    def _ack(self, peer: Peer, body: Any) -> None:
        subscription, _ = self._consumers[peer.number, body.consumer_id]
        self.cursors[subscription] = max(self.cursors[subscription], Position.of(body.message_id[0]).entry + 1)
        peer.send("ack_response", request_id=body.request_id, consumer_id=body.consumer_id)


def place(number: int) -> dict[str, int]:
    return Position(LEDGER, number).message_id
