"""Finds how far a topic can be read so that the read splits no transaction of txnsegment's writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pulsar_protocol.client import PulsarClient
from pulsar_protocol.cut import Cut, Segment
from pulsar_protocol.layout import EARLIEST, Layout, Position
from pulsar_protocol.sent_log import Settled
from pulsar_protocol.sent_reader import SentLog
from pulsar_protocol.succession import children, ended_at
from pulsar_protocol.whole_transactions import Child


@dataclass(frozen=True)
class Newest:
    """How far a topic can be read now. `positions`: the greatest cut that splits no transaction of txnsegment's writers, and has
    entries of a child only if it has all entries of the child's parents. It has all segments of the topic, without those that were
    given as ended and without a start: they are read to their ends. `ended`: the segments that have ended at the start of the read
    (`succession`). `children`: the segments with an ancestor that has not ended at the start of the read.
    """

    positions: Mapping[str, Position]
    ended: frozenset[str]
    children: Mapping[str, Child]


class WholeCuts:
    """Finds the cuts of one topic that split no transaction of txnsegment's writers. `layout_now` asks for the topic's layout."""

    def __init__(self, sent: SentLog, layout_now: Callable[[], Layout]) -> None:
        self.sent, self._layout_now = sent, layout_now

    def starts(self, layout: Layout, positions: Mapping[str, Position]) -> dict[str, Position]:
        """Return the greatest cut at or below these positions that splits no transaction, for a read that starts after the cut."""
        hidden = self._catch_up(layout)
        found = self.sent.whole({**hidden, **positions})
        return {name: found[name] for name in positions}

    def newest(self, layout: Layout, starts: Mapping[str, Position], ended: frozenset[str], cuts: Mapping[str, Cut]) -> Newest:
        """Return how far the topic can be read. `starts`: the positions after which segments are read. A segment without a start is
        read from its beginning. `ended`: segments that are known to have ended at the start. `cuts`: the cuts of the other
        segments, found after the layout was read. A segment without a cut is not read.
        """
        hidden = self._catch_up(layout)
        ended = ended_at(layout, ended, starts, cuts)
        names = [one.name for one in layout.segments.values() if one.name in starts or one.name not in ended]
        positions = {name: starts.get(name, EARLIEST) for name in names}
        positions |= {name: cut.position for name, cut in cuts.items()}
        born = children(layout, ended, starts, cuts)
        return Newest(self.sent.whole(hidden | positions, born), ended, born)

    def limited(self, newest: Newest, ends: Mapping[str, Position]) -> dict[str, Position]:
        """Return the least cut at or above `ends` that keeps the rules of `Newest.positions`. `newest`: what the last call of
        `newest` returned. No other call may come between the two.
        """
        return self.sent.limited(ends, newest.positions, newest.children)

    def _catch_up(self, layout: Layout) -> dict[str, Position]:
        """Read the new records of the writers' log (`sent_log`). Return EARLIEST for each segment that a record names, and
        that was made after the layout was read.
        """
        self.sent.catch_up()
        unknown = self.sent.segments - {one.name for one in layout.segments.values()}
        if not unknown:
            return {}
        newer = {one.name for one in self._layout_now().segments.values()}
        self.sent.forget_segments(unknown - newer)
        return dict.fromkeys(unknown & newer, EARLIEST)


def settled(client: PulsarClient, topic: str, sent: SentLog | None = None) -> Settled:
    """Return which records in the writers' log of a topic (`topic://..`) are settled now. Raises the error that the broker reports.
    `sent`: a new reader of the log (None: one is made here).

    The transactions of these records are at or below a cut that splits no transaction. All later cuts are at or above this cut, so
    no reader of the newest rows needs the records any more.
    """
    sent = sent or SentLog(client, topic)
    sent.skip_settled()
    layout = client.layout(topic)
    cuts = {one.name: Segment(client, one.name).cut(sealed=not one.active) for one in layout.segments.values()}
    newest = WholeCuts(sent, lambda: client.layout(topic)).newest(layout, {}, frozenset(), cuts)
    return Settled(sent.needed_after(newest.positions))
