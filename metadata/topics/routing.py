"""Routing of rows to segments (protocol.md section 4), shared by the sink and the Python API.

The HIGH 16 bits of Murmur3_32 of a key's bytes decide its segment. (The bytes of a text are its UTF-8 encoding. The bytes of an
integer are its decimal text.) Rows without a key, or with a null key, go to one segment until an entry is about full. The next rows
go to the next segment, round robin. So a small write makes one part, and not one part for each segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ledgers.part_writer import ENTRY_BYTES, ENTRY_ROWS
from metadata.common.errors import SegmentSealed
from metadata.records.names import RING, HashRange, PersistentName
from metadata.topics.keys import check_key as check_key
from metadata.topics.keys import is_text, key_index

if TYPE_CHECKING:
    from metadata.topics.topic import Topic  # write tasks also import this module, and must not import the metadata store


class Target(NamedTuple):
    """An active segment as a target of rows: its full name and its range of the ring. Write tasks get the targets."""

    segment: str
    hash_range: HashRange


def targets(topic: Topic) -> tuple[Target, ...]:
    """Return the active segments of a topic in the order of their ranges. A persistent topic is one target for the whole ring."""
    if isinstance(topic.name, PersistentName):
        return (Target(str(topic.name), HashRange(0, RING - 1)),)
    return tuple(Target(topic.segment(info), info.range) for info in topic.active())


class Router:
    """Splits the batches of one writer by segment. The order of each segment's rows is kept.

        to                      the active segments (`targets(topic)`); they tile the ring
        key                     the key column's name; None: rows have no key
        schema                  the schema of every batch (after `ledgers.arrow.conform`)
        start                   a number, different in each task, that decides which segment first gets rows without a key
        entry_bytes, entry_rows  limits of an entry, at which rows without a key go on to the next segment

    Raises OptionError if the key column does not exist or has a type that cannot be a key. Raises SegmentSealed if `to` is empty.
    """

    def __init__(
        self,
        to: Sequence[Target],
        key: str | None,
        schema: pa.Schema,
        *,
        start: int = 0,
        entry_bytes: int = ENTRY_BYTES,
        entry_rows: int = ENTRY_ROWS,
    ) -> None:
        if not to:
            raise SegmentSealed("The topic has no active segment: it was deleted.", advice="Create it again, or write elsewhere.")
        self._segments = [t.segment for t in to]
        self._key = None if key is None else key_index(key, schema)
        self._entry_bytes, self._entry_rows = entry_bytes, entry_rows
        self._keyless = start % len(to)
        self._rows = self._bytes = 0
        if self._key is not None and len(to) > 1:
            self._place = _ring(to)

    def route(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the full name of each segment that gets rows, with these rows in order. If all rows of the batch go to one segment,
        they are not copied.
        """
        if not batch.num_rows:
            return
        if len(self._segments) == 1:
            yield self._segments[0], batch
        elif self._key is None:
            yield self._segments[self._without_key(batch.num_rows, batch.nbytes)], batch
        else:
            yield from self._by_key(batch, batch.column(self._key))

    def _by_key(self, batch: pa.RecordBatch, keys: pa.Array) -> Iterator[tuple[str, pa.RecordBatch]]:
        nulls = keys.null_count
        if nulls:
            missing = self._without_key(nulls, batch.nbytes * nulls // batch.num_rows)
            place = np.full(len(keys), missing, self._place.dtype)
            place[keys.is_valid().to_numpy(zero_copy_only=False)] = self._place[_hashes(keys.drop_null())]
        else:
            place = self._place[_hashes(keys)]
        counts = np.bincount(place, minlength=len(self._segments))
        order = np.argsort(place, kind="stable")
        at = 0
        for index in np.flatnonzero(counts).tolist():
            rows = int(counts[index])
            # Each segment has its own `take`. Slices of one big `take` would keep the rows of the other segments in memory.
            part = batch if rows == batch.num_rows else batch.take(pa.array(order[at : at + rows]))
            yield self._segments[index], part
            at += rows

    def _without_key(self, rows: int, size: int) -> int:
        """Return the index of the segment for the next `rows` rows (`size` bytes) without a key."""
        if self._rows and (self._rows + rows > self._entry_rows or self._bytes + size > self._entry_bytes):
            self._keyless = (self._keyless + 1) % len(self._segments)
            self._rows = self._bytes = 0
        self._rows += rows
        self._bytes += size
        return self._keyless


def places(keys: pa.Array, to: Sequence[Target]) -> npt.NDArray[np.uint16]:
    """Return for each key the index of its segment in `to`. The index of a null key is 0."""
    place = np.zeros(len(keys), np.uint16)
    if len(to) > 1 and keys.null_count < len(keys):
        place[keys.is_valid().to_numpy(zero_copy_only=False)] = _ring(to)[_hashes(keys.drop_null())]
    return place


def _hashes(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the ring position of each key, as `metadata.records.names.key_hash` does, in 50 ns a key. No key may be null."""
    if pa.types.is_integer(keys.type):
        keys = keys.cast(pa.string())
    if is_text(keys.type):
        keys = keys.cast(pa.large_binary() if pa.types.is_large_string(keys.type) else pa.binary())
    values = keys.to_numpy(zero_copy_only=False).tolist()
    digests = np.fromiter(map(mmh3.mmh3_32_uintdigest, values), np.uint32, len(values))
    return _high_bits(digests)


def _high_bits(digests: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return digests >> np.uint32(16)


def _ring(to: Sequence[Target]) -> npt.NDArray[np.uint16]:
    """Return for each position of the ring the index of its segment."""
    place = np.full(RING, RING - 1, np.uint16)
    covered = 0
    for index, (_, (start, end)) in enumerate(to):
        place[start : end + 1] = index
        covered += end + 1 - start
    if covered != RING or int(place.max()) >= len(to):
        raise ValueError(f"the active segments do not tile the ring: {[str(t.segment) for t in to]}")
    return place
