"""Determine what a read must return: the committed rows of its range, and how far the range must reach (`Ranges.floor`)."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from conformance.history.format import Time, Told
from conformance.history.truth import NEVER, Batch, Truth
from conformance.history.words import topic_of

Cell = tuple[int, str | None, str]
"""A committed row: (number, segment, row id). The segment is None in a history without store records."""


class Expected(NamedTuple):
    """The committed rows of a range. `latest`: the time at which the last of these rows was committed."""

    cells: frozenset[Cell]
    latest: Time


class Touching(NamedTuple):
    """A registration with rows in the topics of a read. `at`: the time at which it appeared. `decided`, `committed`: the times at
    which it was decided and committed; NEVER if it was not.
    """

    number: int
    at: Time
    decided: Time
    committed: Time


class Ranges:
    """Determines what reads must return. `truth`: the committed data of the whole history."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._cells: list[tuple[int, Batch, list[tuple[Cell, str, str]]]] = []
        for number, batch in sorted(truth.committed.items()):
            places = [(row, batch.place(row)) for row in batch.rows]
            cells = [((number, p if truth.store else None, row.id), topic_of(p), p) for row, p in places]
            self._cells.append((number, batch, cells))
        self._known: dict[object, Expected] = {}
        self._touching: dict[tuple[str, ...], list[Touching]] = {}
        self._floors: dict[tuple[str, ...], _Floors] = {}
        self._nowhere = [] if truth.store else [b for b in truth.decided.values() if b.number is None and b.rows]
        self._doubts: list[tuple[Time, Time]] | None = None

    def expected(self, topics: tuple[str, ...], start: float, end: float, at: Time, segments: Iterable[str] | None) -> Expected:
        """Return the committed rows of the topics with start < number <= end. `at`: the time at which the read returned.
        `segments`: the segments that the read knew; None: unknown. Of a topic whose deletion began before `at`, only rows in these
        segments are returned.
        """
        gone = frozenset(t for t in topics if self._truth.deleted.get(t, NEVER) < at) if self._truth.deleted else frozenset()
        kept = frozenset(segments) if gone and segments is not None else None
        key = (topics, start, end, gone, kept)
        known = self._known.get(key)
        if known is None:
            cells: set[Cell] = set()
            latest: Time = 0
            for number, batch, found in self._cells:
                if start < number <= end:
                    some = {
                        cell
                        for cell, topic, place in found
                        if topic in topics and (topic not in gone or kept is None or place in kept)
                    }
                    if some:
                        cells |= some
                        latest = max(latest, batch.committed_at)
            known = self._known[key] = Expected(frozenset(cells), latest)
        return known

    def any_visible(self, topics: tuple[str, ...], start: int, end: int, began: Time, at: Time) -> int | None:
        """Return the first number with start < number <= end that a plan made from `began` to `at` should have found: it was
        committed before `at`, and has rows in the topics that were not trimmed during the plan (`Trims.ahead`). None if there is no
        such number.
        """
        ahead = partial(self._truth.trims.ahead, cut=end, began=began, at=at)
        for number, batch, found in self._cells:
            if start < number <= end and batch.committed_at < at and any(t in topics and not ahead(p) for _, t, p in found):
                return number
        return None

    def touching(self, topics: tuple[str, ...]) -> list[Touching]:
        """Return the registrations with rows in the topics, by number. Rows above the seal of their segment do not count."""
        known = self._touching.get(topics)
        if known is None:
            truth = self._truth
            known = self._touching[topics] = [
                Touching(
                    number,
                    found.first.at,
                    truth.decided_at(number),
                    truth.committed[number].committed_at if number in truth.committed else NEVER,
                )
                for number, found in sorted(truth.registered.items())
                if truth.where(number, topics)
            ]
        return known

    def floor(self, topics: tuple[str, ...], began: Time) -> int:
        """Return the highest committed number that a read which began at `began` must show, since it and all registrations below it
        were decided before; -1 if there is none.
        """
        if not self._truth.store:
            if topics not in self._floors:
                self._floors[topics] = self._claimed(topics)
            return self._floors[topics].at(began)
        best = -1
        for number, at, decided, committed in self.touching(topics):
            if at >= began or decided >= began:
                break
            if committed < began:
                best = number
        return best

    def unseen(self, topics: tuple[str, ...], began: Time, final: bool) -> list[Batch]:
        """Return the committed batches of which no read of the history returned a row, although a read that began at `began` must
        have shown them. Return an empty list if the history has store records. `final`: whether that read is a final one.
        """
        if not self._nowhere:
            return []
        self.floor(topics, began)
        limit = began if final else self._floors[topics].limit(began)
        return [b for b in self._nowhere if b.told_at < limit and any(topic_of(b.place(row)) in topics for row in b.rows)]

    def _claimed(self, topics: tuple[str, ...]) -> _Floors:
        """Return the floors (`floor`) of reads of these topics, in a history without store records.

        In general, a read must show each commit whose client was told "committed" before the read began. But suppose that the
        outcomes of some calls were unknown when the read began. Their transactions may be undecided, and the cut lies below the
        first undecided registration. So the read need only show the commits whose clients were told before the first of these
        calls began.
        """
        if self._doubts is None:
            self._doubts = _doubts(self._truth)
        told = [
            (batch.told_at, number)
            for number, batch, found in self._cells
            if batch.told_at < NEVER and (not found or any(topic in topics for _, topic, _ in found))
        ]
        return _Floors(self._doubts, sorted(told))


class _Floors:
    """The floors of reads in a history without store records. The floor of a read is the highest number that it must show.
    `doubts`: for each call, the times from and until which its outcome was unknown. `told`: for each commit, the time at which a
    client was first told, and the number.
    """

    def __init__(self, doubts: list[tuple[Time, Time]], told: list[tuple[Time, int]]) -> None:
        self._told = [at for at, _ in told]
        self._numbers = list(accumulate((number for _, number in told), max))
        self._changes: list[Time] = []
        self._first: list[Time] = []
        open_: list[tuple[Time, Time]] = []
        moments = sorted({moment for interval in doubts for moment in interval if moment < NEVER})
        begun = 0
        for moment in moments:  # `_first` gets the value that holds after `moment`, up to the next moment
            while begun < len(doubts) and doubts[begun][0] <= moment:
                heapq.heappush(open_, doubts[begun])
                begun += 1
            while open_ and open_[0][1] <= moment:
                heapq.heappop(open_)
            self._changes.append(moment)
            self._first.append(open_[0][0] if open_ else NEVER)

    def at(self, began: Time) -> int:
        told = bisect_left(self._told, self.limit(began))
        return self._numbers[told - 1] if told else -1

    def limit(self, began: Time) -> Time:
        """Return the time limit of a read that began at `began`. It must show each commit told to a client before the limit."""
        change = bisect_left(self._changes, began) - 1
        return min(began, self._first[change]) if change >= 0 else began


def _doubts(truth: Truth) -> list[tuple[Time, Time]]:
    """Return for each call the times at which it began and at which its outcome was certain. The outcome is certain after the
    call's own answer, unless this answer is "unknown". It is also certain after a later answer "committed" or "skipped" to another
    call for this version of the application or a higher one, because such an answer is given only after this call was fenced.
    """
    last: dict[tuple[str, str], list[tuple[int, Time]]] = {}
    for name, told in truth.told.items():
        call = truth.calls.get(name)
        if call is not None and told.said in ("committed", "skipped"):
            last.setdefault((call.app, call.topic), []).append((call.version, told.at))
    found = []
    for name, call in truth.calls.items():
        own = truth.told.get(name)
        over = own.at if own is not None and _certain(own) else NEVER
        later = (at for version, at in last.get((call.app, call.topic), ()) if version >= call.version and at > call.at)
        found.append((call.at, min([over, *later])))
    return sorted(found)


def _certain(told: Told) -> bool:
    return told.said != "unknown"
