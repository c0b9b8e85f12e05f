"""What a read selects, and from where to where: the values that the options of the source stand for (protocol.md section 6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from metadata.records import patterns
from metadata.records.names import PersistentName, SegmentName, TopicName, any_topic_name, segment_name

# --- what to read --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Topics:
    """Topics, and single segments, by name: no name twice, no segment of a topic that is read whole, in the order given."""

    names: tuple[TopicName | SegmentName, ...]

    @property
    def topics(self) -> tuple[TopicName, ...]:
        """The topics that are touched, each once."""
        return tuple(dict.fromkeys(n.topic if isinstance(n, SegmentName) else n for n in self.names))

    @property
    def persistent(self) -> tuple[PersistentName, ...]:
        """The topics of the older model among them."""
        return tuple(n for n in self.names if isinstance(n, PersistentName))

    @property
    def scalable(self) -> tuple[TopicName | SegmentName, ...]:
        """All others: topics and segments whose order is the one log of the cluster."""
        return tuple(n for n in self.names if not isinstance(n, PersistentName))

    def segments(self, topic: TopicName) -> tuple[SegmentName, ...] | None:
        """The segments of a topic that were named, or None: all of them."""
        if topic in self.names:
            return None
        return tuple(n for n in self.names if isinstance(n, SegmentName) and n.topic == topic)

    def covers(self, segment: str, topic: TopicName) -> bool:
        """Whether a segment of a topic is read: by its own name, or with its topic."""
        return topic in self.names or segment in map(str, self.names)

    @property
    def key(self) -> list[str]:
        """The `read` field of a stream's offset: the same for the same names in another order."""
        return sorted(str(n) for n in self.names)


@dataclass(frozen=True)
class Pattern:
    """All topics whose full name `topic://tenant/namespace/name` (or `persistent://..`) matches the regular expression from end to
    end.
    """

    regex: str

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return patterns.compiled(self.regex)

    def matches(self, topic: TopicName) -> bool:
        return self.compiled.fullmatch(str(topic)) is not None

    def covers(self, segment: str, topic: TopicName) -> bool:
        """Whether a segment of a topic is read."""
        return self.matches(topic)

    @property
    def key(self) -> dict[str, str]:
        """The `read` field of a stream's offset."""
        return {"pattern": self.regex}


Selection = Topics | Pattern


def selection_of(key: object) -> Selection | None:
    """The selection whose `key` this is, as an offset keeps it; None: it is none. Raises OptionError: a bad name or pattern."""
    match key:
        case {"pattern": str(regex)}:
            patterns.compiled(regex)
            return Pattern(regex)
        case [*found]:
            names = [n for n in found if isinstance(n, str)]
            if names and len(names) == len(found):
                return Topics(tuple(segment_name(n) if n.startswith("segment:") else any_topic_name(n) for n in names))
    return None


# --- from where to where -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Earliest:
    """From the first row that is kept."""


@dataclass(frozen=True)
class Latest:
    """The cut of now."""


_POSITION = re.compile(r"([0-9]{1,19}):([0-9]{1,19})", re.ASCII)


class Position(NamedTuple):
    """Where a reader stands in the log of a persistent topic: `ledger:entry` is the last entry that it has read; `0:0`, none."""

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """None for what is no position."""
        found = _POSITION.fullmatch(text)
        return None if found is None else cls(*map(int, found.groups()))


@dataclass(frozen=True)
class AtLog:
    """A number of the log, and a position in the log of each persistent topic. As a start: what lies after it; as an end: up to and
    with it. `names_log`: whether the number was given, which a read of persistent topics alone has no use for.
    """

    log: int
    positions: tuple[tuple[PersistentName, Position], ...] = ()
    names_log: bool = True

    def of(self, name: PersistentName) -> Position | None:
        """The position that was given of this topic."""
        return dict(self.positions).get(name)


@dataclass(frozen=True)
class AtTime:
    """A publish time, ms since 1970. As a start: from the first registration at or after it; as an end: up to the last one at or
    before it (protocol.md section 6).
    """

    ms: int


Start = Earliest | Latest | AtLog | AtTime
End = Latest | AtLog | AtTime
