"""The segments of a scalable topic, and the segment of a key. Pure.

A place on the hash ring has 16 bits: a half of the Murmur3 hash (32 bits, seed 0) of the key's bytes. Pulsar 5.0.0-M1 takes the low
half, later versions take the high half.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import mmh3

from pulsar_protocol.errors import PulsarError, UnknownVersion

Bits = Literal["low", "high"]
RING: Final = 1 << 16
NEWEST: Final = 5
"""The newest major version of Pulsar whose rules are known."""
_WORD: Final = 1 << 64


class Position(NamedTuple):
    """The place of an entry in a segment: Pulsar's ledger id and entry id. `text` is `ledger:entry`."""

    ledger: int
    entry: int

    @property
    def text(self) -> str:
        return f"{self.ledger}:{self.entry}"

    @staticmethod
    def parse(text: str) -> Position:
        """Return the position of a text `ledger:entry`. Raises ValueError for any other text."""
        found = re.fullmatch(r"(-?\d+):(-?\d+)", text)
        if found is None:
            raise ValueError(f"{text!r} is no position; a position is ledger:entry.")
        return Position(int(found[1]), int(found[2]))

    @staticmethod
    def of(message_id: Any) -> Position:
        """Return the position of a `MessageIdData`. Its numbers are unsigned, but stand for the signed numbers of Java."""
        return Position(_signed(message_id.ledger_id), _signed(message_id.entry_id))

    @property
    def message_id(self) -> dict[str, int]:
        """The fields of a `MessageIdData`."""
        return {"ledger_id": self.ledger % _WORD, "entry_id": self.entry % _WORD}


def _signed(number: int) -> int:
    return number - _WORD if number >> 63 else number


EARLIEST: Final = Position(-1, -1)
"""Before the first entry of a segment."""


@dataclass(frozen=True)
class Segment:
    """A segment of a scalable topic. `name`: `segment://..`, or the name of the old topic if the topic was migrated. `start` and
    `end` are its range of the ring, both inclusive. `created_ms`, `sealed_ms`: when it was created and sealed, in ms since 1970
    (`sealed_ms` None: not sealed). `broker`, `broker_tls`: the plain and the encrypted URL of the broker that has the segment
    (empty: not known).
    """

    id: int
    name: str
    start: int
    end: int
    active: bool
    parents: tuple[int, ...]
    children: tuple[int, ...]
    created_ms: int = 0
    sealed_ms: int | None = None
    broker: str = ""
    broker_tls: str = ""


@dataclass(frozen=True)
class Layout:
    """The segments of a scalable topic at one epoch. Every change of the layout raises the epoch. `controlled`: whether a broker is
    the controller of the topic. A broker becomes it by the first change or subscription of the topic, or by a request for stats.
    """

    topic: str
    epoch: int
    segments: Mapping[int, Segment]
    controlled: bool = False

    @property
    def active(self) -> tuple[Segment, ...]:
        """The segments that take new messages, in the order of their ranges."""
        return tuple(sorted((one for one in self.segments.values() if one.active), key=lambda one: one.start))

    def segment_of(self, key: bytes, bits: Bits) -> Segment:
        """Return the active segment to which messages with this key go. Raises PulsarError if no active segment has the key's place
        on the ring.
        """
        place = ring_place(key, bits)
        for one in self.active:
            if one.start <= place <= one.end:
                return one
        raise PulsarError(
            f"The layout of {self.topic} (epoch {self.epoch}) has no segment for {place:#06x}.", advice="Read it again."
        )


def ring_place(key: bytes, bits: Bits) -> int:
    """Return the place of a key on the ring, from 0 to 65535."""
    hashed = mmh3.hash(key, 0, signed=False)
    return hashed & 0xFFFF if bits == "low" else hashed >> 16


def bits_of(server: str) -> Bits:
    """Return which half of a key's hash decides its segment in clients of this broker's version. `server`: the version, as in
    `Ready.server`. Raises UnknownVersion for a text without a version, and for a version after 5.
    """
    found = re.search(r"(\d+)\.\d+\.\d+(-M\d+)?", server)
    if found is None or int(found[1]) > NEWEST:
        raise UnknownVersion(
            f"The broker's version is {server!r}, so it is unknown how its clients route keys to segments.",
            advice="Look for a newer txnsegment. To write by the rule of 5.0, give hashBits=high; reads need no such rule.",
        )
    return "low" if found[0] == "5.0.0-M1" else "high"


def layout_of(topic: str, dag: Any) -> Layout:
    """Return the layout from a `ScalableTopicDAG`. `topic`: the full name with its scheme."""
    brokers = {one.segment_id: one for one in dag.segment_brokers}
    _, _, base = topic.partition("://")
    segments = {}
    for one in dag.segments:
        broker = brokers.get(one.segment_id)
        segments[one.segment_id] = Segment(
            one.segment_id,
            one.legacy_topic_name or f"segment://{base}/{one.hash_start:04x}-{one.hash_end:04x}-{one.segment_id}",
            one.hash_start,
            one.hash_end,
            one.state == 0,
            tuple(one.parent_ids),
            tuple(one.child_ids),
            one.created_at_ms,
            one.sealed_at_ms if one.state else None,
            broker.broker_url if broker is not None else "",
            broker.broker_url_tls if broker is not None else "",
        )
    return Layout(topic, dag.epoch, segments, bool(dag.controller_broker_url or dag.controller_broker_url_tls))
