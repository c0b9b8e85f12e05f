"""What a metadata store keeps: a record with its version and index entries (protocol.md section 3)."""

from __future__ import annotations

from typing import NamedTuple

from metadata.records.paths import Key, sequence_number


class IndexEntry(NamedTuple):
    """Declared on a put; changes atomically with the record. `name` says which index, `key` what range scans compare."""

    name: str
    key: str


class Record(NamedTuple):
    """What a view saw or a write made. `value` is never empty. Versions start at 0 and count the puts of one life of the key."""

    key: Key
    value: bytes
    version: int
    indexes: tuple[IndexEntry, ...] = ()

    @property
    def number(self) -> int:
        """The number of a record that a sequence append made."""
        return sequence_number(self.key.path)
