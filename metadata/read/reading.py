"""The selection of the topics of one log, and the reading: the immutable result of one read of the metadata (protocol.md section
6).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

from metadata.cluster.cluster import Cluster
from metadata.common.errors import OffsetOutOfRange
from metadata.read.marker_model import MigratedSegment
from metadata.read.segment_view import SegmentView
from metadata.read.selection import LOG, AtLog, Position
from metadata.records.names import segment_name
from metadata.records.records import SegmentInfo
from metadata.rules.timestamps import Above
from metadata.rules.transitions import Weight
from metadata.topics.topics import Topic, compiled


@dataclass(frozen=True)
class LogSelection:
    """The topics of a read. `names`: topics and segments by full name. `pattern`: a regular expression that matches full topic
    names.

    `beside`: persistent topics that the same read takes from their own logs. If such a topic was migrated, its segment in the
    successor is left out, because its rows would be read twice. With a pattern, this applies to all persistent topics that the
    pattern matches. `further`: successors that the read covers although the pattern does not match their names. The pattern matches
    the persistent topics that were migrated to these successors.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    beside: tuple[str, ...] = ()
    further: tuple[str, ...] = ()

    def leaves_out(self, info: SegmentInfo) -> bool:
        """Return whether a segment is a migrated persistent topic that the same read takes from its own log."""
        name = info.legacy_topic_name
        if name is None or name in self.beside or self.pattern is None:
            return name is not None and name in self.beside
        expression = compiled(self.pattern)
        return expression is not None and expression.fullmatch(name) is not None

    def covers(self, segment: str) -> bool:
        """Return whether rows of a segment belong to the read. The segment need not be in a layout yet."""
        topic = str(segment_name(segment).topic)
        if self.pattern is not None:
            expression = compiled(self.pattern)
            return topic in self.further or (expression is not None and expression.fullmatch(topic) is not None)
        return topic in self.names or segment in self.names


def _guard(topic: Topic) -> int:
    """Return the number at or below which rows of segments that have left the topic's layout are gone (0: none)."""
    return 0 if topic.layout.trimmed_to is None else topic.layout.trimmed_to.ledger_id


@dataclass(frozen=True)
class Reading:
    """The result of one read of the metadata of one log. `cut`: all registrations of the read at or below this number are decided.

    This class is the reading of the cluster's log. The reading of a persistent topic's own log is a subclass
    (`metadata.instream.view`), so that plans of reads treat both logs alike.
    """

    cluster: Cluster
    cut: int
    end_of_log: int
    now_ms: int
    topics: tuple[Topic, ...]
    segments: tuple[SegmentView, ...]
    undecided: tuple[tuple[int, str], ...]
    """The undecided registrations with rows of this read: (number, transaction id)."""
    gone: tuple[SegmentView, ...]
    """The segments of topics that were deleted less than the grace period ago. Their rows are not read. The segments tell exactly
    which rows are lost to a read.
    """
    forgotten: tuple[tuple[str, int], ...]
    """The topics that were deleted longer ago than the grace period, each with the number of the newest seal that deleted it. Which
    rows they had below this seal is no longer known.
    """
    selection: LogSelection
    undecided_ms: tuple[tuple[int, int], ...] = ()
    """The publish time of each undecided registration: (number, ms), ascending."""

    # --- the log ----------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """The name of the log in an offset."""
        return LOG

    @property
    def owner(self) -> str:
        """The owner of the log, as text for messages: the URL of the cluster, or the name of a persistent topic."""
        return self.cluster.url

    @property
    def successor(self) -> str | None:
        """The successor of the persistent topic that has this log. None: not migrated, or this is the cluster's log."""
        return None

    def before_lost(self, number: int) -> int:
        """Return `number`, or the last number below the lost range if a restore lost `number`. The caller has computed `number`
        from existing records.
        """
        return self.cluster.before_lost(number)

    def check_not_lost(self, number: int) -> None:
        """Raise OffsetOutOfRange for a number that a restore lost."""
        self.cluster.check_not_lost(number)

    def check_reached(self, number: int) -> None:
        """Raise OffsetOutOfRange for a number that a restore lost, and for a number beyond the end of the log. A number beyond the
        end comes from another cluster. A read that started at such a number would miss the rows that get lower numbers later.
        """
        self.check_not_lost(number)
        if number > self.end_of_log:
            raise OffsetOutOfRange(
                f"The offset {number} lies beyond the log of {self.owner}, which ends at {self.end_of_log}.",
                advice="The offset or checkpoint belongs to another cluster, or this one was made anew: use a new checkpoint.",
            )

    def given(self, offset: AtLog) -> int:
        """Return the number that an offset has for this log. Raises OffsetOutOfRange if a restore lost this number."""
        self.check_not_lost(offset.log)
        return offset.log

    def position(self, number: int) -> Position:
        """Return a number in the form that it has in an offset."""
        return Position(number, 0)

    def shown(self, number: int) -> str:
        """Return a number as text for messages."""
        return f"{number}"

    def migrated(self, number: int) -> dict[str, int]:
        """Return, for each segment that is a migrated persistent topic, the highest possible ledger id at or below `number`."""
        return {s.name: s.ledger_id(number) for s in self.segments if isinstance(s, MigratedSegment)}

    # --- what is visible --------------------------------------------------------------------------------------------

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        """Yield rows and bytes of each visible registration, summed over the segments of this read, ascending and lazily."""
        pending: Weight | None = None
        for found in heapq.merge(*(s.weights(after, through) for s in self.segments), key=lambda w: w.number):
            if pending is not None and pending.number == found.number:
                found = Weight(found.number, pending.rows + found.rows, pending.bytes + found.bytes)
            elif pending is not None:
                yield pending
            pending = found
        if pending is not None:
            yield pending

    def published(self, after: int, through: int) -> Iterator[tuple[int, int]]:
        """Yield (number, publish time in ms) of each visible registration of this read, ascending.

        The trimmed registrations of a segment count as one registration, with the last of their numbers and the latest of their
        times. So a search for a timestamp within the trimmed range ends at this registration. If another segment still has a
        registration of the same number, the later of the two times counts.
        """
        guards = [[(n, t.layout.trimmed_ms or 0)] for t in self._whole() if after < (n := _guard(t)) <= through]
        merged = heapq.merge(*(s.published(after, through) for s in self.segments), *guards)
        for number, found in itertools.groupby(merged, key=itemgetter(0)):
            yield number, max(publish_ms for _, publish_ms in found)

    def above_cut(self) -> Iterator[Above]:
        """Yield all visible and all undecided registrations of this read above the cut, ascending."""
        shown = (Above(number, ms, True) for number, ms in self.published(self.cut, self.end_of_log))
        return heapq.merge(shown, (Above(number, ms, False) for number, ms in self.undecided_ms))

    def seals(self, after: int, through: int) -> list[int]:
        """Return the numbers of the seals of this read's segments with after < number <= through."""
        return sorted({s.sealed_at for s in self.segments if s.sealed_at is not None and after < s.sealed_at <= through})

    def deletions(self) -> list[int]:
        """Return the numbers of the known seals that deleted a topic of this read."""
        return sorted({*(s.deleted_at for s in self.gone if s.deleted_at is not None), *(n for _, n in self.forgotten)})

    def trims(self) -> dict[str, int]:
        """Return, for each segment, the number up to which retention has removed rows. Segments that have left a layout share one
        number, under the name of their topic.
        """
        return {s.name: s.trimmed_to for s in self.segments if s.trimmed_to} | self.guards()

    def guards(self) -> dict[str, int]:
        """Return, for each topic that is read whole, the number up to which rows of segments that have left its layout are gone."""
        return {str(t.name): n for t in self._whole() if (n := _guard(t))}

    def whole_from(self) -> dict[str, int]:
        """Return, for each topic that is read whole and each segment that is read alone, the number above which retention has
        removed no row.

        For a topic this is the highest trimmed number of its segments. The segments may have different numbers, because a trim may
        be half done, and earlier versions of txnsegment trimmed each segment separately.
        """
        found = self.guards()
        whole = {str(topic.name) for topic in self._whole()}
        for topic in self.topics:
            name, segments = str(topic.name), [s for s in self.segments if s.topic.name == topic.name]
            highest = max([found.get(name, 0), *(s.trimmed_to for s in segments)])
            if highest:
                found |= dict.fromkeys([name] if name in whole else [s.name for s in segments], highest)
        return found

    def _whole(self) -> Iterator[Topic]:
        """Yield the topics that are read with all their segments."""
        return (t for t in self.topics if self.selection.pattern is not None or str(t.name) in self.selection.names)

    def last_change(self, start: int) -> int:
        """Return the highest number in (start, cut] with a visible row, a seal or a trim of this read. Return `start` if there is
        none.

        The cost does not depend on the length of the history, because the head of a snapshot names the last committed ledger.
        """
        found = [start, *self.seals(start, self.cut), *(n for n in self.deletions() if start < n <= self.cut)]
        for segment in self.segments:
            found.append(segment.newest(start, self.cut))
            if segment.trimmed_to <= self.cut:
                found.append(segment.trimmed_to)  # a stream that needs trimmed rows must notice the trim
        found += [n for n in self.guards().values() if n <= self.cut]
        return max(found)
