"""Reads rows with their positions, entry by entry, for programs without Spark. Compaction does not change the positions."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledgers.model import CompactedPart
from ledgers.storage import LedgerStorage
from metadata.read.segment_view import SegmentView
from metadata.records.names import is_persistent, segment_name, topic_of
from spark_txn_source.planned import Piece
from spark_txn_source.tasks import Filled, OfEntry, entries, with_place


class EntryRows(NamedTuple):
    """Consecutive rows of one entry. `first_row`: the index of the first of these rows in the entry. `of`: how many rows the whole
    entry has. `publish_ms`, `txn`: the publish time and the transaction of the ledger.
    """

    segment: str
    ledger: int
    entry: int
    first_row: int
    of: int
    publish_ms: int
    txn: str | None
    batch: pa.RecordBatch


def with_metadata(rows: EntryRows, output: pa.Schema) -> pa.RecordBatch:
    """Return the rows with metadata columns. `output`: all columns of the result."""
    place = OfEntry(rows.segment, rows.ledger, rows.entry, rows.first_row, rows.publish_ms, rows.txn)
    return with_place(rows.batch, place, output)


def segment_order(segment: str) -> tuple[str, int]:
    """Return the sort key of the rows of one transaction: topic by topic, segment by segment. The segment of a migrated topic comes
    before the successor's other segments.
    """
    return str(topic_of(segment)), -1 if is_persistent(segment) else segment_name(segment).segment_id


def in_order(
    storage: LedgerStorage,
    by_segment: Sequence[tuple[SegmentView, Iterator[Piece]]],
    wanted: pa.Schema,
    filled: Filled | None = None,
) -> Iterator[EntryRows]:
    """Yield the rows of several segments in the order of the log. Rows with the same log number are in the order of the segments.
    The pieces of compacted files must have `marks`, which give the positions of the rows.

    A file is opened when its first row is due. At most one file of each segment is open. `filled`: see `tasks.entries`. Raises
    CorruptPart, StorageError.
    """
    turns = (_turns(storage, i, segment, found, wanted, filled) for i, (segment, found) in enumerate(by_segment))
    for _, _, rows in heapq.merge(*turns, key=lambda turn: turn[:2]):
        yield from rows


Turn = tuple[int, int, Iterator[EntryRows]]


def _turns(
    storage: LedgerStorage, place: int, segment: SegmentView, found: Iterator[Piece], wanted: pa.Schema, filled: Filled | None
) -> Iterator[Turn]:
    """Yield a tuple for each ledger of a segment: the ledger's log number, the index of the segment, and an iterator of the
    ledger's rows. The caller must read these rows before it takes the next tuple.
    """
    for piece in found:
        ledgers = [piece.ledger] if piece.marks is None else np.unique(piece.marks.ledgers).tolist()
        source = entry_rows(storage, piece, wanted, filled)
        held: list[EntryRows] = []
        for ledger in ledgers:
            yield segment.number(ledger), place, _of(ledger, source, held)


def _of(ledger: int, source: Iterator[EntryRows], held: list[EntryRows]) -> Iterator[EntryRows]:
    """Yield the rows of one ledger from the source. To find the end of the ledger, the function also takes the first rows of the
    next ledger from the source. It puts these rows into `held`, and the call for the next ledger yields them first.
    """
    while (one := held.pop() if held else next(source, None)) is not None:
        if one.ledger != ledger:
            held.append(one)
            return
        yield one


def entry_rows(storage: LedgerStorage, piece: Piece, wanted: pa.Schema, filled: Filled | None = None) -> Iterator[EntryRows]:
    """Yield the rows of a piece in order, with the columns `wanted`. Raises CorruptPart, StorageError."""
    for found in entries(storage, piece, wanted, filled):
        if piece.marks is None:
            entry, of = piece.base + found.entry, piece.part.entries[found.entry]
            yield EntryRows(piece.segment, piece.ledger, entry, found.first_row, of, piece.publish_ms, piece.txn, found.batch)
            continue
        assert isinstance(piece.part, CompactedPart)
        first = piece.part.first_row + sum(piece.part.entries[: found.entry]) + found.first_row
        yield from _marked(piece, first, found.batch)


def _marked(piece: Piece, first: int, batch: pa.RecordBatch) -> Iterator[EntryRows]:
    """Yield the rows of a compacted file, divided by entries. `first`: the index of the batch's first row in the file."""
    marks, part = piece.marks, piece.part
    assert marks is not None
    assert isinstance(part, CompactedPart)
    index, inside = marks.of(first, batch.num_rows)
    cuts = np.flatnonzero(np.diff(index, prepend=-1)).tolist()
    for at, end in zip(cuts, [*cuts[1:], batch.num_rows], strict=True):
        i = int(index[at])
        stop = int(marks.starts[i + 1]) if i + 1 < len(marks.starts) else part.first_row + part.rows
        yield EntryRows(
            piece.segment,
            int(marks.ledgers[i]),
            int(marks.entries[i]),
            int(inside[at]),
            stop - int(marks.starts[i]),
            int(marks.publish_ms[i]),
            marks.txns[i].as_py(),
            batch.slice(at, end - at),
        )
