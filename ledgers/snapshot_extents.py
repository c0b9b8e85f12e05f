"""Extents of an index snapshot (see `ledgers.extents`), and the runs that a snapshot keeps of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ledgers import snapshots
from ledgers.extents import Extent, Longs, Marks, based, joined, marked, of_part
from ledgers.model import CompactedPart
from ledgers.snapshot_files import block_ledgers
from ledgers.snapshots import Run, SnapshotHead
from ledgers.storage import LedgerStorage


def of_snapshot(storage: LedgerStorage, head: SnapshotHead, after: int, through: int, *, marks: bool) -> Iterator[Extent]:
    """Yield the rows of the ledgers with after < id <= through as extents, ascending. `marks`: whether extents of compacted files
    have `Marks`. Raises CorruptSnapshot, StorageError.
    """
    return joined(_by_runs(storage, head, after, through, () if marks else head.runs, marks=marks))


def _by_runs(
    storage: LedgerStorage, head: SnapshotHead, after: int, through: int, runs: Sequence[Run], *, marks: bool
) -> Iterator[Extent]:
    """Yield the rows of the ledgers with after < id <= through as extents. A run that lies wholly in this range is one extent."""
    at = after
    for run in runs:
        if after < run.ledger and run.last <= through:
            yield from _of_records(snapshots.read_records(storage, head, at, run.ledger - 1), at, run.ledger - 1, marks=marks)
            known = (run.path, run.rows, run.bytes, run.crc, (run.rows,), run.schema, run.first_row, run.file_bytes, run.groups)
            part = CompactedPart(*known, stats=run.stats or None)
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
            made.append(Run(one.ledger, one.last, one.publish_ms, one.txn or "", *known, stats=part.stats or ""))
    return made


def _of_records(records: Iterable[dict[str, Any]], after: int, through: int, *, marks: bool) -> Iterator[Extent]:
    for record in records:
        if record.get("files") and 0 not in record["fileOf"]:
            yield from _of_columns(record, after, through, marks=marks)
        else:
            one = marked if marks else of_part
            for ledger in block_ledgers(record):
                if after < ledger.id <= through:
                    yield from (one(ledger, base, part) for base, part in based(ledger))


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
            stats=file.get("stats") or None,
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
