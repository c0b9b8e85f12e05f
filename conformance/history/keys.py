"""Judge the order of the rows of each key (invariant 13): it must be the order of writing, also across splits and merges."""

from __future__ import annotations

import re
from functools import lru_cache

from conformance.history.findings import Findings
from conformance.history.format import Poll, Read
from conformance.history.truth import Truth
from conformance.history.words import topic_of

_SEGMENT = re.compile(r".*/([0-9a-f]{4})-([0-9a-f]{4})-([0-9]+)")


class Keys:
    """Judges the order of the rows of each key: in one read, or in all micro-batches of one stream."""

    def __init__(self, truth: Truth, found: Findings) -> None:
        self._truth, self._found = truth, found
        self._last: dict[tuple[str, str], tuple[int, int, str]] = {}
        """(topic, key) -> the last row so far: its number, its place among the rows of its transaction, its segment."""
        self._index: dict[int, dict[str, int]] = {}

    def more(self, event: Read | Poll, who: str) -> None:
        """Judge further rows. They are sorted by position first, since the order in which tasks return rows does not matter."""
        last, found = self._last, self._found
        for row in sorted(event.rows, key=lambda r: r.position):
            if row.key is None:
                continue
            number, segment = row.position[0], row.segment
            at = self._place(number, row.id)
            name = (segment.rpartition("/")[0], row.key)
            before = last.get(name)
            last[name] = (number, at, segment)
            if before is None:
                continue
            spread = before[2] != segment and topic_of(segment) not in self._truth.unkeyed
            if spread and ((before[0] == number and not self._truth.spanning) or not follows(before[2], segment)):
                text = f"{who} got key {row.key} in {before[2]} ({before[0]}) and in {segment} ({number})"
                found.note("key in several segments", text, event)
            elif (number, at) < before[:2]:
                text = f"{who} got row {row.id} of key {row.key} ({number}, {at}) after ({before[0]}, {before[1]})"
                found.note("internal reorder", text, event)

    def _place(self, number: int, name: str) -> int:
        index = self._index.get(number)
        if index is None:
            batch = self._truth.committed.get(number)
            index = self._index[number] = {} if batch is None else {row.id: i for i, row in enumerate(batch.rows)}
        return index.get(name, -1)


@lru_cache(maxsize=4096)
def follows(parent: str, child: str) -> bool:
    """Return whether rows of a key of `parent` may come in `child` later: the hash ranges overlap, and `child` has a higher id."""
    first, second = _SEGMENT.fullmatch(parent), _SEGMENT.fullmatch(child)
    if first is None or second is None:
        return False
    return int(second[3]) > int(first[3]) and first[1] <= second[2] and second[1] <= first[2]
