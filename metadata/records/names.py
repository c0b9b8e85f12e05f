"""Names of topics and segments, and the hash that routes keys to segments (protocol.md sections 1 and 4; PIP-460, PIP-486)."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import mmh3

from ledgers.plain_text import harmful, shown
from metadata.common.errors import OptionError

_TOPIC = re.compile(r"topic://([^/\s]+)/([^/\s]+)/([^/\s]+)")
_PERSISTENT = re.compile(r"persistent://([^/\s]+)/([^/\s]+)/([^/\s]+)")
_SEGMENT = re.compile(r"segment://([^/\s]+)/([^/\s]+)/([^/\s]+)/([0-9a-f]{4})-([0-9a-f]{4})-(0|[1-9][0-9]*)")
SYSTEM = ("pulsar", "system")
"""The namespace of transaction logs, which are persistent topics themselves. Users cannot write there."""
_HALF = re.compile("[\ud800-\udfff]")
MAX_WORD = 255
"""Maximum number of characters in each of the three parts of a new topic's name: tenant, namespace and name."""
RING = 0x10000
MAX_SEGMENTS = 1024
"""Maximum number of segments of a new topic. A segment takes about 200 bytes of the layout, which is one record of at most 768 KiB.
So the limit leaves room for splits.
"""


class HashRange(NamedTuple):
    """A range of the 16-bit ring, both ends inclusive."""

    start: int
    end: int

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int) and self.start <= value <= self.end


class TopicName(NamedTuple):
    """`topic://tenant/namespace/name`."""

    tenant: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"topic://{self.tenant}/{self.namespace}/{self.name}"

    def segment(self, hash_range: HashRange, segment_id: int) -> str:
        """Return the full name of a segment of this topic, e.g. `segment://public/default/t/0000-7fff-1`."""
        return f"segment://{self.tenant}/{self.namespace}/{self.name}/{hash_range.start:04x}-{hash_range.end:04x}-{segment_id}"


class PersistentName(TopicName):
    """`persistent://tenant/namespace/name`, the name of a topic of the marker-based model (docs/in_stream.md). It is never equal to
    the `topic://` name with the same parts.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace}/{self.name}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PersistentName) and tuple(self) == tuple(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(("persistent", *self))

    def segment(self, hash_range: HashRange, segment_id: int) -> str:
        """Raise OptionError: a persistent topic has no segments, only one log."""
        raise OptionError(f"{self} has no segments.", advice="Name the topic itself, or migrate it to topic://.")


class SegmentName(NamedTuple):
    """`segment://tenant/namespace/name/<start>-<end>-<id>`."""

    topic: TopicName
    hash_range: HashRange
    segment_id: int

    def __str__(self) -> str:
        return self.topic.segment(self.hash_range, self.segment_id)


def check_new(name: TopicName) -> None:
    """Raise OptionError for a name that a new topic or namespace cannot have. Existing topics with such names can still be read and
    deleted.
    """
    for word in name:
        found = harmful(word)
        if found is not None:
            raise OptionError(
                f"The name {shown(str(name)):.300} has the character {found}: a control or direction character makes a name look "
                "like another one, or can command a terminal.",
                advice="Leave it out. Letters, digits, '.', '-' and '_' are always allowed.",
            )
        if len(word) > MAX_WORD:
            raise OptionError(
                f"The name {shown(str(name)):.100}... has a word of {len(word)} characters, of {MAX_WORD} at most.",
                advice="Shorten it.",
            )


def _check_utf8(text: str) -> None:
    """Raise OptionError for a name that cannot be encoded in UTF-8, because it has halves of surrogate pairs. Python makes these
    halves from arguments and file names that are not UTF-8.
    """
    if _HALF.search(text):
        raise OptionError(f"The name {shown(text):.300} is not UTF-8.", advice="Give it in UTF-8.")


@lru_cache(maxsize=4096)
def topic_name(text: str) -> TopicName:
    """Parse a topic name. A bare `name` means `topic://public/default/name`. Raises OptionError for any other text."""
    _check_utf8(text)
    found = _TOPIC.fullmatch(text)
    if found:
        return TopicName(*found.groups())
    if text and not re.search(r"[/\s:]", text):
        return TopicName("public", "default", text)
    raise OptionError(
        f"{text!r:.300} is not a topic name.",
        advice="Write topic://tenant/namespace/name, or a bare name for topic://public/default/name.",
    )


@lru_cache(maxsize=4096)
def persistent_name(text: str) -> PersistentName:
    """Parse `persistent://tenant/namespace/name`. Raises OptionError for any other text. A bare name is refused, too, because it
    means a `topic://` topic. A name in the system namespace is refused, because rows written there would make a transaction log
    unreadable.
    """
    _check_utf8(text)
    found = _PERSISTENT.fullmatch(text)
    if found and found.groups()[:2] == SYSTEM:
        raise OptionError(f"{text} lies in pulsar/system, which holds the transaction logs.", advice="Name another namespace.")
    if found:
        return PersistentName(*found.groups())
    raise OptionError(f"{text!r:.300} is not the name of a persistent topic.", advice="Write persistent://tenant/namespace/name.")


def is_persistent(text: str) -> bool:
    """Return whether a name begins with `persistent://`, well formed or not."""
    return text.startswith("persistent://")


def topic_of(text: str) -> TopicName:
    """Return the topic of a segment. `text`: the full name of a segment, or the name of a persistent topic. Raises OptionError."""
    return persistent_name(text) if is_persistent(text) else segment_name(text).topic


def any_topic_name(text: str) -> TopicName:
    """Parse a `topic://` or `persistent://` name. A bare name means `topic://public/default/name`. Raises OptionError."""
    return persistent_name(text) if is_persistent(text) else topic_name(text)


@lru_cache(maxsize=4096)
def segment_name(text: str) -> SegmentName:
    """Parse `segment://tenant/namespace/name/<start>-<end>-<id>`. Raises OptionError."""
    _check_utf8(text)
    found = _SEGMENT.fullmatch(text)
    if not found:
        raise OptionError(f"{text!r:.300} is not a segment name.", advice="Write segment://tenant/namespace/name/0000-ffff-0.")
    tenant, namespace, name, start, end, number = found.groups()
    return SegmentName(TopicName(tenant, namespace, name), HashRange(int(start, 16), int(end, 16)), int(number))


def even_ranges(count: int) -> list[HashRange]:
    """Return `count` ranges that tile the ring 0000-ffff. The sizes of the ranges differ by at most 1. Raises OptionError unless
    `count` is from 1 to MAX_SEGMENTS.
    """
    if not 1 <= count <= MAX_SEGMENTS:
        raise OptionError(f"A topic cannot have {count} segments.", advice=f"Give a number from 1 to {MAX_SEGMENTS}.")
    edges = [RING * i // count for i in range(count + 1)]
    return [HashRange(a, b - 1) for a, b in pairwise(edges)]


def key_hash(key: bytes) -> int:
    """Return the ring position of a key: the HIGH 16 bits of Murmur3_32 (seed 0) of its bytes.

    The bytes of a text key are its UTF-8 encoding. A binary key is its own bytes. The bytes of an integer key are its decimal text.
    """
    return mmh3.hash(key, 0, signed=False) >> 16
