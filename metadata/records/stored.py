"""The content of a metadata store: records with versions and index entries (protocol.md section 3)."""

from __future__ import annotations

from typing import NamedTuple

from metadata.records.paths import Key, sequence_number


class IndexEntry(NamedTuple):
    """An index entry of a record. The put or append of the record declares the entry. The entry changes atomically with the record.
    `name`: the name of the index. `key`: the key by which range scans of the index find the record.
    """

    name: str
    key: str


class Record(NamedTuple):
    """A record as a view or a write returns it. `value` is never empty. A new record has version 0, and each later put adds 1 to
    the version.
    """

    key: Key
    value: bytes
    version: int
    indexes: tuple[IndexEntry, ...] = ()

    @property
    def number(self) -> int:
        """Return the number that the store gave to a record of a sequence, such as the log. The path ends in this number."""
        return sequence_number(self.key.path)
