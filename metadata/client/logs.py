"""The logs that a selection is read from: the cluster's log, and the log of each persistent topic (docs/in_stream.md, section
Spark).

The cluster's log is read first, then the topics' logs. A persistent topic may be migrated after the cluster's log was read. All
rows of its successor then lie above the cut of that read. So the cut of a stream never passes unread rows of a successor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from metadata.client.client import Client
from metadata.read.log_reader import ClusterLog, How, LogReader
from metadata.read.reading import LogSelection, Reading
from metadata.read.selection import LOG, Pattern, Position, Selection
from metadata.records.names import SegmentName, TopicName, is_persistent, persistent_name, topic_name
from metadata.rules.migrated import to_cluster
from metadata.topics.topic import Topic, legacy_shift

if TYPE_CHECKING:  # otherwise every Spark process that plans a read would import this module, too
    from metadata.instream.topic_logs import TopicLogs


def selected(selection: Selection, successors: Sequence[TopicName] = ()) -> LogSelection | None:
    """Return the part of a selection that is read from the cluster's log; None if no topic of the selection is in that log.
    `successors`: the result of `Logs.successors`.
    """
    if isinstance(selection, Pattern):
        return LogSelection(pattern=selection.regex, further=tuple(map(str, successors)))
    names = tuple(dict.fromkeys(str(n) for n in (*selection.scalable, *successors)))
    return LogSelection(names, beside=tuple(map(str, selection.persistent))) if names else None


@dataclass(frozen=True)
class Logs:
    """The logs of a selection, for one client."""

    client: Client
    selection: Selection

    def read(self, how: How) -> tuple[Reading, ...]:
        """Call `how` for each log and return the readings: first of the cluster's log, then of each persistent topic that still has
        rows in its own log. Raises TopicNotFound, and the errors of `how`.
        """
        shared = self.read_shared(how)
        return (*shared, *(() if self.own is None else self.own.read(how, *shared)))

    def to(self, starts: Mapping[str, int], ends: Mapping[str, int], *, fail: bool) -> tuple[Reading, ...]:
        """Return readings that reach the given ends: one of the cluster's log, and one of each other log whose range from start to
        end is not empty. The keys of `starts` and `ends` are names of logs.

        Raises OffsetOutOfRange. Raises DataLoss for a deleted topic if `fail` (failOnDataLoss) is set.
        """
        others = {name: end for name, end in ends.items() if name != LOG}
        shared = self.read_shared(lambda log: log.to(ends[LOG]))
        return (*shared, *(self._topic_logs().to(starts, others, fail=fail) if others else ()))

    def gone(self, positions: Mapping[str, Position], readings: Sequence[Reading], *, fail: bool) -> set[str]:
        """Return the names of the logs that have a position but are not read any more. If `fail` is set, raise DataLoss for a log
        that may have had rows beyond its position.
        """
        return self._topic_logs().gone(positions, readings, fail=fail) if positions else set()

    def topics(self, readings: Sequence[Reading]) -> list[Topic]:
        """Return the topics of these readings, and also those persistent topics of the selection that have no reading. Raises
        TopicNotFound.
        """
        read = [topic for one in readings for topic in one.topics]
        there = {topic.name for topic in read}
        own = () if self.own is None else self.own.names()
        return [*read, *(self.client.topics.get(name) for name in own if name not in there)]

    def topics_now(self) -> list[Topic]:
        """Return the topics that the selection names now. A pattern may match none. Raises TopicNotFound."""
        if isinstance(self.selection, Pattern):
            more = [Topic(t.name, t.layout, t.record) for t in self.client.instream.topics.list(self.selection.compiled)]
            further = [found for name in self.successors() if (found := self.client.topics.find(name)) is not None]
            return [*self.client.topics.list(self.selection.regex), *further, *more]
        named = [n.topic if isinstance(n, SegmentName) else n for n in self.selection.names]
        return [self.client.topics.get(name) for name in dict.fromkeys([*named, *self.successors()])]

    # --- one by one -------------------------------------------------------------------------------------------------

    def successors(self) -> tuple[TopicName, ...]:
        """Return the successors of the selection's migrated persistent topics. An unfinished migration is completed first.

        For a pattern, successors whose own names match are left out, because the pattern selects them itself. Deleted successors
        are included, like the deleted topics that a pattern matches. Raises TopicNotFound.
        """
        if isinstance(self.selection, Pattern):
            found = self.client.instream.migrator.matching(self.selection.compiled)
            return tuple(name for name in found if not self.selection.matches(name))
        made = [self.client.instream.migrator.made(name) for name in self.selection.persistent]
        return tuple(name for name in made if name is not None)

    def shared_log(self, successors: Sequence[TopicName]) -> ClusterLog | None:
        """Return a reader of the cluster's log for the selection and these successors. Return None if no topic of the selection is
        in that log.
        """
        found = selected(self.selection, successors)
        return None if found is None else ClusterLog(self.client.buffer, found)

    @cached_property
    def own(self) -> TopicLogs | None:
        """The logs of persistent topics; None if the selection cannot have any."""
        return self._topic_logs() if isinstance(self.selection, Pattern) or self.selection.persistent else None

    def _topic_logs(self) -> TopicLogs:
        # imported late, because the import would slow the start of every Spark process that plans a read
        from metadata.instream.topic_logs import TopicLogs

        return TopicLogs(self.client.instream, self.selection)

    def read_shared(self, how: How) -> tuple[Reading, ...]:
        """Call `how` for the cluster's log. Return its reading, or an empty tuple if no topic of the selection is in that log.

        A topic may be migrated during the read. So the successors are read again afterwards, and the log is read again if they have
        changed.
        """
        further = self.successors()
        while (log := self.shared_log(further)) is not None:
            reading, again = how(log), self.successors()
            if again == further:
                return (reading,)
            further = again
        return ()


def log_of(client: Client, name: str) -> LogReader:
    """Return a reader of the log of one topic or segment, given by its full name."""
    (log,) = logs_of(client, (name,))
    return log


def logs_of(client: Client, names: Sequence[str]) -> list[LogReader]:
    """Return readers of the logs of topics and segments, given by full names. The cluster's log comes first, then the log of each
    persistent topic.
    """
    own = [name for name in dict.fromkeys(names) if is_persistent(name)]
    shared = tuple(name for name in dict.fromkeys(names) if not is_persistent(name))
    found: list[LogReader] = [ClusterLog(client.buffer, LogSelection(shared))] if shared else []
    if own:
        from metadata.instream.topic_logs import TopicLog  # lazy: most processes read no persistent topic

        found += [TopicLog(client.instream, persistent_name(name)) for name in own]
    return found


def where_now(client: Client, topic: Topic, number: int) -> tuple[TopicName, int]:
    """Return the current name of a topic, and the number that corresponds to `number` in the log that has the topic's rows now.
    `topic`: a topic as a reading has it. `number`: a log number of that reading. If the topic is a migrated persistent topic, the
    results are the successor's name, and a log number in the cluster's log. Otherwise name and number are unchanged.
    """
    from metadata.records.persistent_records import PersistentLayout  # imported late, because only few messages need it

    to = topic.layout.migrated_to if isinstance(topic.layout, PersistentLayout) else None
    if to is None:
        return topic.name, number
    there = client.topics.get(topic_name(to))
    return there.name, to_cluster(number, legacy_shift(there, str(topic.name)))
