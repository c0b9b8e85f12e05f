"""What a read selects, and from where to where (protocol.md section 6). PURE: no I/O, no clock.

A selection is read from one or more logs. The cluster's log orders the rows of all topic:// topics; each persistent:// topic has a
log of its own. An offset gives the place in each log under the name of the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from metadata.records import patterns
from metadata.records.names import PersistentName, SegmentName, TopicName, any_topic_name, segment_name

LOG = "log"
"""The name of the cluster's log in an offset. A topic's own log has the name of the topic."""

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

    @property
    def logs(self) -> tuple[str, ...]:
        """The names of the logs in which the rows of the named topics stand while no persistent topic of them is migrated."""
        return (*((LOG,) if self.scalable else ()), *map(str, self.persistent))

    def reads_own_log(self, name: TopicName) -> bool:
        """Whether the log of this persistent topic is read."""
        return name in self.names

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

    logs = (LOG,)
    """A pattern always reads the cluster's log. Topics with a log of their own that it matches are known when they are listed."""

    def matches(self, topic: TopicName) -> bool:
        return self.compiled.fullmatch(str(topic)) is not None

    reads_own_log = matches

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
    """A place in a log: `ledger:entry` is the last entry that was read; `0:0`, none. In the cluster's log `ledger` is the number,
    and `entry` is 0.
    """

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

    def at(self, log: str) -> Position:
        """The place in a log by its name. A topic that the offset does not name was made later: nothing of its log was read."""
        return Position(self.log, 0) if log == LOG else dict(self.places()).get(log, Position(0, 0))

    def places(self) -> list[tuple[str, Position]]:
        """The positions by the name of the log."""
        return [(str(name), place) for name, place in self.positions]

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


def offset_json(places: Mapping[str, Position]) -> dict[str, int | str]:
    """An offset with a place in each of these logs: `{"log": N, "persistent://..": "ledger:entry"}`."""
    log = {LOG: places[LOG].ledger} if LOG in places else {}
    return log | {name: str(place) for name, place in places.items() if name != LOG}
