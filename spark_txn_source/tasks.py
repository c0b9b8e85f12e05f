"""The tasks of a read. They get paths and entry ranges, read the files as Arrow batches, and never open the metadata store."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from ledgers.arrow import arrow_schema, conform
from ledgers.extents import Marks
from ledgers.model import CompactedPart
from ledgers.parts import BATCH_ROWS, EntryBatch, read_part
from ledgers.storage import LedgerStorage
from metadata.common.workers import spare_imports
from metadata.records.names import topic_of
from spark_txn_source.planned import Piece, ReadTask
from spark_txn_source.pruning import pruned

VALUE = "value"
"""The name of the column that has the rows as Avro binary."""

Filled = Callable[[pa.RecordBatch], pa.RecordBatch]

JOINED_BYTES = 1024 * 1024
"""Maximum size of joined batches in bytes. It keeps a task's memory small even if the rows are wide."""


def read_task(task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task, in exactly the Arrow schema that Spark derives from the read's schema. For an empty plan Spark
    passes a partition of its own class, which has no rows.

    Raises CorruptPart, which names the file, the segment and the positions.
    """
    spare_imports()
    if isinstance(task, ReadTask):
        yield from together(_read(task))


def together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the same order, with small batches joined. Many small transactions make many small batches, and each batch
    costs Spark as much time as a thousand rows. At most `JOINED_BYTES` are in memory, besides the current batch.
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if waiting and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > JOINED_BYTES):
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _read(task: ReadTask) -> Iterator[pa.RecordBatch]:
    storage = LedgerStorage(task.storage_uri)
    wanted = arrow_schema(task.wanted)
    values = None if task.avro is None else AvroValues(task.avro)
    plain = task.output.fieldNames() == (task.wanted.fieldNames() if values is None else [VALUE])
    output = wanted if plain and values is None else to_arrow_schema(task.output, timezone="UTC")
    for piece in task.pieces:
        for rows in entries(storage, piece, wanted, None if values is None else values.filled):
            batch = rows.batch if values is None else values.of(rows, piece)
            yield batch if plain else _with_metadata(batch, rows, piece, output)


def entries(storage: LedgerStorage, piece: Piece, wanted: pa.Schema, filled: Filled | None = None) -> Iterator[EntryBatch]:
    """Yield the rows of a piece in order, with the columns `wanted`. No batch has rows of two entries. Raises CorruptPart,
    StorageError.

    `filled`: a function that adds the columns that a part does not have. Without it these columns are null.
    """
    names = [f.name for f in wanted]
    for whole in read_part(storage, piece.part, columns=names, first_entry=piece.first, last_entry=piece.last, where=piece.where):
        rows = _wanted(whole, piece)
        if rows is not None:
            batch = rows.batch if filled is None else filled(rows.batch)
            yield rows._replace(batch=conform(pruned(batch, wanted), wanted))


class AvroValues:
    """Encodes rows as Avro binary. The imports are late, so that only tasks with Avro values load the codec and fastavro."""

    def __init__(self, schema: str) -> None:
        from ledgers.avro.parsing import parse
        from ledgers.avro.rows import Codec

        self._codec = Codec(parse(schema))
        self.filled = self._codec.filled

    def of(self, rows: EntryBatch, piece: Piece) -> pa.RecordBatch:
        """Return the rows as one binary column. Raises ValueFormatError, with the message id of the row that cannot be encoded."""

        def named(index: int) -> str:
            ids = _with_metadata(rows.batch, rows, piece, pa.schema([("__messageId", pa.string())])).column(0)
            return f"The row {ids[index]} of {piece.segment}"

        return pa.RecordBatch.from_arrays([self._codec.encode(rows.batch, named)], [VALUE])


def _wanted(found: EntryBatch, piece: Piece) -> EntryBatch | None:
    """Return the rows of a batch that belong to the piece, or None if there are none."""
    if not piece.row and piece.stop is None:
        return found
    end = found.first_row + found.batch.num_rows
    first, stop = max(piece.row, found.first_row), end if piece.stop is None else min(piece.stop, end)
    if first >= stop:
        return None
    return EntryBatch(found.entry, first, found.batch.slice(first - found.first_row, stop - first))


def _with_metadata(batch: pa.RecordBatch, rows: EntryBatch, piece: Piece, output: pa.Schema) -> pa.RecordBatch:
    if piece.marks is not None and isinstance(piece.part, CompactedPart):
        first = piece.part.first_row + sum(piece.part.entries[: rows.entry]) + rows.first_row
        return _with_marks(batch, piece.segment, piece.marks, first, output)
    place = OfEntry(piece.segment, piece.ledger, piece.base + rows.entry, rows.first_row, piece.publish_ms, piece.txn)
    return with_place(batch, place, output)


class OfEntry(NamedTuple):
    """The place of consecutive rows of one entry. `first_row`: the index of the first of these rows in the entry."""

    segment: str
    ledger: int
    entry: int
    first_row: int
    publish_ms: int
    txn: str | None


def with_place(batch: pa.RecordBatch, place: OfEntry, output: pa.Schema) -> pa.RecordBatch:
    """Add metadata columns to rows of one entry. `output`: all columns of the result."""
    count = batch.num_rows
    columns = []
    for field in output:
        match field.name:
            case "__topic":
                columns.append(_repeat(str(topic_of(place.segment)), count, field.type))
            case "__segment":
                columns.append(_repeat(place.segment, count, field.type))
            case "__messageId":
                index = pa.array(range(place.first_row, place.first_row + count), pa.int64()).cast(pa.string())
                columns.append(pc.binary_join_element_wise(f"{place.ledger}:{place.entry}:", index, ""))
            case "__publishTime":
                time = datetime.datetime.fromtimestamp(place.publish_ms / 1000, datetime.UTC)
                columns.append(_repeat(time, count, field.type))
            case "__txnId":
                columns.append(_repeat(place.txn, count, field.type))
            case name:
                columns.append(batch.column(batch.schema.get_field_index(name)))
    return pa.RecordBatch.from_arrays(columns, schema=output)


def _with_marks(batch: pa.RecordBatch, segment: str, marks: Marks, first_row: int, output: pa.Schema) -> pa.RecordBatch:
    """Add metadata columns to rows of many ledgers, as `_with_metadata` does for rows of one ledger. `first_row`: the index of the
    first row in the compacted file.
    """
    count = batch.num_rows
    index, inside = marks.of(first_row, count)
    columns = []
    for field in output:
        match field.name:
            case "__topic":
                columns.append(_repeat(str(topic_of(segment)), count, field.type))
            case "__segment":
                columns.append(_repeat(segment, count, field.type))
            case "__messageId":
                numbers = (marks.ledgers[index], marks.entries[index], inside)
                columns.append(pc.binary_join_element_wise(*(pa.array(n, pa.int64()).cast(pa.string()) for n in numbers), ":"))
            case "__publishTime":
                columns.append(pa.array(marks.publish_ms[index] * 1000, pa.int64()).cast(field.type))
            case "__txnId":
                columns.append(marks.txns.take(pa.array(index)).cast(field.type))
            case name:
                columns.append(batch.column(batch.schema.get_field_index(name)))
    return pa.RecordBatch.from_arrays(columns, schema=output)


def _repeat(value: object, count: int, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)
