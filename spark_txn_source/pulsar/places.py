"""Asks the broker for the cuts and starts of several segments at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from metadata.common.errors import DataLoss, OffsetOutOfRange
from pulsar_protocol.channel import ANSWER_SECONDS
from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import PATIENCE_SECONDS, Cut, Segment
from pulsar_protocol.layout import EARLIEST, Position
from pulsar_protocol.layout import Segment as LayoutSegment
from spark_txn_source.pulsar.asking import each
from spark_txn_source.pulsar.option_table import At, Place
from spark_txn_source.pulsar.watermarks import RecordedCuts

log = logging.getLogger(__name__)

_NO_FLOORS: Final[Mapping[str, Position]] = {}


class Places:
    """Finds positions in the segments of one topic: cuts, and the starts and ends of reads."""

    def __init__(
        self, client: PulsarClient, topic: str, recorded: RecordedCuts | None = None, patience: float = PATIENCE_SECONDS
    ) -> None:
        """`recorded`: finds cuts by the records in the metadata store. None: cuts are found by probes. `patience`: how long the
        probes of a cut wait for a slow broker, in seconds.
        """
        self._client, self._topic, self._recorded, self._patience = client, topic, recorded, patience

    def cuts(self, segments: Iterable[LayoutSegment], floors: Mapping[str, Position] = _NO_FLOORS) -> dict[str, Cut]:
        """Return the cut of each segment, by name. `floors`: earlier cuts, at which the searches begin. `segments` must come from a
        layout that was read before this call. A segment that is sealed in this layout gets no more entries.
        """
        if self._recorded is not None:
            return self._recorded.cuts([*segments], floors, self._segment)
        sealed = {one.name: not one.active for one in segments}
        cuts = each(sealed, lambda name: self._segment(name).cut(floors.get(name, EARLIEST), sealed=sealed[name]))
        for name, cut in cuts.items():
            if self._patience > PATIENCE_SECONDS and cut.position == EARLIEST and not cut.whole:
                log.warning(
                    "%s: the broker has shown no entry within %g s. An open transaction is before all entries up to %s, or the "
                    "broker is slow. The read has no rows of this segment.",
                    name,
                    self._patience,
                    cut.last.text,
                )
        return cuts

    def starts(self, start: Place | int, cuts: Mapping[str, Cut]) -> dict[str, Position]:
        """Return the last entry before the start of a read in each segment. `start`: a place, or a publish time in ms."""
        match start:
            case "earliest":
                return dict.fromkeys(cuts, EARLIEST)
            case "latest":
                return {name: cut.position for name, cut in cuts.items()}
            case At(segments=places):
                self._check_names(places, cuts)
                return {name: places.get(name, EARLIEST) for name in cuts}
        return each(cuts, lambda name: self._segment(name).before_time(start, cuts[name].position))

    def raised(self, cuts: Mapping[str, Cut], end: At) -> dict[str, Cut]:
        """Return the cuts, raised to the end of a read that the user gave, where this end is decided. A cut may be too low if the
        broker was slow. So the broker is asked again, for at most `ANSWER_SECONDS` for all segments together. With records nothing
        is asked, since a broker may deliver entries that are not decided (`watermarks`).
        """
        above = {name: place for name, place in end.segments.items() if name in cuts and place > cuts[name].position}
        deadline = time.monotonic() + ANSWER_SECONDS
        asked = above if self._recorded is None else {}
        decided = each(asked, lambda name: self._segment(name).is_decided(above[name], deadline - time.monotonic()))
        return {name: replace(cut, position=above[name]) if decided.get(name) else cut for name, cut in cuts.items()}

    def ends(self, end: At, cuts: Mapping[str, Cut]) -> dict[str, Position]:
        """Return the positions that the user gave as the end of a read. `cuts`: those that `raised` returned. Raises
        OffsetOutOfRange for a position above the cut of its segment.
        """
        self._check_names(end.segments, cuts)
        for name, place in end.segments.items():
            if place > cuts[name].position:
                raise OffsetOutOfRange(
                    f"The end {place.text} of {name} is not decided: all is decided up to {cuts[name].position.text}.",
                    advice="Read again later, or give an end at or before that position.",
                )
        return dict(end.segments)

    def until(self, ms: int, cuts: Mapping[str, Cut]) -> dict[str, Cut]:
        """Return the cut of each segment for a read up to the publish time `ms`. If an entry below a cut was published after this
        time, the cut is moved back: it becomes the last entry that is before every entry published after `ms`.
        """
        places = self.starts(ms + 1, cuts)
        return {
            name: cut if places[name] >= cut.position else replace(cut, position=places[name], whole=False)
            for name, cut in cuts.items()
        }

    def check_reached(self, starts: Mapping[str, Position], cuts: Mapping[str, Cut]) -> None:
        """Raise OffsetOutOfRange if a segment ends before the position from which it is read."""
        beyond = [name for name, cut in cuts.items() if cut.last < starts.get(name, EARLIEST)]
        for name, last in each(beyond, lambda name: self._segment(name).last()).items():
            if last < starts[name]:
                raise OffsetOutOfRange(
                    f"{name}: the read starts after {starts[name].text}, but the last entry of the segment is {last.text}.",
                    advice="The offset is of another cluster, or the topic was deleted and created again: start with a new "
                    "checkpoint, or other startingOffsets.",
                )

    def check_kept(self, starts: Mapping[str, Position]) -> None:
        """Raise DataLoss if retention may have removed entries after a start. A read from the beginning of a segment (EARLIEST)
        begins at the first entry that is kept, so it loses nothing. A subscription keeps the last entry that was read
        (`pulsar_protocol.subscription.all_but`), so its ledger is not gone.
        """
        places = {name: place for name, place in starts.items() if place != EARLIEST}
        for name, before in each(places, lambda name: self._segment(name).before_first()).items():
            if places[name].ledger < before.ledger:
                raise DataLoss(
                    f"{name}: the read starts after {places[name].text}, but the first position that is kept is {before.ledger}:0. "
                    "Entries between them may be lost.",
                    advice="Start a new checkpoint with startingOffsets=earliest, or go on without them with failOnDataLoss=false.",
                )

    def first_after(self, starts: Mapping[str, Position]) -> dict[str, tuple[Position, int, int]]:
        """Return the first entry after each position: its position, how many messages it has, and its size in bytes."""

        def first(name: str) -> tuple[Position, int, int]:
            found = self._segment(name).first_after(starts[name])
            return found.position, found.count, found.size

        return each(starts, first)

    def _check_names(self, places: Mapping[str, Position], cuts: Mapping[str, Cut]) -> None:
        if strange := sorted(places.keys() - cuts.keys()):
            raise OffsetOutOfRange(
                f"{strange[0]} is no segment of {self._topic} now; its segments are {', '.join(sorted(cuts))}.",
                advice="Leave it out of the offsets.",
            )

    def _segment(self, name: str) -> Segment:
        return Segment(self._client, name, self._patience)
