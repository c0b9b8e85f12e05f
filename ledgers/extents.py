"""Builds extents: adjacent rows of one compacted file are read together. Planning and reading then cost as much as for large parts,
independent of the number of original ledgers. An extent has the positions of its rows (`Marks`) only if the caller asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgers import snapshots
from ledgers.model import CompactedPart, Ledger, Part
from ledgers.snapshot_files import block_ledgers
from ledgers.snapshots import Run, SnapshotHead
from ledgers.storage import LedgerStorage

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
    one = _marked if marks else _run
    return _joined(one(ledger, base, part) for ledger in ledgers for base, part in _based(ledger))


def of_snapshot(storage: LedgerStorage, head: SnapshotHead, after: int, through: int, *, marks: bool) -> Iterator[Extent]:
    """Yield the rows of the ledgers with after < id <= through as extents, ascending. `marks`: whether extents of compacted files
    have `Marks`. Raises CorruptSnapshot, StorageError.
    """
    return _joined(_by_runs(storage, head, after, through, () if marks else head.runs, marks=marks))


def _by_runs(
    storage: LedgerStorage, head: SnapshotHead, after: int, through: int, runs: Sequence[Run], *, marks: bool
) -> Iterator[Extent]:
    """Yield the rows of the ledgers with after < id <= through as extents. A run that lies wholly in this range is one extent."""
    at = after
    for run in runs:
        if after < run.ledger and run.last <= through:
            yield from _of_records(snapshots.read_records(storage, head, at, run.ledger - 1), at, run.ledger - 1, marks=marks)
            part = CompactedPart(
                run.path, run.rows, run.bytes, run.crc, (run.rows,), run.schema, run.first_row, run.file_bytes, run.groups
            )
            yield Extent(run.ledger, run.last, 0, run.publish_ms, run.txn or None, part)
            at = run.last
    yield from _of_records(snapshots.read_records(storage, head, at, through), at, through, marks=marks)


LEAST = 64
"""Minimum difference between the first and the last ledgerId of a run. For shorter ranges, reading the ledgers is as fast."""


def runs_of(found: Iterable[Extent]) -> list[Run]:
    """Return the runs among extents. An extent of a compacted file is a run if its ledgerIds span at least LEAST and it shares no
    ledger with the previous or next extent. `found` must contain all rows of its ledgers.
    """
    some = list(found)
    made = []
    for k, one in enumerate(some):
        apart = (k == 0 or some[k - 1].last < one.ledger) and (k + 1 == len(some) or one.last < some[k + 1].ledger)
        part = one.part
        if isinstance(part, CompactedPart) and apart and one.last - one.ledger >= LEAST:
            known = (part.path, part.rows, part.bytes, part.crc, part.schema, part.first_row, part.file_bytes, part.groups)
            made.append(Run(one.ledger, one.last, one.publish_ms, one.txn or "", *known))
    return made


def _based(ledger: Ledger) -> Iterator[tuple[int, Part]]:
    base = 0
    for part in ledger.parts:
        yield base, part
        base += len(part.entries)


def _run(ledger: Ledger, base: int, part: Part) -> Extent:
    return Extent(ledger.id, ledger.id, base, ledger.publish_ms, ledger.txn, part)


def _marked(ledger: Ledger, base: int, part: Part) -> Extent:
    if not isinstance(part, CompactedPart):
        return _run(ledger, base, part)
    count = len(part.entries)
    starts = np.array([part.first_row, *(part.first_row + n for n in accumulate(part.entries))][:-1], np.int64)
    marks = Marks(
        starts,
        np.full(count, ledger.id, np.int64),
        np.arange(base, base + count, dtype=np.int64),
        np.full(count, ledger.publish_ms, np.int64),
        pa.array([ledger.txn] * count, pa.string()),
    )
    return replace(_run(ledger, base, part), marks=marks)


def _of_records(records: Iterable[dict[str, Any]], after: int, through: int, *, marks: bool) -> Iterator[Extent]:
    for record in records:
        if record.get("files") and 0 not in record["fileOf"]:
            yield from _of_columns(record, after, through, marks=marks)
        else:
            one = _marked if marks else _run
            for ledger in block_ledgers(record):
                if after < ledger.id <= through:
                    yield from (one(ledger, base, part) for base, part in _based(ledger))


def _of_columns(record: dict[str, Any], after: int, through: int, *, marks: bool) -> Iterator[Extent]:
    """Yield the extents of a block whose parts were all moved by compaction. No `Ledger` objects are made, because a block has many
    ledgers.
    """
    ids = np.cumsum(np.array(record["ids"], np.int64))
    publish = np.cumsum(np.array(record["publishMs"], np.int64))
    rows, sizes, schemas = (np.array(record[name], np.int64) for name in ("rows", "bytes", "schemas"))
    file_of, gaps = np.array(record["fileOf"], np.int64), np.array(record["gaps"], np.int64)
    owner = np.repeat(np.arange(len(ids)), np.array(record["partCounts"], np.int64))  # index of each part's ledger
    wanted = (ids[owner] > after) & (ids[owner] <= through)
    fresh = np.ones(len(rows), bool)  # True for a part that does not directly follow the previous part in the same file
    fresh[1:] = (file_of[1:] != file_of[:-1]) | (gaps[1:] != 0) | ~wanted[:-1] | (schemas[1:] != schemas[:-1])
    first_rows = _first_rows(rows, file_of, gaps)
    counts = np.array(record["entryCounts"], np.int64)
    entry_ends = np.cumsum(counts)
    bases = _bases(counts, owner)
    begins = np.flatnonzero(fresh & wanted)
    ends = np.append(np.flatnonzero(fresh | ~wanted), len(rows))
    for begin in begins.tolist():
        end = int(ends[np.searchsorted(ends, begin, "right")])
        file = record["files"][int(file_of[begin]) - 1]
        first, last = int(owner[begin]), int(owner[end - 1])
        total = int(rows[begin:end].sum())
        part = CompactedPart(
            file["path"],
            total,
            int(sizes[begin:end].sum()),
            file["crc"],
            (total,),
            int(schemas[begin]),
            int(first_rows[begin]),
            file["bytes"],
            tuple(file["groups"]),
        )
        found = None
        if marks:
            entry_rows = np.array(record["entries"][int(entry_ends[begin] - counts[begin]) : int(entry_ends[end - 1])], np.int64)
            of_part = np.repeat(np.arange(begin, end), counts[begin:end])
            starts = part.first_row + np.cumsum(entry_rows) - entry_rows
            within = np.arange(len(entry_rows)) - np.repeat(np.cumsum(counts[begin:end]) - counts[begin:end], counts[begin:end])
            of_ledger = owner[of_part]
            txns = pa.array([t or None for t in record["txns"]], pa.string()).take(pa.array(of_ledger))
            found = Marks(starts, ids[of_ledger], bases[of_part] + within, publish[of_ledger], txns)
        txn = record["txns"][first] or None
        yield Extent(int(ids[first]), int(ids[last]), int(bases[begin]), int(publish[first]), txn, part, found)


def _first_rows(rows: Longs, file_of: Longs, gaps: Longs) -> Longs:
    """Return the index of each part's first row in its file."""
    before = np.cumsum(rows) - rows + np.cumsum(gaps)
    begins = np.flatnonzero(np.append(True, file_of[1:] != file_of[:-1]))
    offset = before[begins] - gaps[begins]  # the first gap in a file counts from the first row of the file
    return before - np.repeat(offset, np.diff(np.append(begins, len(rows))))


def _bases(counts: Longs, owner: Longs) -> Longs:
    """Return the entryId of each part's first entry. Entries are counted over the parts of a ledger."""
    before = np.cumsum(counts) - counts
    begins = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
    return before - np.repeat(before[begins], np.diff(np.append(begins, len(counts))))


def _joined(found: Iterable[Extent]) -> Iterator[Extent]:
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
