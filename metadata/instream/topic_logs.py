"""Readers of the logs of persistent topics (docs/in_stream.md, section "Spark")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from metadata.cluster.cluster import Cluster
from metadata.common.errors import DataLoss, TopicNotFound
from metadata.instream import paths
from metadata.instream.client import InStream
from metadata.instream.view import as_reading
from metadata.read.log_reader import How, LogReader, now, rows_gone
from metadata.read.reading import Reading
from metadata.read.selection import Pattern, Position, Selection
from metadata.records.names import PersistentName, TopicName, persistent_name, topic_name
from metadata.records.paths import Prefix
from metadata.records.persistent_records import PersistentLayout
from metadata.records.records import Layout
from metadata.rules.migrated import holds, is_its_own
from metadata.rules.timestamps import OpenTransactions
from metadata.store.contract import View, decide, look
from metadata.topics.topic import Topic


@dataclass(frozen=True)
class TopicLog(LogReader):
    """A reader of the log of one persistent topic."""

    instream: InStream
    topic: PersistentName

    @property
    def name(self) -> str:
        return str(self.topic)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def cluster(self) -> Cluster:
        return self.instream.cluster

    def now(self, *, uncommitted: bool = False) -> Reading:
        return as_reading(self.instream.buffer.read(self.topic, uncommitted=uncommitted))

    def to(self, end: int) -> Reading:
        return as_reading(self.instream.buffer.read_to(self.topic, end))

    def open_transactions(self) -> OpenTransactions:
        """Return the transactions that may still append to persistent topics. A plain append has no transaction, so the result does
        not show it. A plain append takes its publish time right before it is appended. Readers assume that it is in the log at most
        the deadline allowance after that time.
        """
        return self.instream.coordinator.ending.open_transactions()

    def is_newest(self, view: View, reading: Reading) -> bool:
        """Return whether the reading has all rows and markers of the log. Nothing that counts is appended to a sealed log. So for a
        sealed topic the method checks whether the topic's record has changed. For a migrated topic the result is True.
        """
        (topic,), (segment,) = reading.topics, reading.segments
        if segment.sealed_at is None:
            return not view.keys(paths.log(self.topic).range(reading.end_of_log + 1))
        return reading.successor is not None or view.get(topic.record.key) == topic.record

    def watched(self, reading: Reading) -> Mapping[str, Prefix]:
        """Return the prefix of the topic's log. Rows, and the markers that decide their transactions, are appended to it."""
        return {self.name: paths.log(self.topic)}

    def had_more(self, after: int) -> bool:
        """Return whether a topic that is no longer read had, or may have had, rows after a number. After the grace period the log
        of a deleted topic is gone, and the result is True.
        """
        log = self.instream.buffer.log(self.topic)

        def body(view: View) -> bool:
            numbers = log.numbers(view, after - 1)
            entries, (record,) = log.entries(view, numbers, then=[paths.topic(self.topic)])
            trimmed = None if record is None else PersistentLayout.of(record).trimmed_to
            if trimmed is not None and trimmed.ledger_id > after:
                return True
            if not entries:
                return True  # the log is deleted: nothing is known
            return any(entry.write is not None for number, entry in entries.items() if number > after)

        return decide(self.cluster.store, body)

    def lost(self, after: int) -> DataLoss:
        """Return the error for lost rows of the topic after a number."""
        record = look(self.cluster.store, paths.topic(self.topic))
        return rows_gone(self.name, None if record is None else PersistentLayout.of(record).migrated_to, after)


@dataclass(frozen=True)
class TopicLogs:
    """The logs of all persistent topics of a selection."""

    instream: InStream
    selection: Selection
    _met: set[PersistentName] = field(default_factory=set)

    @property
    def cluster(self) -> Cluster:
        return self.instream.cluster

    def log(self, name: str | PersistentName) -> TopicLog:
        return TopicLog(self.instream, persistent_name(str(name)))

    def names(self) -> list[PersistentName]:
        """Return the persistent topics that the selection names, or whose full names its pattern matches now."""
        if isinstance(self.selection, Pattern):
            return [found.name for found in self.instream.topics.list(self.selection.compiled)]
        return list(self.selection.persistent)

    def now(self) -> tuple[Reading, ...]:
        """Read each topic that still has rows in its own log, up to its current cut. Raises TopicNotFound."""
        return self.read(now)

    def read(self, how: How, beside: Reading | None = None) -> tuple[Reading, ...]:
        """Call `how` for each topic that still has rows in its own log, and return the readings. Raises TopicNotFound, and the
        errors of `how`.

        `beside`: the reading of the cluster's log that the caller has made just before. A successor has one segment for the old
        rows of its persistent topic. If `beside` leaves this segment out, the old rows must come from the persistent topic's own
        log. So this method also reads the logs of these persistent topics, even if their successors were deleted since.
        """
        left = () if beside is None else _left_out(beside)
        found = [how(self.log(name)) for name in dict.fromkeys([*self.names(), *left])]
        return self._holding(found, () if beside is None else beside.topics)

    def to(self, starts: Mapping[str, int], ends: Mapping[str, int], *, fail: bool) -> tuple[Reading, ...]:
        """Return readings of those logs whose given end lies after their start. A repeated call for a range returns the same rows.
        Raises OffsetOutOfRange if some of these rows cannot be read. For a deleted topic raise DataLoss if `fail` (failOnDataLoss)
        is set, and leave out the topic otherwise.
        """
        found = []
        for name, end in ends.items():
            try:
                if end > starts.get(name, 0):
                    found.append(self.log(name).to(end))
            except TopicNotFound as error:
                if fail:
                    raise self.log(name).lost(starts.get(name, 0)) from error
        return tuple(found)

    def gone(self, positions: Mapping[str, Position], readings: Sequence[Reading], *, fail: bool) -> set[str]:
        """Return the topics of the selection that have a position, but are not in `readings` any more. Such a topic was deleted, or
        its successor has lost the segment with its rows. The name of a persistent topic is never used again, so the caller can drop
        the position.

        `fail`: raise DataLoss if such a topic had, or may have had, rows beyond its position.
        """
        there = {one.log for one in readings}
        found = {n for n in positions if n not in there and self.selection.reads_own_log(persistent_name(n))}
        for name in sorted(found):
            if fail and self.log(name).had_more(positions[name].ledger):
                raise self.log(name).lost(positions[name].ledger)
        return found

    def _holding(self, found: Sequence[Reading], beside: Sequence[Topic]) -> tuple[Reading, ...]:
        """Return those of the readings whose topics still have rows. A migrated topic has no rows if its successor was deleted (and
        perhaps created again), or if retention in the successor has trimmed all rows of the migrated topic.

        `beside`: topics that the same read has already read. Their layouts are not read again, so that one read does not see two
        layouts of a successor. The layouts of all other successors are read in one round trip.
        """
        to = {one.log: topic_name(one.successor) for one in found if one.successor is not None}
        if not to:
            return tuple(found)
        known: dict[TopicName, Layout] = {topic.name: topic.layout for topic in beside}
        if others := sorted({*to.values()} - known.keys()):
            records = decide(self.cluster.store, lambda view: view.get_many([paths.topic(name) for name in others]))
            known |= {name: Layout.of(r) for name, r in zip(others, records, strict=True) if r is not None}
        successors = {persistent_name(log): known[there] for log, there in to.items() if there in known}
        gone = {str(name) for name, layout in successors.items() if is_its_own(layout, name) and not holds(layout, name)}
        return tuple(one for one in found if one.log not in gone)

    # --- following --------------------------------------------------------------------------------------------------

    def is_newest(self, view: View, readings: Sequence[Reading]) -> bool:
        """Return whether each reading is the newest (`TopicLog.is_newest`), and no topic was created that the pattern matches. Each
        new topic is reported by one call only.
        """
        if not all(self.log(one.log).is_newest(view, one) for one in readings):
            return False
        if not isinstance(self.selection, Pattern):
            return True
        there = {name for name in map(paths.topic_at, view.keys(paths.TOPICS)) if self.selection.matches(name)}
        new = there - self._met
        self._met.update(new)  # the caller reads the new topics next
        return not new

    def watched(self, readings: Sequence[Reading]) -> Mapping[str, Prefix]:
        return {name: prefix for one in readings for name, prefix in self.log(one.log).watched(one).items()}


def _left_out(beside: Reading) -> list[PersistentName]:
    """Return the migrated topics whose segments the reading `beside` left out, because their rows are read from the topics' own
    logs.
    """
    infos = [info for topic in beside.topics for info in topic.layout.kept() if beside.selection.leaves_out(info)]
    return [persistent_name(info.legacy_topic_name) for info in infos if info.legacy_topic_name is not None]
