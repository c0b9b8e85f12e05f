"""Divides the rows of one task among the segments of the topic, and the rows of a segment into entries. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import mmh3
import numpy as np

from pulsar_protocol.batches import Column
from pulsar_protocol.entries import Rows
from pulsar_protocol.errors import TopicTerminated
from pulsar_protocol.layout import RING, Bits, Layout


@dataclass
class _Waiting:
    """The rows of a segment that are not yet an entry. `size`: the bytes of their values and keys."""

    rows: list[Rows]
    count: int = 0
    size: int = 0

    def add(self, rows: Rows, size: int) -> None:
        if len(rows):
            self.rows.append(rows)
            self.count, self.size = self.count + len(rows), self.size + size


class Router:
    """Collects rows into entries for each active segment. The rows of a segment keep their order. Rows without a key go to one
    segment until an entry of this segment is full, and then to the next segment.

        router.route(rows)
        for segment, entry in router.full():    # the caller may call `adopt` within the loop
            ...
        router.rest()                           # the entries that are not full, at the end

    `start`: a number that decides which segment gets the first rows without a key.
    """

    def __init__(self, layout: Layout, bits: Bits, entry_bytes: int, entry_rows: int, start: int) -> None:
        self._shift = np.uint32(0 if bits == "low" else 16)
        self._entry_bytes, self._entry_rows = entry_bytes, entry_rows
        self._keyless = start
        self._use(layout, {})
        self._full: deque[tuple[str, Rows]] = deque()
        self.rows = 0

    def _use(self, layout: Layout, waiting: Mapping[str, _Waiting]) -> None:
        self._segments = [one.name for one in layout.active]
        if not self._segments:
            raise TopicTerminated(f"The topic {layout.topic} has no active segment.", advice="It was deleted; create it again.")
        self._place = np.zeros(RING + 1, np.uint16)
        """For each place on the ring, the number of its segment. The last element is for rows without a key."""
        for number, one in enumerate(layout.active):
            self._place[one.start : one.end + 1] = number
        self._turn(self._keyless)
        self._waiting = [waiting.get(name) or _Waiting([]) for name in self._segments]

    def _turn(self, number: int) -> None:
        """Let rows without a key go to another segment."""
        self._keyless = number % len(self._segments)
        self._place[RING] = self._keyless

    def route(self, rows: Rows) -> None:
        """Take rows. They must be plain."""
        if not len(rows):
            return
        self.rows += len(rows)
        spots, sizes = self._spots(rows), rows.sizes()
        loose, begin = bool((spots == RING).any()), 0
        while begin < len(rows):
            numbers = self._place[spots[begin:]]
            if loose:
                numbers = numbers[: self._until_turn(numbers, sizes[begin:])]
            self._collect(rows, begin, numbers, sizes)
            begin += len(numbers)

    def _spots(self, rows: Rows) -> Column:
        """Return the place on the ring of each row, and `RING` for rows without a key."""
        if rows.keys is None:
            return np.full(len(rows), RING, np.int32)
        keyed = np.array([key is not None for key in rows.keys], np.bool_)
        keys = [key for key in rows.keys if key is not None]
        hashes = np.fromiter(map(mmh3.mmh3_32_uintdigest, keys), np.uint32, len(keys))
        spots = np.full(len(rows), RING, np.int32)
        spots[keyed] = (hashes >> self._shift) & 0xFFFF
        return spots

    def _until_turn(self, numbers: Column, sizes: Column) -> int:
        """Return after how many of the next rows the rows without a key go to another segment. `numbers`: the segment of each of
        these rows, if rows without a key do not change their segment.
        """
        mine = np.flatnonzero(numbers == self._keyless)
        full = next(self._ends(sizes[mine], self._waiting[self._keyless]), None)
        return len(numbers) if full is None else int(mine[full - 1]) + 1

    def _collect(self, rows: Rows, begin: int, numbers: Column, sizes: Column) -> None:
        """Take the rows from `begin` on. `numbers`: the segment of each of these rows. Full entries are kept in the order of their
        last rows.
        """
        order, found = np.argsort(numbers, kind="stable") + begin, list[tuple[int, int, Rows]]()
        bounds = np.cumsum(np.bincount(numbers, minlength=len(self._segments))).tolist()
        for number, (first, last) in enumerate(zip([0, *bounds], bounds, strict=False)):
            mine, start, waiting = order[first:last], 0, self._waiting[number]
            places, parts = mine.tolist(), sizes[mine]
            for end in self._ends(parts, waiting):
                waiting.add(rows.take(places[start:end]), 0)
                found.append((places[end - 1], number, Rows.joined(waiting.rows)))
                waiting, start = _Waiting([]), end
            waiting.add(rows.take(places[start:]), int(parts[start:].sum()))
            self._waiting[number] = waiting
        for _, number, entry in sorted(found, key=lambda one: one[0]):
            self._full.append((self._segments[number], entry))
            if number == self._keyless:
                self._turn(number + 1)

    def _ends(self, sizes: Column, waiting: _Waiting) -> Iterator[int]:
        """Yield after how many of a segment's next rows an entry is full. `waiting`: the rows that are before them."""
        totals = np.cumsum(sizes)
        start, room, base = 0, self._entry_rows - waiting.count, -waiting.size
        while start < len(sizes):
            by_size = int(np.searchsorted(totals, base + self._entry_bytes)) + 1
            start = min(start + room, max(by_size, start + 1))
            if start > len(sizes):
                return
            yield start
            room, base = self._entry_rows, int(totals[start - 1])

    def full(self) -> Iterator[tuple[str, Rows]]:
        """Yield each entry that is full, as its segment and its rows, and remove it from this object."""
        while self._full:
            yield self._full.popleft()

    def rest(self) -> list[tuple[str, Rows]]:
        """Return all entries, also those that are not full, and remove them from this object."""
        full, waiting = [*self.full()], self._waiting
        self._waiting = [_Waiting([]) for _ in self._segments]
        return full + [(name, Rows.joined(one.rows)) for name, one in zip(self._segments, waiting, strict=True) if one.count]

    def gone(self, layout: Layout) -> list[str]:
        """Return the segments to which this object routes rows and which are not active in the layout."""
        names = {one.name for one in layout.active}
        return [name for name in self._segments if name not in names]

    def adopt(self, layout: Layout, refused: Mapping[str, Rows]) -> None:
        """Route by another layout from now on. The rows for segments that are not active any more are routed again. `refused`: for
        each sealed segment the rows that it has refused. They are routed before the rows for the same segment that this object has.
        """
        waiting = dict(zip(self._segments, self._waiting, strict=True))
        moved = {name: [refused[name]] if name in refused else [] for name in (*self.gone(layout), *refused)}
        full, self._full = self._full, deque()
        for name, entry in full:
            if name in moved:
                moved[name].append(entry)
            else:
                self._full.append((name, entry))
        self._use(layout, waiting)
        for name, parts in moved.items():
            for part in (*parts, *(waiting[name].rows if name in waiting else ())):
                self.rows -= len(part)
                self.route(part)
