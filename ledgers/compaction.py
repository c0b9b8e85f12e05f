"""Compaction: the rows of many small files of a segment become few large files, in the same order.

The files to merge are chosen from an index snapshot. The new files count once a snapshot names them (ledgers.snapshot_changes).
Positions do not change, because the new snapshot records in which rows of which file each part is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from ledgers.extents import within
from ledgers.model import TARGET_BYTES, CompactedPart, Ledger, Part
from ledgers.part_reader import read_part
from ledgers.part_statistics import decode
from ledgers.part_writer import PartWriter
from ledgers.snapshot_changes import Place, place
from ledgers.storage import LedgerStorage

MOST_PARTS = 65_536
"""Maximum number of parts in one merge; it bounds memory."""
GROUP_BYTES = 16 << 20
"""Approximate size of a row group of a compacted file. A row group is the smallest unit that a reader decodes or a task reads."""
COMPACTED = "compacted-"
"""Prefix of the names of compacted files; no other file has it."""
STAGED_BY = "compaction"
"""The staging id in the metadata of compacted files."""
JOINED_BYTES = 1 << 20
SMALL_BYTES = 1 << 20
AT_ONCE = 8


@dataclass(frozen=True)
class Policy:
    """The policy that selects files.

    target_bytes  approximate size of a compacted file; files of at least half this size are left alone
    min_files     adjacent small files are left alone if there are fewer of them than this
    grows         a file is rewritten only into a file with at least twice its rows. So the number of times that a row is rewritten
                  grows only with the logarithm of the rows
    """

    target_bytes: int = TARGET_BYTES
    min_files: int = 2
    grows: bool = False


@dataclass(frozen=True)
class Unit:
    """Consecutive parts of a snapshot that also follow each other in one file. Usually these are all parts that the snapshot lists
    in the file. `ledger`, `last`: the first and the last ledgerId of the parts.
    """

    ledger: int
    last: int
    parts: tuple[Part, ...]

    @property
    def bytes(self) -> int:
        """Return the size of the unit's parts within their file, in bytes."""
        first = self.parts[0]
        if not isinstance(first, CompactedPart):
            return first.bytes
        return first.file_bytes * sum(p.rows for p in self.parts) // max(1, sum(first.groups))

    @property
    def key(self) -> str | None:
        """Return the column by which all rows of the unit are known to have been routed, or None."""
        stats = self.parts[0].stats  # the parts of a unit of several are in one file, which has one text of statistics
        return None if stats is None else decode(stats, ()).key

    @property
    def whole(self) -> Part:
        """Return the rows of the unit's parts as one part, for reading."""
        first = self.parts[0]
        if not isinstance(first, CompactedPart):
            return first
        rows = sum(part.rows for part in self.parts)
        groups = tuple(within(first.groups, first.first_row, first.first_row + rows))
        return replace(first, rows=rows, entries=groups)


@dataclass(frozen=True)
class Moved:
    """The result of a merge: the new places of the parts, the first and last ledger (inclusive), and files and bytes before and
    after the merge.
    """

    parts: dict[Place, CompactedPart]
    first: int
    last: int
    files_before: int
    bytes_before: int
    files_after: int
    bytes_after: int

    def bare(self) -> Moved:
        """Return the result without the statistics of the new files."""
        return replace(self, parts={where: replace(part, stats=None) for where, part in self.parts.items()})


class Merge(Protocol):
    """A function that merges `Unit`s into files: `merged`, or the simulator's replacement."""

    def __call__(self, storage: LedgerStorage, folder: str, units: Sequence[Unit], *, name: str) -> Moved | None: ...


def groups(ledgers: Iterable[Ledger], policy: Policy) -> Iterator[list[Unit]]:
    """Yield the units to merge, one list for each new file, in order. `ledgers` are ascending and read lazily."""
    group: list[Unit] = []
    size = parts = 0
    for unit in _units(ledgers):
        small = unit.bytes * 2 < policy.target_bytes
        fits = size + unit.bytes <= policy.target_bytes and parts + len(unit.parts) <= MOST_PARTS
        if group and not (small and fits and group[-1].parts[0].schema == unit.parts[0].schema):
            yield from _worthwhile(group, policy)
            group, size, parts = [], 0, 0
        if small:
            group.append(unit)
            size += unit.bytes
            parts += len(unit.parts)
    yield from _worthwhile(group, policy)


def _worthwhile(group: list[Unit], policy: Policy) -> Iterator[list[Unit]]:
    """Yield the group if it has enough files. With `policy.grows`, a file with more than half of the group's rows is left out. The
    files before it are then judged as one group, and the files after it as another.
    """
    if len(group) < max(policy.min_files, 2):
        return
    if policy.grows:
        sizes = [unit.whole.rows for unit in group]
        largest = max(range(len(group)), key=sizes.__getitem__)
        if sizes[largest] * 2 > sum(sizes):
            yield from _worthwhile(group[:largest], policy)
            yield from _worthwhile(group[largest + 1 :], policy)
            return
    yield group


def _units(ledgers: Iterable[Ledger]) -> Iterator[Unit]:
    """Yield the parts of the ledgers as units, in order. Consecutive parts of a compacted file form one unit. Any other part is a
    unit by itself.
    """
    waiting: list[tuple[int, Part]] = []
    for ledger in ledgers:
        for part in ledger.parts:
            if waiting and not _continues(waiting[-1][1], part):
                yield Unit(waiting[0][0], waiting[-1][0], tuple(p for _, p in waiting))
                waiting = []
            waiting.append((ledger.id, part))
    if waiting:
        yield Unit(waiting[0][0], waiting[-1][0], tuple(p for _, p in waiting))


def _continues(a: Part, b: Part) -> bool:
    return (
        isinstance(a, CompactedPart)
        and isinstance(b, CompactedPart)
        and (a.path, a.schema) == (b.path, b.schema)
        and a.first_row + a.rows == b.first_row
    )


def merged(storage: LedgerStorage, folder: str, units: Sequence[Unit], *, name: str) -> Moved | None:
    """Write the rows of the `Unit`s, in order, into one new file under `folder`. Where the columns of a unit differ from those of
    the unit before it, a further file begins. Return None if no file has at least two units. Memory holds one row group. `name` is
    unique, of letters and digits.

    Raises CorruptPart (a file that does not match its record is never copied), StorageError. After an error no record names a file
    that this call wrote: such files are orphans.
    """
    outputs: list[_Output] = []
    try:
        for unit, batches in _read(storage, units):
            for batch in batches:
                if not outputs or not (outputs[-1].takes(unit, batch.schema)):
                    outputs.append(_Output(storage, folder, batch.schema, unit, f"{COMPACTED}{name}-{len(outputs)}"))
                outputs[-1].write(batch)
        return _moved([output for output in outputs if output.finish()])
    except BaseException:
        for output in outputs:
            output.discard()
        raise


def _moved(outputs: Sequence[_Output]) -> Moved | None:
    if not outputs:
        return None
    found: dict[Place, CompactedPart] = {}
    for output in outputs:
        file, row = output.file, 0
        for part in (part for unit in output.units for part in unit.parts):
            found[place(part)] = CompactedPart(
                file.path,
                part.rows,
                part.bytes,
                file.crc,
                part.entries,
                part.schema,
                row,
                file.bytes,
                file.entries,
                stats=file.stats,
            )
            row += part.rows
    units = [unit for output in outputs for unit in output.units]
    before, after = sum(unit.bytes for unit in units), sum(output.file.bytes for output in outputs)
    return Moved(found, units[0].ledger, units[-1].last, len(units), before, len(outputs), after)


class _Output:
    """A new compacted file, for units with the same columns of the same types in the same order."""

    def __init__(self, storage: LedgerStorage, folder: str, schema: pa.Schema, unit: Unit, name: str) -> None:
        self.units = [unit]
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0
        self._key = unit.key
        self._writer = PartWriter(
            storage,
            folder,
            schema,
            unit.parts[0].schema,
            staging_id=STAGED_BY,
            name_source=lambda: name,
            entry_bytes=GROUP_BYTES,
            key=self._key,
        )
        self._part: Part | None = None

    @property
    def file(self) -> Part:
        assert self._part is not None
        return self._part

    def takes(self, unit: Unit, schema: pa.Schema) -> bool:
        """Return whether rows of the unit can be written to this file. If so, add the unit to the units of the file. If not, the
        file gets no more rows, so write its waiting batches.
        """
        if not schema.equals(self._schema):
            self._flush()
            return False
        if unit is not self.units[-1]:
            self.units.append(unit)
            if unit.key != self._key:
                self._writer.unkeyed()
        return True

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a batch. Small batches are joined before they are written, because a row group of thousands of batches takes ten
        times as long to write.
        """
        self._waiting.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > JOINED_BYTES or len(self._waiting) >= 1000:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write(pa.concat_batches(self._waiting))
        self._waiting, self._bytes = [], 0

    def finish(self) -> bool:
        """Publish the file. If it has fewer than two units, discard it and return False."""
        if len(self.units) < 2:
            self.discard()
            return False
        self._flush()
        self._part = self._writer.close()
        return True

    def discard(self) -> None:
        self._waiting = []
        self._writer.discard()


def _read(storage: LedgerStorage, units: Sequence[Unit]) -> Iterator[tuple[Unit, Iterable[pa.RecordBatch]]]:
    """Yield the rows of each unit. Several small files are read in parallel, because a read mostly waits for the storage."""

    def rows(unit: Unit) -> Iterator[pa.RecordBatch]:
        where = f"ledgers {unit.ledger} to {unit.last}"
        return (found.batch for found in read_part(storage, unit.whole, where=where))

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="txnsegment-compact") as threads:
        for at in range(0, len(units), 4 * AT_ONCE):
            some = units[at : at + 4 * AT_ONCE]
            small = {id(u): threads.submit(list, rows(u)) for u in some if u.bytes <= SMALL_BYTES}
            for unit in some:
                yield unit, small.pop(id(unit)).result() if id(unit) in small else rows(unit)
