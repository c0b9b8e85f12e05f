"""Faults of ranges, indexes and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

from conformance.store.faults.planting import Sound, SoundView, planted, planted_view
from metadata.records.paths import Key, KeyRange
from metadata.store.contract import Put, Record, Write

TOP = "\U0010ffff"


@planted_view("indexes/index-ranges-are-exact")
class IndexScanByPrefix(SoundView):
    """An index scan also returns the index keys that begin with the last key of its range (A14)."""

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        return self.view.scan_index(index, first, last + TOP)


@planted_view("ranges/keys-are-exact-and-in-order")
class KeyRangeByPrefix(SoundView):
    """A range of keys also returns the keys that begin with its last key (A14)."""

    def scan(self, within: KeyRange) -> list[Record]:
        return self.view.scan(within._replace(last=within.last + TOP))


@planted_view("indexes/index-ranges-are-exact")
class IndexEndExclusive(SoundView):
    """An index scan leaves out the last index key of its range."""

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        at_the_end = self.view.scan_index(index, last, last)
        return [record for record in self.view.scan_index(index, first, last) if record not in at_the_end]


@planted_view("ranges/keys-are-exact-and-in-order")
class RangeEndExclusive(SoundView):
    """A range of keys leaves out its last key."""

    def scan(self, within: KeyRange) -> list[Record]:
        return [record for record in self.view.scan(within) if record.key.path != within.last]


@planted_view("indexes/index-names-are-exact")
class IndexNamesIgnoreCase(SoundView):
    """Indexes whose names differ only in case are the same index."""

    def scan_index(self, index: str, first: str, last: str) -> list[Record]:
        return [
            record for name in dict.fromkeys([index.lower(), index.upper()]) for record in self.view.scan_index(name, first, last)
        ]


@planted_view("ranges/any-calls-leave-what-the-model-says")
class OrderByLength(SoundView):
    """Lists are ordered by the length of the paths, and by their bytes only if the length is the same."""

    def scan(self, within: KeyRange) -> list[Record]:
        return sorted(self.view.scan(within), key=lambda record: (len(record.key.path), record.key.path))


@planted_view("ranges/a-range-over-all-partitions-keeps-each-records-own")
class OneShardOnly(SoundView):
    """A scan over all partition keys reads only one of four servers (A15)."""

    def scan(self, within: KeyRange) -> list[Record]:
        return [r for r in self.view.scan(within) if within.partition or crc32(r.key.partition.encode()) % 4 == 0]


@planted_view("records/another-partition-key-finds-nothing")
class PartitionIgnored(SoundView):
    """A get ignores the partition key, and so finds a record of another partition key."""

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return [next(iter(self.view.scan(KeyRange(key.path, key.path, ""))), None) for key in keys]


@planted_view("records/many-records-in-one-call-come-in-the-order-asked")
class AnswersInKeyOrder(SoundView):
    """A get of many keys returns its answers in the order of the keys, not in the order of the request."""

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        return self.view.get_many(sorted(keys))


@planted("indexes/a-put-replaces-the-entries-and-a-delete-removes-them")
class IndexEntryLeftAfterReplace(Sound):
    """A put adds its index entries, and the old entries of the record stay."""

    def write(self, *writes: Write) -> list[Record | None]:
        return self.store.write(*(self._with_old(write) for write in writes))

    def _with_old(self, write: Write) -> Write:
        old = self.store.view().get(write.key) if isinstance(write, Put) else None
        return (
            write._replace(indexes=tuple(dict.fromkeys([*old.indexes, *write.indexes])))
            if old and isinstance(write, Put)
            else write
        )
