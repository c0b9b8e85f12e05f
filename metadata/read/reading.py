"""What a read covers, and what one decision of a reader rests on (protocol.md section 6): seen once, it stays the same."""

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
class Selection:
    """What a read covers: topics or segments by full name, or a regular expression over full topic names.

    `beside`: persistent topics that are read under their own names beside it: of those that were migrated only what goes on from
    them is covered, or their rows would come twice. (Of a pattern: those that it matches.) `further`: topics that a pattern covers
    though it does not match their names, since persistent ones that it matches go on in them.
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    beside: tuple[str, ...] = ()
    further: tuple[str, ...] = ()

    def leaves_out(self, info: SegmentInfo) -> bool:
        """Whether a segment is a persistent topic that is read beside this."""
        name = info.legacy_topic_name
        if name is None or name in self.beside or self.pattern is None:
            return name is not None and name in self.beside
        expression = compiled(self.pattern)
        return expression is not None and expression.fullmatch(name) is not None

    def covers(self, segment: str) -> bool:
        """Whether rows of this segment belong to the read (whether or not a layout shows the segment yet)."""
        topic = str(segment_name(segment).topic)
        if self.pattern is not None:
            expression = compiled(self.pattern)
            return topic in self.further or (expression is not None and expression.fullmatch(topic) is not None)
        return topic in self.names or segment in self.names


def _guard(topic: Topic) -> int:
    """The number at or below which rows of segments that have left the topic's layout are gone (0: none)."""
    return 0 if topic.layout.trimmed_to is None else topic.layout.trimmed_to.ledger_id


@dataclass(frozen=True)
class Reading:
    """Everything that one decision of a reader of one log rests on. `cut`: all at or below it is decided, for ever.

    This is the reading of the cluster's log. That of a persistent topic's own log is a subclass (`metadata.instream.view`), so a
    plan of a read does not depend on which log it is.
    """

    cluster: Cluster
    cut: int
    end_of_log: int
    now_ms: int
    topics: tuple[Topic, ...]
    segments: tuple[SegmentView, ...]
    undecided: tuple[tuple[int, str], ...]
    """Undecided registrations that touch this read: (number, txn id)."""
    gone: tuple[SegmentView, ...]
    """Segments that a deletion took within the grace period: nothing of them is read, but what is lost there is known exactly."""
    forgotten: tuple[tuple[str, int], ...]
    """Topics with an earlier deletion, and the number of its seal: what lay below is not known any more."""
    selection: Selection
    undecided_ms: tuple[tuple[int, int], ...] = ()
    """The publish time of each of the undecided: (number, ms), ascending."""

    # --- the log ----------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        """The name of the log in an offset."""
        return LOG

    @property
    def owner(self) -> str:
        """What the log belongs to, for messages: the cluster by its URL, or a topic."""
        return self.cluster.url

    @property
    def successor(self) -> str | None:
        """The topic:// that the topic of this log was migrated to; None: the log goes on."""
        return None

    def before_lost(self, number: int) -> int:
        """A number computed from what is there as a number that no restore lost."""
        return self.cluster.before_lost(number)

    def check_not_lost(self, number: int) -> None:
        """Raises OffsetOutOfRange for a number that a restore lost."""
        self.cluster.check_not_lost(number)

    def check_reached(self, number: int) -> None:
        """Raises OffsetOutOfRange for a number that the log has not reached, or that a restore lost: it comes from another cluster.
        A read from there would pass over the rows that get the numbers in between.
        """
        self.check_not_lost(number)
        if number > self.end_of_log:
            raise OffsetOutOfRange(
                f"The offset {number} lies beyond the log of {self.owner}, which ends at {self.end_of_log}.",
                advice="The offset or checkpoint belongs to another cluster, or this one was made anew: use a new checkpoint.",
            )

    def given(self, offset: AtLog) -> int:
        """The number at which an offset stands in this log. Raises OffsetOutOfRange."""
        self.check_not_lost(offset.log)
        return offset.log

    def position(self, number: int) -> Position:
        """A number as a place of an offset."""
        return Position(number, 0)

    def shown(self, number: int) -> str:
        """A number, for messages."""
        return f"{number}"

    def migrated(self, number: int) -> dict[str, int]:
        """The persistent topics that are segments in this log since they were migrated, and the ledger of each at a number."""
        return {s.name: s.ledger_id(number) for s in self.segments if isinstance(s, MigratedSegment)}

    # --- what is visible --------------------------------------------------------------------------------------------

    def weights(self, after: int, through: int) -> Iterator[Weight]:
        """Rows and bytes of each visible registration, summed over this read's segments, ascending; read lazily."""
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
        """(number, publish time in ms) of each visible registration of this read, ascending. What retention has taken of a segment
        counts as one, the last of them with the latest of their times: a timestamp among them is not taken for one behind them.
        Another segment may still have that number, with its own time: the later one counts.
        """
        guards = [[(n, t.layout.trimmed_ms or 0)] for t in self._whole() if after < (n := _guard(t)) <= through]
        merged = heapq.merge(*(s.published(after, through) for s in self.segments), *guards)
        for number, found in itertools.groupby(merged, key=itemgetter(0)):
            yield number, max(publish_ms for _, publish_ms in found)

    def above_cut(self) -> Iterator[Above]:
        """The registrations of this read above the cut, visible or undecided, ascending: all that the log had."""
        shown = (Above(number, ms, True) for number, ms in self.published(self.cut, self.end_of_log))
        return heapq.merge(shown, (Above(number, ms, False) for number, ms in self.undecided_ms))

    def seals(self, after: int, through: int) -> list[int]:
        """Numbers of the seals of this read's segments with after < number <= through."""
        return sorted({s.sealed_at for s in self.segments if s.sealed_at is not None and after < s.sealed_at <= through})

    def deletions(self) -> list[int]:
        """Numbers of the seals that deleted a topic of this read, as far as they are known."""
        return sorted({*(s.deleted_at for s in self.gone if s.deleted_at is not None), *(n for _, n in self.forgotten)})

    def trims(self) -> dict[str, int]:
        """What retention has taken: of each segment, and of each topic for the segments that have left its layout, the number up to
        which rows are gone.
        """
        return {s.name: s.trimmed_to for s in self.segments if s.trimmed_to} | self.guards()

    def guards(self) -> dict[str, int]:
        """Of each topic that is read whole: the number up to which rows of segments that have left its layout are gone."""
        return {str(t.name): n for t in self._whole() if (n := _guard(t))}

    def whole_from(self) -> dict[str, int]:
        """Of each topic read whole, else of each segment: the number above which no transaction has lost a row to retention.

        It is the highest that was trimmed of any of the topic's segments that are read: a trim may be half done, and those of
        earlier versions trimmed each segment for itself.
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
        """The topics of which not just some segments are read."""
        return (t for t in self.topics if self.selection.pattern is not None or str(t.name) in self.selection.names)

    def last_change(self, start: int) -> int:
        """The highest number in (start, cut] that carries a visible row or a seal for this read, else `start`.

        Does not scan history: snapshot heads know their last committed ledger.
        """
        found = [start, *self.seals(start, self.cut), *(n for n in self.deletions() if start < n <= self.cut)]
        for segment in self.segments:
            found.append(segment.newest(start, self.cut))
            if segment.trimmed_to <= self.cut:
                found.append(segment.trimmed_to)  # a stream that needs what is gone has to hear of it
        found += [n for n in self.guards().values() if n <= self.cut]
        return max(found)
