"""What the plan of a read gives to the tasks: pieces of parts, and tasks that read the pieces."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ledgers.model import CompactedPart, Part

if TYPE_CHECKING:
    from ledgers.extents import Extent, Marks


@dataclass(frozen=True, slots=True)
class Piece:
    """The entries `first` to `last` of one part. Both are indexes in the part and inclusive. `base`: the entryId of the part's
    first entry.

    `row`, `stop`: a piece of a single entry has only the entry's rows with `row` <= row < `stop` (None: to the end of the entry). A
    piece of a compacted file may have rows of many ledgers. Its `ledger`, `base`, `publish_ms` and `txn` are those of its first
    rows, and `marks` has those of all rows.
    """

    segment: str
    ledger: int
    base: int
    publish_ms: int
    txn: str | None
    part: Part
    first: int
    last: int
    row: int = 0
    stop: int | None = None
    last_ledger: int | None = None
    marks: Marks | None = None

    def __reduce__(self) -> tuple[type[Piece], tuple[object, ...]]:
        """Pickle the piece as a short tuple, as `Part` does."""
        where = (self.segment, self.ledger, self.base, self.publish_ms, self.txn)
        return Piece, (*where, self.part.bare(), self.first, self.last, self.row, self.stop, self.last_ledger, self.marks)

    @property
    def where(self) -> str:
        """The positions of the piece, for messages."""
        if self.last_ledger is not None and self.last_ledger != self.ledger:
            return f"{self.segment}, ledgers {self.ledger} to {self.last_ledger}"
        return f"{self.segment}, ledger {self.ledger}, entries {self.base} to {self.base + len(self.part.entries) - 1}"

    def narrowed(self, first: int, last: int) -> Piece:
        """Return the piece with only the entries `first` to `last`."""
        marks = self.marks
        if marks is not None and isinstance(self.part, CompactedPart):
            begin = self.part.first_row + sum(self.part.entries[:first])
            marks = marks.between(begin, begin + sum(self.part.entries[first : last + 1]))
        return replace(self, first=first, last=last, marks=marks)

    @property
    def rows(self) -> int:
        if self.stop is not None:
            return self.stop - self.row
        return sum(self.part.entries[self.first : self.last + 1]) - self.row

    @property
    def bytes(self) -> int:
        """The approximate size: the bytes of the part, times the share of the part's rows that the piece has."""
        return self.part.bytes * self.rows // max(1, self.part.rows)


def of_extent(segment: str, found: Extent) -> Piece:
    """Return a piece with all rows of the extent `found`."""
    known = (segment, found.ledger, found.base, found.publish_ms, found.txn, found.part, 0, len(found.part.entries) - 1)
    return Piece(*known, last_ledger=found.last, marks=found.marks) if isinstance(found.part, CompactedPart) else Piece(*known)


class ReadTask(InputPartition):
    """One task: pieces to read one after the other. `wanted`: the columns to read from the topic. `output`: all columns of the
    result in order, with the metadata columns. `avro`: the Avro schema by which the topic's columns become one binary column.
    """

    def __init__(
        self, storage_uri: str, pieces: tuple[Piece, ...], wanted: StructType, output: StructType, avro: str | None = None
    ) -> None:
        self.storage_uri, self.pieces, self.wanted, self.output, self.avro = storage_uri, pieces, wanted, output, avro
