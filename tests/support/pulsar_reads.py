"""Reads what consumers of a real broker may read."""

from __future__ import annotations

from collections.abc import Iterator

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Segment
from pulsar_protocol.entries import Entry, Message
from pulsar_protocol.layout import Position
from pulsar_protocol.reader import entries

HIDDEN_SECONDS = 5.0
"""A read ends after this time without an entry, because the segment's last entry may be hidden: it may belong to an aborted
transaction. A broker shows the rows of a commit a moment later, on a busy machine more than a second later.
"""


def visible(client: PulsarClient, segment: str) -> Iterator[tuple[Position, Entry]]:
    """Yield the visible entries of a segment, up to its last entry, each with its position."""
    last = Segment(client, segment).last()
    if last.entry >= 0:
        yield from entries(client, segment, to=last, idle_seconds=HIDDEN_SECONDS)


def messages_of(client: PulsarClient, segment: str) -> Iterator[Message]:
    """Yield the messages of the visible entries of a segment."""
    for _, entry in visible(client, segment):
        yield from entry.messages()
