"""Reads the entries of one segment in their order, through a non-durable subscription, which the broker forgets at its end."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Final

from pulsar_protocol.channel import ANSWER_SECONDS
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.consumer import Consumer
from pulsar_protocol.entries import Entry, parse
from pulsar_protocol.errors import TimedOut
from pulsar_protocol.layout import EARLIEST, Position

PERMITS: Final = 10_000
"""The number of messages that the broker may send ahead."""


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
    with Consumer.temporary(client.broker_of(topic), topic, after, else_earliest=True) as consumer:
        consumer.permit(permits)
        used = 0
        while True:
            try:
                found = consumer.next(limit)
            except queue.Empty:
                if idle_seconds is not None:
                    return
                raise TimedOut(
                    f"{topic}: no entry came within {limit:g} s, and {to.text if to else 'more'} was not reached.",
                    advice="An open transaction may hold it back, or retention has removed it.",
                ) from None
            if found.name == "reached_end_of_topic":
                return
            position = Position.of(found.body.message_id)
            if to is not None and position > to:
                return
            entry = parse(found.entry)
            used += entry.count
            if not entry.is_marker and (position > after or (inclusive and position == after)):
                yield position, entry
            if position == to:
                return
            if used >= permits // 2:
                consumer.permit(used)
                used = 0
