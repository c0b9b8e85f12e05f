"""Reads the entries of one segment in their order, through a non-durable subscription. The broker forgets the subscription when it
is closed.
"""

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
"""How many messages the broker may send before the reader asks for more."""


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
    """Yield the entries of a segment or topic after the position `after` (with `inclusive`: from that position on), each with its
    position. The broker leaves out the rows of open and aborted transactions. Markers are left out, too.

    `to`: the last position to read, inclusive. It must not be above the cut, because the broker delivers no entry above the cut.
    None: read on until the broker delivers nothing more. `idle_seconds`: the read ends if no entry comes for this time. None: no
    entry for `ANSWER_SECONDS` is an error. The read also ends at the end of a sealed segment.

    Raises TimedOut if `idle_seconds` is None and no entry comes in time, ConnectionLost, or the error that the broker reports.
    """
    if to is not None and (after >= to and not (inclusive and after == to)):
        return
    limit = ANSWER_SECONDS if idle_seconds is None else idle_seconds
    with Consumer.temporary(client, topic, after, else_earliest=True) as consumer:
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
