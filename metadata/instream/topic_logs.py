"""The logs of persistent topics, as whoever reads several logs asks for them (docs/in_stream.md, Spark)."""

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
    """The log of one persistent topic."""

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
        """A plain append has no transaction that announces it: it counts as soon as it is in the log, which is within the
        allowance.
        """
        return self.instream.coordinator.ending.open_transactions()

    def is_newest(self, view: View, reading: Reading) -> bool:
        """Nothing was appended since (a marker would be, too). A sealed log has had its last word: what becomes of its topic then,
        the topic's record says alone.
        """
        (topic,), (segment,) = reading.topics, reading.segments
        if segment.sealed_at is None:
            return not view.keys(paths.log(self.topic).range(reading.end_of_log + 1))
        return reading.successor is not None or view.get(topic.record.key) == topic.record

    def watched(self, reading: Reading) -> Mapping[str, Prefix]:
        """Appends: data, and the markers that decide about it."""
        return {self.name: paths.log(self.topic)}

    def had_more(self, after: int) -> bool:
        """Whether the topic, of which nothing is read any more, had rows after this number, or may have had: that is not known
        after the grace period.
        """
        log = self.instream.buffer.log(self.topic)

        def body(view: View) -> bool:
            numbers = log.numbers(view, after - 1)
            entries, (record,) = log.entries(view, numbers, then=[paths.topic(self.topic)])
            trimmed = None if record is None else PersistentLayout.of(record).trimmed_to
            if trimmed is not None and trimmed.ledger_id > after:
                return True
            if not entries:
                return True  # it has left the log
            return any(entry.write is not None for number, entry in entries.items() if number > after)

        return decide(self.cluster.store, body)

    def lost(self, after: int) -> DataLoss:
        """The error for rows after this number that went with the topic."""
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
        """The topics that the selection names today; of a pattern those whose full name it matches."""
        if isinstance(self.selection, Pattern):
            return [found.name for found in self.instream.topics.list(self.selection.compiled)]
        return list(self.selection.persistent)

    def now(self) -> tuple[Reading, ...]:
        """A decision for each topic that has rows of its own still. Raises TopicNotFound."""
        return self.read(now)

    def read(self, how: How, beside: Reading | None = None) -> tuple[Reading, ...]:
        """A reading by `how` of each topic that has rows of its own still. Raises TopicNotFound, and what `how` raises.

        `beside`: what the same read has of the cluster's log, which was read before. It says which migrated topics are left to
        their own logs, though their successors may be deleted by now.
        """
        left = () if beside is None else _left_out(beside)
        found = [how(self.log(name)) for name in dict.fromkeys([*self.names(), *left])]
        return self._holding(found, () if beside is None else beside.topics)

    def to(self, starts: Mapping[str, int], ends: Mapping[str, int], *, fail: bool) -> tuple[Reading, ...]:
        """Readings of the logs that move, by GIVEN starts and ends: the same rows for ever. Raises OffsetOutOfRange rather than
        fewer; `fail` (failOnDataLoss): DataLoss for a topic that was deleted, which is left out otherwise.
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
        """The topics of the selection that were read to these positions and have no rows of their own any more: of a pattern those
        that are deleted by now, and those that were migrated and let go. They need no position any more, as no name is used again.

        `fail`: raises DataLoss if one had rows beyond its position, or may have had, which is not known after the grace period.
        """
        there = {one.log for one in readings}
        found = {n for n in positions if n not in there and self.selection.reads_own_log(persistent_name(n))}
        for name in sorted(found):
            if fail and self.log(name).had_more(positions[name].ledger):
                raise self.log(name).lost(positions[name].ledger)
        return found

    def _holding(self, found: Sequence[Reading], beside: Sequence[Topic]) -> tuple[Reading, ...]:
        """Those that have rows of their own still: of migrated topics not those whose rows are gone with their successor, which was
        deleted, made again or not, or of which retention has taken all of them.

        `beside`: topics that the same read takes as they are here, so that it has all of them or nothing. A round trip for others
        that one was migrated to.
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
        """Whether nothing has come to any of the logs, and no topic of a pattern was made."""
        if not all(self.log(one.log).is_newest(view, one) for one in readings):
            return False
        if not isinstance(self.selection, Pattern):
            return True
        there = {name for name in map(paths.topic_of, view.keys(paths.TOPICS)) if self.selection.matches(name)}
        new = there - self._met
        self._met.update(new)  # it is read right after this, if there is anything to read of it
        return not new

    def watched(self, readings: Sequence[Reading]) -> Mapping[str, Prefix]:
        return {name: prefix for one in readings for name, prefix in self.log(one.log).watched(one).items()}


def _left_out(beside: Reading) -> list[PersistentName]:
    """The migrated topics whose rows are left to their own logs, though their successors may be deleted by now."""
    infos = [info for topic in beside.topics for info in topic.layout.kept() if beside.selection.leaves_out(info)]
    return [persistent_name(info.legacy_topic_name) for info in infos if info.legacy_topic_name is not None]
