"""What must hold of the rows that a reader saw: nothing lost, doubled, split or out of order. Pure.

The input is made so that every row says where it belongs: `batch` (the transaction that wrote it), `of` (rows of that batch),
`seq` (its place among all rows), `key` (rows of one key are written in the order of `seq`).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

ROWS = 39
KEYS = 13


@dataclass(frozen=True, slots=True)
class Row:
    """One row as a reader saw it. `position`: ledgerId, entryId, batchIndex."""

    key: str
    seq: int
    batch: int
    of: int
    segment: str
    position: tuple[int, int, int]
    txn: str | None


def written(batch: int) -> list[tuple[str, int, int, int]]:
    """The (key, seq, batch, of) of one batch, in written order; several rows for each key."""
    first = batch * ROWS
    return [(f"key-{seq % KEYS}", seq, batch, ROWS) for seq in range(first, first + ROWS)]


def split(rows: Iterable[Row]) -> Iterator[str]:
    """Batches of which only a part was seen, that were doubled, or that came from more than one transaction."""
    by_batch: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_batch[row.batch].append(row)
    for batch, found in sorted(by_batch.items()):
        doubled = [seq for seq, times in Counter(r.seq for r in found).items() if times > 1]
        if doubled:
            yield f"batch {batch}: {len(doubled)} rows doubled, e.g. seq {doubled[0]}"
        seen = len({r.seq for r in found})
        if seen != found[0].of:
            yield f"batch {batch}: only {seen} of {found[0].of} rows seen"
        if len({r.txn for r in found}) != 1 or len({r.position[0] for r in found}) != 1:
            yield f"batch {batch}: rows of several transactions {sorted({str(r.txn) for r in found})}"


def disordered(rows: Iterable[Row]) -> Iterator[str]:
    """Keys whose rows do not lie in written order within their segment, by position, or that lie in two segments."""
    by_key: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_key[row.key].append(row)
    for key, found in sorted(by_key.items()):
        segments = {r.segment for r in found}
        if len(segments) > 1:
            yield f"key {key}: in several segments {sorted(segments)}"
        yield from _falling(f"key {key}", [r.seq for r in sorted(found, key=lambda r: r.position)])


def gaps(rows: Iterable[Row]) -> Iterator[str]:
    """Batches missing below one that was seen: one writer commits its batches in order."""
    seen = {r.batch for r in rows}
    missing = sorted(set(range(max(seen, default=-1) + 1)) - seen)
    if missing:
        yield f"batches {missing[:5]} are missing although batch {max(seen)} was seen"


def lost(rows: Iterable[Row], batches: int) -> Iterator[str]:
    """What is missing of batches 0 to `batches` - 1, and what was never written."""
    seen = {r.seq: r for r in rows}
    for batch in range(batches):
        for key, seq, _, of in written(batch):
            row = seen.pop(seq, None)
            if row is None:
                yield f"batch {batch}: row seq {seq} of key {key} is lost"
            elif (row.key, row.batch, row.of) != (key, batch, of):
                yield f"row seq {seq} is {row}, written was {(key, seq, batch, of)}"
    if seen:
        yield f"{len(seen)} rows that nobody wrote, e.g. {next(iter(seen.values()))}"


def complete(rows: Sequence[Row], batches: int) -> list[str]:
    """Everything that is wrong with a read after the end."""
    return [*split(rows), *disordered(rows), *lost(rows, batches)]


def partial(rows: Sequence[Row]) -> list[str]:
    """Everything that is wrong with one read in between, by a reader of everything so far."""
    return [*split(rows), *disordered(rows), *gaps(rows)]


def streamed(micro_batches: Sequence[Sequence[Row]]) -> list[str]:
    """Everything that is wrong with the micro-batches of one streaming reader, in the order in which it got them."""
    found = [f"micro-batch {i}: {what}" for i, rows in enumerate(micro_batches) for what in split(rows)]
    everything = [row for rows in micro_batches for row in rows]
    found += [*split(everything), *gaps(everything), *disordered(everything)]
    by_segment: dict[str, list[Row]] = defaultdict(list)
    for row in everything:
        by_segment[row.segment].append(row)
    for segment, rows in sorted(by_segment.items()):
        if any(a.position >= b.position for a, b in itertools.pairwise(rows)):
            found.append(f"{segment}: positions out of order over the micro-batches")
    return found


def vanished(before: Iterable[Row], after: Iterable[Row]) -> list[str]:
    """Rows that an earlier read saw and a later one did not, or saw elsewhere: what was visible once stays as it was."""
    gone = set(before) - set(after)
    return [f"{len(gone)} rows were visible and are not any more, e.g. {min(gone, key=lambda r: r.position)}"] if gone else []


def _falling(what: str, numbers: Sequence[int]) -> Iterator[str]:
    for before, after in itertools.pairwise(numbers):
        if after <= before:
            yield f"{what}: seq {after} comes after {before}"
