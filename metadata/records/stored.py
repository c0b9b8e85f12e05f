"""The content of a metadata store: records with versions and index entries (protocol.md section 3)."""

from __future__ import annotations

from typing import NamedTuple

from metadata.records.paths import Key, sequence_number


class IndexEntry(NamedTuple):
    """An index entry, declared on a put; it changes atomically with the record. `name`: the index; `key`: compared by
    range scans.
    """

    name: str
    key: str


class Record(NamedTuple):
    """A record as read by a view or made by a write. `value` is never empty. Versions start at 0 when the key is created and count
    its puts.
    """

    key: Key
    value: bytes
    version: int
    indexes: tuple[IndexEntry, ...] = ()

    @property
    def number(self) -> int:
        """Return the number that the store gave to a record of a sequence (a log): the number at the end of its path."""
        return sequence_number(self.key.path)
