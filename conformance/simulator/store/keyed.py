"""Part files with keyed rows in a simulated world. A file lists its rows, so that the part can be divided."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from conformance.simulator.store.storage import GatedStorage
from ledgers.model import Part
from metadata.records.names import key_hash
from metadata.topics.routing import Target

COLUMN = "key"
KEYS = ("a", "b", "c", "d", "e", "f", "g", "h", "l")
"""The keys of all rows. There are few, so that each key has many rows. The hashes of four or five keys lie in each half of the hash
range.
"""
Keyed = tuple[str, str]
"""A row: its id and its key."""


def content(rows: Sequence[Keyed]) -> bytes:
    return json.dumps(rows).encode()


@lru_cache(20_000)
def rows_of(path: str, data: bytes) -> tuple[tuple[str, str | None], ...]:
    """Return (id, key) of each row of a part. A part without keyed rows counts as one row with its path as id."""
    return tuple((name, key) for name, key in json.loads(data)) if data[:1] == b"[" else ((path, None),)


@lru_cache(64)
def place(key: str) -> int:
    return key_hash(key.encode())


def by_segment(rows: Sequence[Keyed], to: Sequence[Target]) -> Mapping[str, list[Keyed]]:
    """Return the rows of each segment, in their order. `to`: the segments and their hash ranges."""
    found: dict[str, list[Keyed]] = {}
    for row in rows:
        at = place(row[1])
        segment = next(target.segment for target in to if target.hash_range.start <= at <= target.hash_range.end)
        found.setdefault(segment, []).append(row)
    return found


def part_of(path: str, rows: Sequence[Keyed]) -> Part:
    return Part(path, len(rows), len(content(rows)), 0, (len(rows),), 0)


class Dividing:
    """Divides a part with keyed rows among segments, as `metadata.write.rerouting.Rewriting` does with real parts. Reading the part
    is a step, and so is writing each new part.
    """

    def __init__(self, storage: GatedStorage, unique: Callable[[], str]) -> None:
        self._storage, self._unique = storage, unique

    def __call__(self, part: Part, segment: str, key: str, to: Sequence[Target]) -> list[tuple[str, Part]]:
        rows = [(name, found) for name, found in rows_of(part.path, self._storage.read(part.path)) if found is not None]
        made = []
        for target, own in by_segment(rows, to).items():
            path = f"parts/rewritten/0/{self._unique()}/0.parquet"
            self._storage.publish(path, content(own))
            made.append((target, part_of(path, own)))
        return made
