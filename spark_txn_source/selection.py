"""What a read selects, and from where to where: the values that the options of the source stand for (protocol.md section 6)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from metadata.names import SegmentName, TopicName, segment_name, topic_name

# --- what to read --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Topics:
    """Topics, and single segments, by name: no name twice, no segment of a topic that is read whole, in the order given."""

    names: tuple[TopicName | SegmentName, ...]

    @property
    def topics(self) -> tuple[TopicName, ...]:
        """The topics that are touched, each once."""
        return tuple(dict.fromkeys(n.topic if isinstance(n, SegmentName) else n for n in self.names))

    def segments(self, topic: TopicName) -> tuple[SegmentName, ...] | None:
        """The segments of a topic that were named, or None: all of them."""
        if topic in self.names:
            return None
        return tuple(n for n in self.names if isinstance(n, SegmentName) and n.topic == topic)

    @property
    def key(self) -> list[str]:
        """The `read` field of a stream's offset: the same for the same names in another order."""
        return sorted(str(n) for n in self.names)


@dataclass(frozen=True)
class Pattern:
    """All topics whose full name `topic://tenant/namespace/name` matches the regular expression from end to end."""

    regex: str

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.regex)

    def matches(self, topic: TopicName) -> bool:
        return self._compiled.fullmatch(str(topic)) is not None

    @property
    def key(self) -> dict[str, str]:
        """The `read` field of a stream's offset."""
        return {"pattern": self.regex}


Selection = Topics | Pattern


def selection_of(key: object) -> Selection | None:
    """The selection whose `key` this is, as an offset keeps it; None for what is no key. Raises OptionError for a bad name."""
    match key:
        case {"pattern": str(regex)}:
            return Pattern(regex)
        case [*found]:
            names = [n for n in found if isinstance(n, str)]
            if names and len(names) == len(found):
                return Topics(tuple(segment_name(n) if n.startswith("segment:") else topic_name(n) for n in names))
    return None


# --- from where to where -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Earliest:
    """From the first row that is kept."""


@dataclass(frozen=True)
class Latest:
    """The cut of now."""


@dataclass(frozen=True)
class AtLog:
    """A number of the log. As a start: what lies after it; as an end: up to and with it."""

    log: int


@dataclass(frozen=True)
class AtTime:
    """A publish time, ms since 1970. As a start: from the first registration at or after it; as an end: up to the last one at or
    before it (protocol.md section 6).
    """

    ms: int


Start = Earliest | Latest | AtLog | AtTime
End = Latest | AtLog | AtTime
