"""Compaction with the simulator's own kind of part: the real choice, snapshots and CAS over files whose content is their path."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.simulator.storage import Disk
from ledgers.compaction import COMPACTED, Moved, Unit
from ledgers.model import CompactedPart, Part
from ledgers.snapshot_changes import place
from ledgers.storage import LedgerStorage


def joined(storage: LedgerStorage, folder: str, units: Sequence[Unit], *, name: str) -> Moved | None:
    """A compacted file says on each line which part its row came from. Every file that is put together must be there."""
    parts = [part for unit in units for part in unit.parts]
    lines = [lines_of(storage.read(part.path), part) for part in parts]
    data = "\n".join(line for some in lines for line in some).encode()
    path = f"{folder}/{COMPACTED}{name}-0.parquet"
    storage.publish(path, data)
    rows = sum(part.rows for part in parts)
    found, row = {}, 0
    for part in parts:
        found[place(part)] = CompactedPart(path, part.rows, part.bytes, 0, part.entries, part.schema, row, len(data), (rows,))
        row += part.rows
    return Moved(found, units[0].ledger, units[-1].last, len(units), sum(u.bytes for u in units), 1, len(data))


def lines_of(content: bytes, part: Part) -> list[str]:
    """Which part each row of a part came from."""
    if not isinstance(part, CompactedPart):
        return [part.path] * part.rows
    return content.decode().split("\n")[part.first_row : part.first_row + part.rows]


def origin(disk: Disk, part: Part) -> str:
    """The path that a part of one row had when it was registered. KeyError if its file is gone."""
    content, _ = disk.files[part.path]
    return lines_of(content, part)[0]
