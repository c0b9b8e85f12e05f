"""Reads the entries of one segment in their order, through a non-durable subscription, which the broker forgets at its end."""

from __future__ import annotations

import contextlib
import queue
import time
import uuid
from collections.abc import Iterator
from typing import Final

from pulsar_protocol.channel import ANSWER_SECONDS
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.connection import Delivery
from pulsar_protocol.entries import Entry, parse
from pulsar_protocol.errors import ConnectionLost, PulsarError, TimedOut
from pulsar_protocol.layout import EARLIEST, Position

PERMITS: Final = 10_000
"""The number of messages that the broker may send ahead."""
_MAX: Final = (1 << 64) - 1


def entries(
    client: PulsarClient,
    topic: str,
    after: Position = EARLIEST,
    to: Position | None = None,
    *,
    idle_seconds: float | None = None,
    permits: int = PERMITS,
    inclusive: bool = False,
) -> Iterator[tuple[Position, Entry]]:
    """Yield the entries of a segment or topic after a position (`inclusive`: from it on), up to `to`, each with its position. The
    broker leaves out rows of open and aborted transactions. Markers are left out, too.

    `to`: the last position, inclusive. It must not be after the position up to which all is decided, or the call waits. None: read
    on for ever, or until no entry came for `idle_seconds`. The end of a sealed segment ends the read.

    Raises TimedOut if no entry comes within the time limit while `to` is not reached, ConnectionLost, the broker's error.
    """
    if to is not None and (after >= to and not (inclusive and after == to)):
        return
    limit = ANSWER_SECONDS if idle_seconds is None else idle_seconds
    seen: queue.Queue[Delivery | PulsarError] = queue.Queue()
    channel = client.broker_of(topic)
    number = channel.add("consumer", seen.put)
    start = {"ledger_id": after.ledger & _MAX, "entry_id": after.entry & _MAX}
    channel.ask(
        "subscribe",
        topic=topic,
        subscription=f"txnsegment-{uuid.uuid4().hex}",
        sub_type=0,
        consumer_id=number,
        durable=False,
        start_message_id=start,
        initial_position=1,
    )
    try:
        channel.tell("flow", consumer_id=number, message_permits=permits)
        used, last = 0, time.monotonic()
        while True:
            try:
                found = seen.get(timeout=max(0.0, last + limit - time.monotonic()))
            except queue.Empty:
                if idle_seconds is not None:
                    return
                raise TimedOut(
                    f"{topic}: no entry came within {limit:g} s, and {to.text if to else 'more'} was not reached.",
                    advice="An open transaction may hold it back, or retention has removed it.",
                ) from None
            if isinstance(found, PulsarError):
                raise found.again()
            if found.name == "reached_end_of_topic":
                return
            if found.name == "close_consumer":
                raise ConnectionLost(f"The broker closed the consumer of {topic}.", advice="Open it again; the topic moves.")
            if found.name != "message":
                continue
            last = time.monotonic()
            place = found.body.message_id
            position = Position(place.ledger_id, place.entry_id)
            if to is not None and position > to:
                return
            entry = parse(found.entry)
            used += entry.count
            if not entry.is_marker and (position > after or (inclusive and position == after)):
                yield position, entry
            if position == to:
                return
            if used >= permits // 2:
                channel.tell("flow", consumer_id=number, message_permits=used)
                used = 0
    finally:
        channel.remove("consumer", number)
        if channel.alive:
            with contextlib.suppress(ConnectionLost):  # its end is that of the consumer, too
                channel.ask("close_consumer", consumer_id=number)
