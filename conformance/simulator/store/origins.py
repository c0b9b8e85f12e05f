"""Compacted files of a simulated world. Each file lists the origin of all of its rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from conformance.simulator.store import keyed
from conformance.simulator.store.storage import Disk
from ledgers.compaction import COMPACTED, Moved, Unit
from ledgers.model import CompactedPart, Part
from ledgers.snapshot_changes import place
from ledgers.storage import LedgerStorage


class Origin(NamedTuple):
    """The origin of a row: the path of the part in which the row was registered, the row's name, and the row's key, if any."""

    path: str
    name: str
    key: str | None


def joined(storage: LedgerStorage, folder: str, units: Sequence[Unit], *, name: str) -> Moved | None:
    """Join the parts of these units into one compacted file. Each line of this file has the origin of one row. The files of all
    parts must exist.
    """
    parts = [part for unit in units for part in unit.parts]
    rows = [row for part in parts for row in rows_of(storage.read(part.path), part)]
    data = "\n".join(json.dumps(row) for row in rows).encode()
    path = f"{folder}/{COMPACTED}{name}-0.parquet"
    storage.publish(path, data)
    found, first = {}, 0
    for part in parts:
        known = (path, part.rows, part.bytes, 0, part.entries, part.schema)
        found[place(part)] = CompactedPart(*known, first, len(data), (len(rows),))
        first += part.rows
    return Moved(found, units[0].ledger, units[-1].last, len(units), sum(u.bytes for u in units), 1, len(data))


def rows_of(content: bytes, part: Part) -> list[Origin]:
    """Return the origins of the rows of a part. `content`: the content of its file. A file that does not list rows stands for as
    many rows as `part` says, all of the same name.
    """
    if isinstance(part, CompactedPart):
        return [Origin(*json.loads(line)) for line in lines_of(content, part)]
    found = [Origin(part.path, name, key) for name, key in keyed.rows_of(part.path, content)]
    return found * (part.rows if len(found) == 1 else 1)


def lines_of(content: bytes, part: CompactedPart) -> list[str]:
    return content.decode().split("\n")[part.first_row : part.first_row + part.rows]


def origin(disk: Disk, part: Part) -> str:
    """Return the path that a part of one row had when it was registered. Raises KeyError if its file is gone."""
    content, _ = disk.files[part.path]
    return rows_of(content, part)[0].path
