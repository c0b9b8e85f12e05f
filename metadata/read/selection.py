"""The topics of a read, and its start and end (protocol.md section 6). Pure: no I/O, no clock.

A selection is read from one or more logs. The cluster's log orders the rows of all `topic://` topics. Each `persistent://` topic
has a log of its own. An offset has a position for each log, by the log's name.
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
"""The name of the cluster's log in an offset. The log of a persistent topic has the name of the topic."""

# --- what to read --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Topics:
    """Topics and single segments by name, in the order given. No name occurs twice. If a topic is named, none of its segments is
    named.
    """

    names: tuple[TopicName | SegmentName, ...]

    @property
    def topics(self) -> tuple[TopicName, ...]:
        """The named topics and the topics of the named segments, each once."""
        return tuple(dict.fromkeys(n.topic if isinstance(n, SegmentName) else n for n in self.names))

    @property
    def persistent(self) -> tuple[PersistentName, ...]:
        """The named marker-based topics."""
        return tuple(n for n in self.names if isinstance(n, PersistentName))

    @property
    def scalable(self) -> tuple[TopicName | SegmentName, ...]:
        """The names of topics and segments whose rows the cluster's log orders."""
        return tuple(n for n in self.names if not isinstance(n, PersistentName))

    @property
    def logs(self) -> tuple[str, ...]:
        """The names of the logs of the named topics: the cluster's log for `topic://` topics and their segments, and the own log of
        each persistent topic, also if the topic was migrated.
        """
        return (*((LOG,) if self.scalable else ()), *map(str, self.persistent))

    def reads_own_log(self, name: TopicName) -> bool:
        """Return whether the read includes the own log of this persistent topic."""
        return name in self.names

    def segments(self, topic: TopicName) -> tuple[SegmentName, ...] | None:
        """Return the named segments of a topic; None if the whole topic is named."""
        if topic in self.names:
            return None
        return tuple(n for n in self.names if isinstance(n, SegmentName) and n.topic == topic)

    def covers(self, segment: str, topic: TopicName) -> bool:
        """Return whether a segment is read, because its topic or the segment itself is named."""
        return topic in self.names or segment in map(str, self.names)

    @property
    def key(self) -> list[str]:
        """The `read` field of a stream's offset. It does not depend on the order of the names."""
        return sorted(str(n) for n in self.names)


@dataclass(frozen=True)
class Pattern:
    """All topics whose full name `topic://tenant/namespace/name` (or `persistent://..`) matches the whole regular expression."""

    regex: str

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return patterns.compiled(self.regex)

    logs = (LOG,)
    """The names of the logs that are known before the topics are listed. Only a list of the topics tells which persistent topics
    match the pattern, and so which other logs are read.
    """

    def matches(self, topic: TopicName) -> bool:
        return self.compiled.fullmatch(str(topic)) is not None

    reads_own_log = matches

    def covers(self, segment: str, topic: TopicName) -> bool:
        """Return whether the pattern matches the segment's topic, so that the segment is read."""
        return self.matches(topic)

    @property
    def key(self) -> dict[str, str]:
        """The `read` field of a stream's offset."""
        return {"pattern": self.regex}


Selection = Topics | Pattern


def selection_of(key: object) -> Selection | None:
    """Return the selection that the `read` field of an offset describes. `key`: the parsed JSON value of this field. Return None if
    the value does not have the form that `Topics.key` or `Pattern.key` returns. Raises OptionError for a bad name or pattern.
    """
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
    """The start of a read: before the first row that retention has kept."""


@dataclass(frozen=True)
class Latest:
    """The start or the end of a read: the cut at the time of the read."""


_POSITION = re.compile(r"([0-9]{1,19}):([0-9]{1,19})", re.ASCII)


class Position(NamedTuple):
    """A position in a log: the last entry that was read, as `ledger:entry`. `0:0`: no entry was read. In the cluster's log `ledger`
    is the log number, and `entry` is 0.
    """

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"

    @classmethod
    def parse(cls, text: str) -> Position | None:
        """Return the position that the text names, or None if the text is no position."""
        found = _POSITION.fullmatch(text)
        return None if found is None else cls(*map(int, found.groups()))


@dataclass(frozen=True)
class AtLog:
    """The start (exclusive) or the end (inclusive) of a read: one number in the cluster's log, and one position in the log of each
    persistent topic. `names_log`: whether the user gave the number of the cluster's log. A read of persistent topics alone needs no
    such number. `cluster`, `read`: these fields of the offset of a stream's progress, `read` as JSON. None: the user gave
    numbers alone.
    """

    log: int
    positions: tuple[tuple[PersistentName, Position], ...] = ()
    names_log: bool = True
    cluster: str | None = None
    read: str | None = None

    def at(self, log: str) -> Position:
        """Return the position in the log with the name `log`. A persistent topic without a position in this offset was created
        later. The result is then `0:0`, because nothing of the topic was read.
        """
        return Position(self.log, 0) if log == LOG else dict(self.places()).get(log, Position(0, 0))

    def places(self) -> list[tuple[str, Position]]:
        """Return the positions of the persistent topics, each with the name of its log."""
        return [(str(name), place) for name, place in self.positions]


@dataclass(frozen=True)
class AtTime:
    """The start or the end of a read at a publish time, in ms since 1970. A read starts at the first registration that was
    published at or after this time. A read ends before the first registration that was published after this time (protocol.md
    section 6).
    """

    ms: int


Start = Earliest | Latest | AtLog | AtTime
End = Latest | AtLog | AtTime


def offset_json(places: Mapping[str, Position]) -> dict[str, int | str]:
    """Return the offset with these positions: `{"log": N, "persistent://..": "ledger:entry"}`. The keys of `places` are names of
    logs.
    """
    log = {LOG: places[LOG].ledger} if LOG in places else {}
    return log | {name: str(place) for name, place in places.items() if name != LOG}
