"""Sets of rows of one segment, as ranges. Acknowledgements, claims and cursors consist of such sets (protocol.md section 7). Pure:
no I/O, no clock.

A row is (ledgerId, entryId, batchIndex), ordered lexicographically. This module does not know how many rows an entry has, or how
many entries a ledger has. So the end of a range is exclusive. The range of a whole entry ends at row 0 of the next entry. The range
of a whole ledger ends at entry 0 of the next ledger.

Records, and messages for people, have ranges as texts. In these texts both ends are inclusive: `5:2` (the whole entry), `5:2:7`
(one row), `5` (the whole ledger), `5:2:7..9:0` (from row `5:2:7` to the end of entry `9:0`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """The position of a row, or the boundary just before that row."""

    ledger_id: int
    entry_id: int
    batch_index: int


Span = tuple[Row, Row]
"""A range of rows: its first row, and the boundary after its last row."""
Rows = tuple[Span, ...]
"""A set of rows: spans in ascending order. No span is empty. They neither overlap nor touch."""

FIRST = Row(0, 0, 0)
NONE: Rows = ()

_TEXT = re.compile(r"([0-9]{1,19})(?::([0-9]{1,19})(?::([0-9]{1,19}))?)?")


def rows(spans: Iterable[Span]) -> Rows:
    """Return the rows of all given spans. The spans may be in any order, overlap, or be empty."""
    found: list[Span] = []
    for first, end in sorted(spans):
        if end <= first:
            continue
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((first, end))
    return tuple(found)


def union(*sets: Rows) -> Rows:
    return rows(span for each in sets for span in each)


def common(one: Rows, other: Rows) -> Rows:
    """Return the rows in both sets. Linear in the number of spans."""
    found: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(other):
        first, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if first < end:
            found.append((first, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def minus(one: Rows, other: Rows) -> Rows:
    """Return the rows of `one` that are not in `other`. Linear in the number of spans."""
    found: list[Span] = []
    j = 0
    for first, end in one:
        at = first
        while j < len(other) and other[j][1] <= at:
            j += 1
        k = j
        while k < len(other) and other[k][0] < end:
            if at < other[k][0]:
                found.append((at, other[k][0]))
            at = max(at, other[k][1])
            k += 1
        if at < end:
            found.append((at, end))
    return tuple(found)


def before(end: Row) -> Rows:
    """Return all rows before a boundary."""
    return rows([(FIRST, end)])


def end_of(ledger_id: int, entry_id: int | None = None, batch_index: int | None = None) -> Row:
    """Return the boundary after a row, after a whole entry (no batchIndex) or after a whole ledger (no entryId)."""
    if entry_id is None:
        return Row(ledger_id + 1, 0, 0)
    return Row(ledger_id, entry_id + 1, 0) if batch_index is None else Row(ledger_id, entry_id, batch_index + 1)


def through_ledger(ledger_id: int) -> Rows:
    """Return all rows of the ledgers with an id at or below `ledger_id` as one range (0: no rows)."""
    return before(end_of(ledger_id)) if ledger_id else NONE


def span(ledger_id: int, entry_id: int | None = None, batch_index: int | None = None) -> Span:
    """Return the span of one row, one entry or one ledger."""
    return Row(ledger_id, entry_id or 0, batch_index or 0), end_of(ledger_id, entry_id, batch_index)


def last_of(end: Row) -> tuple[int, ...]:
    """Return the position just before a boundary. It is a row (three numbers), a whole entry (two) or a whole ledger (one)."""
    if end.batch_index:
        return end.ledger_id, end.entry_id, end.batch_index - 1
    return (end.ledger_id, end.entry_id - 1) if end.entry_id else (end.ledger_id - 1,)


def text(one: Span) -> str:
    last = last_of(one[1])
    first = tuple(one[0])
    depth = max(len(last), 3 if first[2] else 2 if first[1] else 1)
    begin, end = (":".join(map(str, numbers)) for numbers in (first[:depth], last))
    return begin if begin == end else f"{begin}..{end}"


def texts(given: Rows) -> list[str]:
    return [text(one) for one in given]


def parse(written: str) -> Span:
    """Parse the output of `text`. Raises ValueError."""
    begin, _, end = written.partition("..")
    first, last = _numbers(begin), _numbers(end or begin)
    found = span(*first)[0], end_of(*last)
    if found[1] <= found[0]:
        raise ValueError(f"{written!r} ends before it begins")
    return found


def parse_all(written: Iterable[str]) -> Rows:
    return rows(map(parse, written))


def _numbers(written: str) -> tuple[int, ...]:
    found = _TEXT.fullmatch(written)
    if not found:
        raise ValueError(f"{written!r} is not a position (ledger, ledger:entry or ledger:entry:index)")
    return tuple(int(number) for number in found.groups() if number is not None)
