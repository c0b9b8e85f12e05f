"""The rows that each read had to return: the rows of its range, and the highest number that it could not miss."""

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
"""A committed row: (number, its segment if the store was recorded, row id)."""


class Expected(NamedTuple):
    """The rows of a range, and the time at which the last of them was committed."""

    cells: frozenset[Cell]
    latest: Time


class Touching(NamedTuple):
    """A registration that touches the topics of a read: the times at which it appeared and was decided."""

    number: int
    at: Time
    decided: Time
    committed: Time


class Ranges:
    """Answers questions about a complete truth."""

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
        """The committed rows with start < number <= end. If the deletion of the topic began before `at`, only rows in the segments
        known to the read.
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
        """The first number with start < number <= end that was committed before `at` with rows in the topics and not trimmed
        meanwhile (`Trims.ahead`).
        """
        ahead = partial(self._truth.trims.ahead, cut=end, began=began, at=at)
        for number, batch, found in self._cells:
            if start < number <= end and batch.committed_at < at and any(t in topics and not ahead(p) for _, t, p in found):
                return number
        return None

    def touching(self, topics: tuple[str, ...]) -> list[Touching]:
        """The registrations that touch the topics, by number; without those above the seal of their segment."""
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
        """The highest number that a read beginning then could not miss: all numbers up to it were decided before. -1: none."""
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
        """Without a recorded store: batches that a read beginning then could not miss, and that no read ever returned."""
        if not self._nowhere:
            return []
        self.floor(topics, began)
        limit = began if final else self._floors[topics].limit(began)
        return [b for b in self._nowhere if b.told_at < limit and any(topic_of(b.place(row)) in topics for row in b.rows)]

    def _claimed(self, topics: tuple[str, ...]) -> _Floors:
        """Without a recorded store: commits acknowledged before `began`, unless an earlier call was still in doubt at `began`."""
        if self._doubts is None:
            self._doubts = _doubts(self._truth)
        told = [
            (batch.told_at, number)
            for number, batch, found in self._cells
            if batch.told_at < NEVER and (not found or any(topic in topics for _, topic, _ in found))
        ]
        return _Floors(self._doubts, sorted(told))


class _Floors:
    """`at(began)`: the highest number acknowledged before the first call in doubt at `began`."""

    def __init__(self, doubts: list[tuple[Time, Time]], told: list[tuple[Time, int]]) -> None:
        self._told = [at for at, _ in told]
        self._numbers = list(accumulate((number for _, number in told), max))
        self._changes: list[Time] = []
        self._first: list[Time] = []
        open_: list[tuple[Time, Time]] = []
        moments = sorted({moment for interval in doubts for moment in interval if moment < NEVER})
        begun = 0
        for moment in moments:  # valid from just after this moment up to the next one
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
        """Commits acknowledged before this moment could not be missed by a read that began at `began`."""
        change = bisect_left(self._changes, began) - 1
        return min(began, self._first[change]) if change >= 0 else began


def _doubts(truth: Truth) -> list[tuple[Time, Time]]:
    """For each call the time from its invocation until its outcome was certain: by its own answer, or by a later answer for its
    version or a higher one of its application (given only after this call was fenced).
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
