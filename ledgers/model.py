"""The elements of a ledger: immutable values in registrations and index snapshots (protocol.md section 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

UNASSIGNED = -1
"""The schema id of a staged part. The commit replaces it by the id of the topic's evolved schema."""
MOST_STATISTICS = 640
"""Maximum length of the statistics of a part."""
TARGET_BYTES = 128 << 20
"""Approximate size of a compacted file."""


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file, written once by one task for one segment.

    path     relative to the ledger root, `/`-separated
    rows     number of rows, at least 1
    bytes    length of the file
    crc      CRC-32 of the Parquet footer (the metadata encoded with Thrift), unsigned
    entries  rows of each entry in order; an entry is a row group when first written
    schema   id of the topic schema that the part was written with
    stats    the statistics of its file (`ledgers.part_statistics`), or None
    """

    path: str
    rows: int
    bytes: int
    crc: int
    entries: tuple[int, ...]
    schema: int
    stats: str | None = field(default=None, kw_only=True)

    def __reduce__(self) -> tuple[Callable[..., Part], tuple[object, ...]]:
        """Pickle fast: Spark's tasks get thousands of parts, and the default for `slots` dataclasses is four times as slow."""
        known = (self.path, self.rows, self.bytes, self.crc, self.entries, self.schema)
        return (Part, known) if self.stats is None else (_with_statistics, (Part, self.stats, *known))

    def bare(self) -> Part:
        """Return the part without its statistics, which only the plan of a read uses."""
        return self if self.stats is None else replace(self, stats=None)


@dataclass(frozen=True, slots=True)
class CompactedPart(Part):
    """A part whose rows compaction has moved into a larger file.

    `rows`, `bytes`, `entries` and `schema` are those of the registered part, so positions and limits do not change. `path`,
    `crc` and `stats` are those of the larger file.

        first_row   index of the part's first row in the larger file, from 0
        file_bytes  length of the larger file
        groups      rows of each row group of the larger file, in order
    """

    first_row: int
    file_bytes: int
    groups: tuple[int, ...]

    def __reduce__(self) -> tuple[Callable[..., Part], tuple[object, ...]]:
        own = (self.path, self.rows, self.bytes, self.crc, self.entries, self.schema)
        known = (*own, self.first_row, self.file_bytes, self.groups)
        return (CompactedPart, known) if self.stats is None else (_with_statistics, (CompactedPart, self.stats, *known))


def _with_statistics(kind: type[Part], stats: str, *known: object) -> Part:
    return kind(*known, stats=stats)  # type: ignore[arg-type]


_LONG = 2**63


def check(part: Part) -> None:
    """Raise ValueError for an impossible part. Parts come from records and files that may be damaged."""
    if type(part.path) is not str or not part.path:
        raise ValueError("a part has no path")
    numbers = (part.rows, part.bytes, part.crc, part.schema, *part.entries)
    if any(type(number) is not int or not -1 <= number < _LONG for number in numbers):
        raise ValueError(f"the part {part.path:.200} has an impossible number")
    if part.rows < 1 or part.bytes < 0 or part.crc < 0 or min(part.entries, default=0) < 1 or sum(part.entries) != part.rows:
        raise ValueError(f"the part {part.path:.200} has {part.rows} rows in entries of {part.entries[:10]}")
    if part.stats is not None:
        check_statistics(part.stats)
    if isinstance(part, CompactedPart):
        _check_place(part)


def check_statistics(stats: object) -> None:
    """Raise ValueError for what cannot be statistics. (`ledgers.part_statistics.decode` checks them whole as they are used.)"""
    if type(stats) is not str or len(stats) > MOST_STATISTICS or not stats.isascii():
        raise ValueError(f"statistics that are no text of at most {MOST_STATISTICS} characters")


def _check_place(part: CompactedPart) -> None:
    numbers = (part.first_row, part.file_bytes, *part.groups)
    if any(type(number) is not int or not 0 <= number < _LONG for number in numbers):
        raise ValueError(f"the part {part.path:.200} has an impossible number")
    if part.first_row + part.rows > sum(part.groups):
        raise ValueError(f"the part {part.path:.200} has rows beyond the {sum(part.groups)} rows of its file")


@dataclass(frozen=True)
class Ledger:
    """The parts that one registration adds to one segment. `id` is the registration's number in the log."""

    id: int
    publish_ms: int
    txn: str | None
    parts: tuple[Part, ...]

    @cached_property
    def rows(self) -> int:
        return sum(p.rows for p in self.parts)

    @cached_property
    def bytes(self) -> int:
        return sum(p.bytes for p in self.parts)

    @cached_property
    def last_entry(self) -> int:
        """Return the highest entryId: entries are counted from 0 over the parts in order."""
        return sum(len(p.entries) for p in self.parts) - 1
