"""Builds extents: adjacent rows of one compacted file are read together. Planning and reading then cost as much as for large parts,
independent of the number of original ledgers. An extent has the positions of its rows (`Marks`) only if the caller asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgers.model import CompactedPart, Ledger, Part

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Marks:
    """The entries to which the rows of an extent belong, in order. Each array has one value for each entry.

    starts      index of the entry's first row in the file
    ledgers     ledgerId of the entry
    entries     entryId of the entry
    publish_ms  publish time of the entry's ledger
    txns        transaction of the entry's ledger, or null
    """

    starts: Longs
    ledgers: Longs
    entries: Longs
    publish_ms: Longs
    txns: pa.Array

    def between(self, first_row: int, end: int) -> Marks:
        """Return the marks of the file's rows from `first_row` (inclusive) to `end` (exclusive)."""
        a = int(np.searchsorted(self.starts, first_row, "right")) - 1
        b = int(np.searchsorted(self.starts, end, "left"))
        return Marks(self.starts[a:b], self.ledgers[a:b], self.entries[a:b], self.publish_ms[a:b], self.txns.slice(a, b - a))

    def of(self, first_row: int, count: int) -> tuple[Longs, Longs]:
        """Return two arrays for `count` rows of the file from `first_row`: the index of each row's entry in these marks, and the
        row's index in this entry (batchIndex).
        """
        rows = np.arange(first_row, first_row + count, dtype=np.int64)
        index = np.searchsorted(self.starts, rows, "right") - 1
        return index.astype(np.int64), rows - self.starts[index]


@dataclass(frozen=True, eq=False)
class Extent:
    """Rows that are read together. An extent has the rows of one part, or adjacent rows of one compacted file.

    ledger, last     first and last ledgerId
    base             entryId of the first entry
    publish_ms, txn  publish time and transaction of the first ledger
    part             the part. For rows of a compacted file: a CompactedPart of these rows, with one entry for each row group that
                     has some of them
    marks            the entries of the rows of a compacted file, if requested
    """

    ledger: int
    last: int
    base: int
    publish_ms: int
    txn: str | None
    part: Part
    marks: Marks | None = None


def of_ledgers(ledgers: Iterable[Ledger], *, marks: bool) -> Iterator[Extent]:
    """Yield the rows of ledgers as extents, ascending. `marks`: whether extents of compacted files have `Marks`."""
    one = marked if marks else of_part
    return joined(one(ledger, base, part) for ledger in ledgers for base, part in based(ledger))


def based(ledger: Ledger) -> Iterator[tuple[int, Part]]:
    base = 0
    for part in ledger.parts:
        yield base, part
        base += len(part.entries)


def of_part(ledger: Ledger, base: int, part: Part) -> Extent:
    return Extent(ledger.id, ledger.id, base, ledger.publish_ms, ledger.txn, part)


def marked(ledger: Ledger, base: int, part: Part) -> Extent:
    if not isinstance(part, CompactedPart):
        return of_part(ledger, base, part)
    count = len(part.entries)
    starts = np.array([part.first_row, *(part.first_row + n for n in accumulate(part.entries))][:-1], np.int64)
    marks = Marks(
        starts,
        np.full(count, ledger.id, np.int64),
        np.arange(base, base + count, dtype=np.int64),
        np.full(count, ledger.publish_ms, np.int64),
        pa.array([ledger.txn] * count, pa.string()),
    )
    return replace(of_part(ledger, base, part), marks=marks)


def joined(found: Iterable[Extent]) -> Iterator[Extent]:
    """Join extents that are adjacent in a compacted file."""
    group: list[Extent] = []
    for one in found:
        if group and not _follows(group[-1].part, one.part):
            yield _together(group)
            group = []
        group.append(one)
    if group:
        yield _together(group)


def _follows(a: Part, b: Part) -> bool:
    return (
        isinstance(a, CompactedPart)
        and isinstance(b, CompactedPart)
        and a.path == b.path
        and a.first_row + a.rows == b.first_row
        and a.schema == b.schema
    )


def _together(group: list[Extent]) -> Extent:
    first = group[0]
    if not isinstance(first.part, CompactedPart):
        return first
    rows = sum(one.part.rows for one in group)
    entries = tuple(within(first.part.groups, first.part.first_row, first.part.first_row + rows))
    part = replace(first.part, rows=rows, bytes=sum(one.part.bytes for one in group), entries=entries)
    return replace(first, last=group[-1].last, part=part, marks=_all(group))


def within(groups: Iterable[int], first_row: int, end: int) -> Iterator[int]:
    """Yield, for each row group with rows in `first_row` to `end` (exclusive), the number of these rows."""
    start = 0
    for count in groups:
        shared = min(end, start + count) - max(first_row, start)
        if shared > 0:
            yield shared
        start += count


def _all(group: list[Extent]) -> Marks | None:
    marks = [one.marks for one in group if one.marks is not None]
    if not marks:
        return None
    return Marks(
        np.concatenate([m.starts for m in marks]),
        np.concatenate([m.ledgers for m in marks]),
        np.concatenate([m.entries for m in marks]),
        np.concatenate([m.publish_ms for m in marks]),
        pa.concat_arrays([m.txns for m in marks]),
    )
