"""Divides a read into pieces of files, and groups the pieces into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from ledgers.model import Ledger
from metadata.read.backlog import Left, pending
from metadata.read.segment_view import SegmentView
from metadata.records.row_ranges import NONE, Rows
from spark_txn_source.planned import Piece, of_extent


def large_pieces(segment: SegmentView, start: int, end: int, *, marks: bool) -> Iterator[Piece]:
    """Yield pieces with the visible rows of a segment with start < number <= end, in order. There is one piece for each part, or
    for each run of adjacent rows in a compacted file. `marks`: whether the pieces get marks, which give the positions of the rows.
    """
    for found in segment.extents(start, end, marks=marks):
        yield of_extent(segment.name, found)


def pieces(segment: SegmentView, start: int, end: int, *, marks: bool, done: Rows = NONE) -> Iterator[Piece]:
    """Yield pieces as `large_pieces` does, without the rows in `done`."""
    touched = segment.number(done[-1][1].ledger_id) if done else 0
    middle = min(max(start, touched), end)
    for ledger, left in pending(segment, done, start, middle):
        yield from _left_pieces(segment.name, ledger, left)
    yield from large_pieces(segment, middle, end, marks=marks)


def _left_pieces(segment: str, ledger: Ledger, left: Sequence[Left] | None) -> Iterator[Piece]:
    """Yield pieces with the unacknowledged rows of one ledger, part by part. `left`: these rows (None: all rows)."""
    bases = [0, *accumulate(len(part.entries) for part in ledger.parts)]
    if left is None:
        for base, part in zip(bases, ledger.parts, strict=False):
            yield Piece(segment, ledger.id, base, ledger.publish_ms, ledger.txn, part, 0, len(part.entries) - 1)
        return
    for number, first, last, row, stop in runs(left):
        yield Piece(segment, ledger.id, bases[number], ledger.publish_ms, ledger.txn, ledger.parts[number], first, last, row, stop)


def runs(left: Iterable[Left]) -> Iterator[tuple[int, int, int, int, int | None]]:
    """Join the unacknowledged rows of a ledger into few pieces: adjacent whole entries of one part become one piece. Yield each
    piece as a tuple (part, first, last, row, stop). `part` is the index of the part in the ledger. The other values are those of
    the fields of `Piece` with these names.
    """
    whole: tuple[int, int, int] | None = None
    for one in left:
        if whole is not None and (one.first, one.stop) == (0, one.of) and (one.part, one.entry) == (whole[0], whole[2] + 1):
            whole = (*whole[:2], one.entry)
            continue
        if whole is not None:
            yield (*whole, 0, None)
            whole = None
        if (one.first, one.stop) == (0, one.of):
            whole = (one.part, one.entry, one.entry)
        else:
            yield one.part, one.entry, one.entry, one.first, one.stop
    if whole is not None:
        yield (*whole, 0, None)


def split(found: Iterable[Piece], size: int) -> Iterator[Piece]:
    """Split pieces that are larger than `size` bytes. A part is split between entries, a compacted file between row groups."""
    for one in found:
        if one.bytes <= size or one.first == one.last:
            yield one
            continue
        part = one.part
        first, weight = one.first, 0
        for entry in range(one.first, one.last + 1):
            bytes_of = part.bytes * part.entries[entry] // max(1, part.rows)
            if entry > first and weight + bytes_of > size:
                yield one.narrowed(first, entry - 1)
                first, weight = entry, 0
            weight += bytes_of
        yield one.narrowed(first, one.last)


def packed(found: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Yield groups of consecutive pieces. A group has up to `size` bytes, or a single larger piece."""
    group: list[Piece] = []
    weight = 0
    for piece in found:
        if group and weight + piece.bytes > size:
            yield group
            group, weight = [], 0
        group.append(piece)
        weight += piece.bytes
    if group:
        yield group


def merged(groups: Iterable[list[Piece]], size: int) -> list[list[Piece]]:
    """Merge small groups, also groups of different segments, so that many small segments need few tasks. A merged group has at most
    a quarter of `size` bytes.
    """
    found: list[list[Piece]] = []
    weight = 0
    for group in groups:
        bytes_of = sum(p.bytes for p in group)
        if found and weight + bytes_of <= size // 4:
            found[-1].extend(group)
            weight += bytes_of
        else:
            found.append(list(group))
            weight = bytes_of
    return found
