"""Determine the rows that a read may or must lack, because retention trimmed them (protocol.md section 7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from conformance.history.format import Plan, Poll, Read, Row, Time, Trim
from conformance.history.words import topic_of

Cell = TypeVar("Cell", bound=tuple[int, str | None, str])


def _topic(segment: str | None, topics: tuple[str, ...]) -> str | None:
    """Return the topic of a row. `segment`: the row's segment, if it is known. `topics`: the topics of the read that returned the
    row. Return None if the segment is unknown and the read has several topics.
    """
    if segment is not None:
        return topic_of(segment)
    return topics[0] if len(topics) == 1 else None


class Trims:
    """All trims of a history, and the start time of each stream. A stream may only lack rows that were trimmed before its start."""

    def __init__(self) -> None:
        self._of: dict[str, list[Trim]] = defaultdict(list)
        self._streams: dict[str, Time] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def trim(self, event: Trim) -> None:
        self._of[event.segment].append(event)

    def began(self, event: Plan | Poll) -> None:
        """Record the start time of a stream, at the stream's first event: the time at which a plan returned or a poll began. Must
        be called in the order of the events.
        """
        self._streams.setdefault(event.stream, event.at if isinstance(event, Plan) else event.began)

    def may_miss(self, event: Read | Poll, cells: Iterable[Cell], got: Iterable[Cell]) -> set[Cell]:
        """Return the rows among `cells` that the read may lack because of a trim.

        A read may lack the rows of a transaction in a topic if a trim of any segment of this topic includes the transaction and
        began before the read returned. For a stream the trim must have begun before the stream started, because a stream that needs
        rows which are trimmed later gets an error.

        If the read returned one row of the transaction in this topic, it must return all rows of the transaction there, because
        retention trims a transaction in all segments of a topic. The topic of a row is unknown if the history has no store records
        and the read has several topics. Then a trim in any of these topics counts.
        """
        until = event.at if isinstance(event, Read) else self._streams.get(event.stream, event.began)
        shown = {(number, _topic(segment, event.topics)) for number, segment, _ in got}
        return {
            cell
            for cell in cells
            if (topic := _topic(cell[1], event.topics)) is None or (cell[0], topic) not in shown
            if any(self._had_begun(s, cell[0], until) for s in self._places(cell[1], event.topics))
        }

    def gone(self, began: Time, rows: Iterable[Row]) -> list[Row]:
        """Return the rows that were trimmed before `began`. A read that begins at `began` must not return these rows."""
        return [row for row in rows if any(t.through >= row.position[0] and t.at < began for t in self._of.get(row.segment, ()))]

    def is_gone(self, segment: str, number: int, before: Time) -> bool:
        """Return whether a row may have been trimmed before the time `before`."""
        return segment in self._of and self._had_begun(segment, number, before)

    def ahead(self, segment: str, cut: int, began: Time, at: Time) -> bool:
        """Return whether retention trimmed rows of the segment above the cut of a plan while the reader made this plan (from
        `began` to `at`). Such rows are gone, and the plan need not notice that: it ignores a `trimmedTo` above its cut.
        """
        return any(trim.through > cut and began < trim.at and trim.began < at for trim in self._of.get(segment, ()))

    def _had_begun(self, segment: str, number: int, before: Time) -> bool:
        return any(trim.through >= number and trim.began < before for trim in self._of[segment])

    def _places(self, segment: str | None, topics: tuple[str, ...]) -> list[str]:
        if segment is not None:
            topic = topic_of(segment)
            return [each for each in self._of if topic_of(each) == topic]
        stems = tuple(f"{topic.replace('topic://', 'segment://')}/" for topic in topics)
        return [each for each in self._of if each in topics or each.startswith(stems)]
