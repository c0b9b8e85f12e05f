"""Changes the ledgers that an index snapshot lists: compaction moves parts, and retention trims ledgers.

A chain's files never change. Both changes write new files in place of the affected ones (unaffected blocks are copied unchanged)
and a new head. No record names the new files before the caller's CAS of the watermark record. Files that the new head no longer
names stay for the grace period. Then the orphan sweep deletes them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain

from ledgers import snapshot_extents, snapshots
from ledgers.model import CompactedPart, Ledger, Part
from ledgers.snapshot_files import Block, LedgerFile, encode_block, make_header, write_ledgers
from ledgers.snapshots import SUFFIX, SnapshotFile, SnapshotHead, open_file, write_head
from ledgers.storage import LedgerStorage

Place = tuple[str, int]
"""The place of a part's rows: the file, and the index of their first row in it."""


def place(part: Part) -> Place:
    """Return the place of a part, which identifies it in its segment until compaction moves it."""
    return part.path, part.first_row if isinstance(part, CompactedPart) else 0


def moved(
    storage: LedgerStorage, head: SnapshotHead, parts: Mapping[Place, CompactedPart], first: int, last: int, *, name: str
) -> str | None:
    """Write a new snapshot with the ledgers of `head`, in which the given parts of ledgers `first` to `last` are at their new
    places. Return the path of its head. Return None if all given parts were moved or trimmed meanwhile, so that none is at its old
    place.

    `name` is unique and begins with a letter or digit. Raises CorruptSnapshot, StorageError.
    """
    count = 0

    def change(ledger: Ledger) -> Ledger:
        nonlocal count
        now = tuple(parts.get(place(part), part) for part in ledger.parts)
        changed = sum(new is not old for new, old in zip(now, ledger.parts, strict=True))
        count += changed
        return replace(ledger, parts=now) if changed else ledger

    written = [
        _rewritten(storage, file, change, first, last, f"{_folder_of(head)}/{name}-{k}-ledgers{SUFFIX}")
        if file.last >= first and file.first <= last
        else file
        for k, file in enumerate(head.files)
    ]
    tail = [change(ledger) if first <= ledger.id <= last else ledger for ledger in head.tail]
    if not count:
        return None
    now = replace(head, files=tuple(written), tail=tuple(tail), runs=())
    runs = [run for run in head.runs if run.last < first or run.ledger > last]
    runs += snapshot_extents.runs_of(snapshot_extents.of_snapshot(storage, now, first - 1, last, marks=False))
    return write_head(storage, head.segment, head.watermark, written, tail, runs, name=name)


def trimmed(storage: LedgerStorage, head: SnapshotHead, through: int, *, name: str) -> str:
    """Write the snapshot that lists only the ledgers of `head` above `through`. Return the path of its head. Raises as `moved`."""
    kept: list[SnapshotFile] = []
    for k, file in enumerate(head.files):
        if file.first > through:
            kept.append(file)
        elif file.last > through:
            kept.append(_cut(storage, file, through, f"{_folder_of(head)}/{name}-{k}-ledgers{SUFFIX}"))
    tail = [ledger for ledger in head.tail if ledger.id > through]
    runs = [run for run in head.runs if run.ledger > through]
    return write_head(storage, head.segment, head.watermark, kept, tail, runs, name=name)


def _folder_of(head: SnapshotHead) -> str:
    return head.path.rpartition("/")[0]


def _rewritten(
    storage: LedgerStorage, file: SnapshotFile, change: Callable[[Ledger], Ledger], first: int, last: int, path: str
) -> SnapshotFile:
    """Write a ledger file with its ledgers `first` to `last` changed. Totals and order stay the same."""
    with open_file(storage, file) as opened:
        blocks: list[Block] = []
        changed: dict[int, bytes] = {}
        for k, (block, _) in enumerate(opened.current_blocks()):
            if block.last < first or block.first > last:
                blocks.append(block)
                continue
            ledgers = opened.ledgers(block.first - 1, block.last)
            after, changed[k] = encode_block([change(x) if first <= x.id <= last else x for x in ledgers])
            blocks.append(after)
        raws = (changed.get(k, raw) for k, (_, raw) in enumerate(opened.current_blocks()))
        return _written(storage, path, file, blocks, raws)


def _cut(storage: LedgerStorage, file: SnapshotFile, through: int, path: str) -> SnapshotFile:
    """Write a ledger file without its ledgers up to `through`."""
    with open_file(storage, file) as opened:
        blocks = [block for block, _ in opened.current_blocks()]
        at = next(k for k, block in enumerate(blocks) if block.last > through)
        rest = list(opened.ledgers(through, blocks[at].last))
        block, raw = encode_block(rest)
        lost = _totals(opened, through)
        left = replace(
            file,
            first=rest[0].id,
            ledgers=file.ledgers - lost[0],
            parts=file.parts - lost[1],
            rows=file.rows - lost[2],
            bytes=file.bytes - lost[3],
        )
        later = (raw for k, (_, raw) in enumerate(opened.current_blocks()) if k > at)
        return _written(storage, path, left, [block, *blocks[at + 1 :]], chain([raw], later))


def _totals(opened: LedgerFile, through: int) -> tuple[int, int, int, int]:
    """Return how many ledgers there are up to `through`, and how many parts, rows and bytes they have. A ledger without parts
    counts as one part.
    """
    ledgers = parts = rows = size = 0
    for ledger in opened.ledgers(-1, through):
        ledgers += 1
        parts += max(len(ledger.parts), 1)
        rows += ledger.rows
        size += ledger.bytes
    return ledgers, parts, rows, size


def _written(storage: LedgerStorage, path: str, file: SnapshotFile, blocks: list[Block], raws: Iterable[bytes]) -> SnapshotFile:
    header = make_header(path, blocks)
    write_ledgers(storage, path, header, raws)
    return replace(file, path=path, header_bytes=len(header.raw), crc=zlib.crc32(header.raw))


def listed(storage: LedgerStorage, head: SnapshotHead) -> Iterator[str]:
    """Yield the paths of the files that hold a snapshot's rows. If consecutive parts lie in one file, its path is yielded once.
    Raises CorruptSnapshot.
    """
    last = None
    for ledger in snapshots.read_ledgers(storage, head, -1, head.watermark[0]):
        for part in ledger.parts:
            if part.path != last:
                yield part.path
                last = part.path
