"""From a reading to tasks: which ledgers, in which order, packed into partitions; and starts and ends as numbers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from ledgers import schema as schemas
from metadata import metrics, transitions
from metadata.client import Client
from metadata.errors import DataLoss, OffsetOutOfRange, SchemaChanged, SchemaError
from metadata.transaction_buffer import Reading, SegmentView
from spark_txn_source.options import ReadOptions
from spark_txn_source.selection import AtLog, AtTime, Earliest, End, Latest, Start
from spark_txn_source.tasks import Piece, ReadTask
from spark_txn_source.topics import Columns, full_schema, selected

log = logging.getLogger("txnsegment.source")


def read_batch(client: Client, options: ReadOptions) -> tuple[Reading, int, int]:
    """The reading of a batch with its range: rows of ledgers with start < number <= end. Raises OffsetOutOfRange."""
    selection = selected(options.selection)
    if options.isolation_level == "read_uncommitted":
        reading = client.buffer.read(selection, uncommitted=True)
        if isinstance(options.end, AtLog):
            within_log(options.end.log, reading)
    elif isinstance(options.end, AtLog):
        reading = client.buffer.read_to(selection, options.end.log)
    else:
        reading = client.buffer.read(selection)
    end = end_number(reading, options.end)
    start = start_number(reading, options.start)
    if start > end and isinstance(options.start, AtLog):
        raise OffsetOutOfRange(
            f"The start {start} lies behind the end {end} of this read.", advice="Give a start at or before the end."
        )
    return reading, min(start, end), end


def start_number(reading: Reading, start: Start) -> int:
    """The number after which a read begins."""
    match start:
        case Earliest():
            return 0
        case Latest():
            return reading.cut
        case AtLog(log=number):
            return number
        case AtTime(ms=ms):
            return transitions.start_at_timestamp(reading.published(0, reading.cut), ms, reading.cut)


def within_log(number: int, reading: Reading) -> None:
    """Raises OffsetOutOfRange for a number that the log has not reached: it comes from another cluster, or from one that was lost.
    Going on would pass over the rows that get the numbers in between."""
    if number > reading.end_of_log:
        raise OffsetOutOfRange(
            f"The offset {number} lies beyond the log of {reading.cluster.url}, which ends at {reading.end_of_log}.",
            advice="The offset or checkpoint belongs to another cluster, or this one was made anew: use a new checkpoint.",
        )


def end_number(reading: Reading, end: End) -> int:
    """The number up to and with which a batch reads."""
    match end:
        case Latest():
            return reading.cut
        case AtLog(log=number):
            return number
        case AtTime(ms=ms):
            number, final = transitions.end_at_timestamp(reading.published(0, reading.cut), ms, reading.cut)
            if not final:
                log.warning("endingTimestamp %s lies beyond what is decided: reading up to the cut %s", ms, number)
            return number


def pieces(reading: Reading, segment: SegmentView, start: int, end: int, *, fail_on_data_loss: bool) -> Iterator[Piece]:
    """Everything visible of a segment with start < number <= end, part by part, in order. Raises DataLoss."""
    trimmed = None if segment.watermark is None else segment.watermark.trimmed_to
    if trimmed is not None and start < trimmed.ledger_id <= end and fail_on_data_loss:
        raise DataLoss(
            f"{segment.name} was trimmed up to {trimmed}, and the read begins after ledger {start}: rows in between are gone.",
            advice="Start later, or set failOnDataLoss=false to go on without them.",
        )
    for ledger in reading.ledgers(segment, start, end):
        base = 0
        for part in ledger.parts:
            last = len(part.entries) - 1
            yield Piece(segment.name, ledger.id, base, ledger.publish_ms, ledger.txn, part, 0, last)
            base += len(part.entries)


def tasks(reading: Reading, options: ReadOptions, columns: Columns, start: int, end: int) -> list[ReadTask]:
    """The partitions of a read. By default a stream has one ordered task per segment; a batch packs pieces by size."""
    by_segment = [
        found
        for segment in reading.segments
        if (found := list(pieces(reading, segment, start, end, fail_on_data_loss=options.fail_on_data_loss)))
    ]
    metrics.ROWS_PLANNED.inc(sum(p.rows for found in by_segment for p in found))
    size = options.max_partition_bytes
    if options.min_partitions is not None and by_segment:
        total = sum(p.bytes for found in by_segment for p in found)
        share = max(1, total // options.min_partitions)
        size = share if size is None else min(size, share)
    if size is None:
        groups = by_segment
    else:
        groups = [group for found in by_segment for group in packed(_split(found, size), size)]
        if options.min_partitions is None:
            groups = merged(groups, size)
    uri = reading.cluster.storage.uri
    return [ReadTask(uri, tuple(group), columns.wanted, columns.output) for group in groups]


def _split(found: Iterable[Piece], size: int) -> Iterator[Piece]:
    """Cut pieces above `size` bytes between entries."""
    for piece in found:
        if piece.bytes <= size or piece.first == piece.last:
            yield piece
            continue
        part = piece.part
        first, weight = piece.first, 0
        for entry in range(piece.first, piece.last + 1):
            bytes_of = part.bytes * part.entries[entry] // max(1, part.rows)
            if entry > first and weight + bytes_of > size:
                yield _range(piece, first, entry - 1)
                first, weight = entry, 0
            weight += bytes_of
        yield _range(piece, first, piece.last)


def _range(piece: Piece, first: int, last: int) -> Piece:
    return Piece(piece.segment, piece.ledger, piece.base, piece.publish_ms, piece.txn, piece.part, first, last)


def packed(found: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    """Consecutive pieces together while they stay within `size` bytes."""
    group: list[Piece] = []
    weight = 0
    for piece in found:
        if group and weight + piece.bytes > size:
            yield group
            group, weight = [], 0
        group.append(piece)
        weight += piece.bytes
    if group:
        yield group


def merged(groups: Iterable[list[Piece]], size: int) -> list[list[Piece]]:
    """Put small groups of several segments together: many tiny segments need few tasks."""
    found: list[list[Piece]] = []
    weight = 0
    for group in groups:
        bytes_of = sum(p.bytes for p in group)
        if found and weight + bytes_of <= size // 4:
            found[-1].extend(group)
            weight += bytes_of
        else:
            found.append(list(group))
            weight = bytes_of
    return found


def check_schema(client: Client, reading: Reading, columns: Columns, *, streaming: bool, ignore_new: bool) -> None:
    """Refuse to read rows that the schema of the read cannot hold: a wider type always, a new column in a stream of all columns.

    Raises SchemaChanged (a stream: restart to pick it up) or SchemaError (a batch: load again).
    """
    now = full_schema(client, reading.topics)
    if now is None or now == columns.full:
        return
    changed = _no_more_fitting(now, columns.wanted)
    known = _paths(columns.full)
    if streaming and not ignore_new and _paths(columns.wanted).keys() == known.keys():
        changed += [f"new column {path} {kind}" for path, kind in _paths(now).items() if path not in known]
    if not changed:
        return
    topics = ", ".join(str(t.name) for t in reading.topics)
    what = f"The topics {topics} have changed since this read was planned: {'; '.join(changed)}."
    if streaming:
        raise SchemaChanged(
            what,
            advice="Restart the query to pick it up; no row was dropped. schemaChange=ignoreNewColumns leaves new columns out.",
        )
    raise SchemaError(what, advice="Load the DataFrame again.")


def _no_more_fitting(now: StructType, wanted: StructType) -> list[str]:
    """Columns of the read whose type has grown beyond what it asked for."""
    found = []
    for field in wanted:
        if field.name not in now.fieldNames():
            found.append(f"there is no column {field.name}")
            continue
        try:
            schemas.project(StructType([now[field.name]]), StructType([field]))
        except SchemaError:
            found.append(f"{field.name} is {now[field.name].dataType.simpleString()}, was {field.dataType.simpleString()}")
    return found


def _paths(kind: DataType, above: str = "") -> dict[str, str]:
    """The columns of a schema and the fields of its structs: path -> type."""
    match kind:
        case StructType():
            found = {}
            for field in kind:
                path = f"{above}{field.name}"
                found[path] = field.dataType.simpleString()
                found.update(_paths(field.dataType, f"{path}."))
            return found
        case ArrayType():
            return _paths(kind.elementType, f"{above}element.")
        case MapType():
            return _paths(kind.keyType, f"{above}key.") | _paths(kind.valueType, f"{above}value.")
    return {}
