"""Which logs a selection is read from: the cluster's, and that of each persistent topic (docs/in_stream.md, Spark).

The cluster's log is read first. Its cut may lie beyond rows of the successor of a migrated topic only if these rows are read, too,
and they come after all rows of the migrated topic. So a topic that was not migrated when it was read AFTER the cluster's log has no
successor with rows below that cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.read.log_reader import ClusterLog, How, LogReader
from metadata.read.reading import Reading
from metadata.read.reading import Selection as LogSelection
from metadata.read.selection import LOG, Pattern, Position, Selection
from metadata.records.names import SegmentName, TopicName, is_persistent, persistent_name, topic_name
from metadata.records.persistent_records import Model, PersistentLayout
from metadata.rules.migrated import to_cluster
from metadata.topics.subscriptions import legacy_shift
from metadata.topics.topic import Topic

if TYPE_CHECKING:  # each of Spark's processes that plans a read would import it, too
    from metadata.instream.topic_logs import TopicLogs


def selected(selection: Selection, successors: Sequence[TopicName] = ()) -> LogSelection | None:
    """What a selection reads of the cluster's log; None: nothing so far. `successors`: `Logs.successors`."""
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
        """A reading of each log by `how`: that of the cluster's first, then of each topic with a log and rows of its own. Raises
        TopicNotFound, and what `how` raises.
        """
        shared = self.read_shared(how)
        return (*shared, *(() if self.own is None else self.own.read(how, *shared)))

    def to(self, starts: Mapping[str, int], ends: Mapping[str, int], *, fail: bool) -> tuple[Reading, ...]:
        """Readings that reach GIVEN ends, by the names of the logs: of the cluster's log, and of each other log in which the range
        is not empty. `fail` (failOnDataLoss): raises DataLoss for a topic that was deleted. Raises OffsetOutOfRange.
        """
        others = {name: end for name, end in ends.items() if name != LOG}
        shared = self.read_shared(lambda log: log.to(ends[LOG]))
        return (*shared, *(self._topic_logs().to(starts, others, fail=fail) if others else ()))

    def gone(self, positions: Mapping[str, Position], readings: Sequence[Reading], *, fail: bool) -> set[str]:
        """The logs of the selection that have positions and are not read any more. Raises DataLoss (`TopicLogs.gone`)."""
        return self._topic_logs().gone(positions, readings, fail=fail) if positions else set()

    def topics(self, readings: Sequence[Reading]) -> list[Topic]:
        """The topics of readings, and those with a log of their own that are not among these readings. Raises TopicNotFound."""
        read = [topic for one in readings for topic in one.topics]
        there = {topic.name for topic in read}
        own = () if self.own is None else self.own.names()
        return [*read, *(self.client.topics.get(name) for name in own if name not in there)]

    def topics_now(self) -> list[Topic]:
        """The topics that the selection names today. Raises TopicNotFound; a pattern may match none."""
        if isinstance(self.selection, Pattern):
            more = [Topic(t.name, t.layout, t.record) for t in self.client.instream.topics.list(self.selection.compiled)]
            further = [found for name in self.successors() if (found := self.client.topics.find(name)) is not None]
            return [*self.client.topics.list(self.selection.regex), *further, *more]
        named = [n.topic if isinstance(n, SegmentName) else n for n in self.selection.names]
        return [self.client.topics.get(name) for name in dict.fromkeys([*named, *self.successors()])]

    # --- one by one -------------------------------------------------------------------------------------------------

    def successors(self) -> tuple[TopicName, ...]:
        """The topic:// topics that persistent ones of the selection were migrated to; a migration that nobody has finished is
        completed. Of a pattern those that it does not match itself, deleted ones too, as of all topics that it matches. Raises
        TopicNotFound.
        """
        if isinstance(self.selection, Pattern):
            found = self.client.instream.migrator.matching(self.selection.compiled)
            return tuple(name for name in found if not self.selection.matches(name))
        made = [self.client.instream.migrator.made(name) for name in self.selection.persistent]
        return tuple(name for name in made if name is not None)

    def shared_log(self, successors: Sequence[TopicName]) -> ClusterLog | None:
        """The cluster's log, read for the selection with these successors; None: nothing of it is read so far."""
        found = selected(self.selection, successors)
        return None if found is None else ClusterLog(self.client.buffer, found)

    @cached_property
    def own(self) -> TopicLogs | None:
        """The logs of single topics; None: the selection has none."""
        return self._topic_logs() if isinstance(self.selection, Pattern) or self.selection.persistent else None

    def _topic_logs(self) -> TopicLogs:
        from metadata.instream.topic_logs import TopicLogs  # each of Spark's processes that plans a read would import it, too

        return TopicLogs(self.client.instream, self.selection)

    def read_shared(self, how: How) -> tuple[Reading, ...]:
        """The reading of the cluster's log by `how`; none if nothing of it is read. A topic may be migrated meanwhile: which ones
        were is asked again after the log was read.
        """
        further = self.successors()
        while (log := self.shared_log(further)) is not None:
            reading, again = how(log), self.successors()
            if again == further:
                return (reading,)
            further = again
        return ()


def log_of(client: Client, name: str) -> LogReader:
    """The log of a topic or segment by its full name, read for that alone."""
    (log,) = logs_of(client, (name,))
    return log


def logs_of(client: Client, names: Sequence[str]) -> list[LogReader]:
    """The logs of topics and segments by their full names, read for these: the cluster's first, and each persistent topic's own."""
    own = [name for name in dict.fromkeys(names) if is_persistent(name)]
    shared = tuple(name for name in dict.fromkeys(names) if not is_persistent(name))
    found: list[LogReader] = [ClusterLog(client.buffer, LogSelection(shared))] if shared else []
    if own:
        from metadata.instream.topic_logs import TopicLog  # most processes never meet one

        found += [TopicLog(client.instream, persistent_name(name)) for name in own]
    return found


def logs_of_segments(client: Client, names: Sequence[str]) -> list[LogReader]:
    """The logs in which the rows of these segments stand now: a persistent topic that was migrated is a segment of the cluster's
    log.
    """
    models = Providers(client).models(names)
    mine = tuple(name for name, model in models.items() if model is Model.METADATA)
    shared: list[LogReader] = [ClusterLog(client.buffer, LogSelection(mine))] if mine else []
    return [*shared, *logs_of(client, [name for name in models if name not in mine])]


def where_now(client: Client, topic: Topic, number: int) -> tuple[TopicName, int]:
    """What a topic goes by now, and where a number of its log is there: both change for one that was migrated."""
    to = topic.layout.migrated_to if isinstance(topic.layout, PersistentLayout) else None
    if to is None:
        return topic.name, number
    there = client.topics.get(topic_name(to))
    return there.name, to_cluster(number, legacy_shift(there, str(topic.name)))
