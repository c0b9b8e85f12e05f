"""The planning of reads: the ranges of the logs that a batch reads, and the tasks that read given ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from metadata.client.client import Client
from metadata.client.logs import Logs
from metadata.common import metrics
from metadata.common.errors import OffsetOutOfRange
from metadata.read.backlog import first_pending
from metadata.read.log_reader import LogReader
from metadata.read.reading import Reading
from metadata.read.selection import AtLog, AtTime, Earliest, Latest
from metadata.records.row_ranges import Rows
from spark_txn_source.acked import acknowledged
from spark_txn_source.columns import Columns
from spark_txn_source.log_ranges import NOTHING, LogRange, deleted_to, end_number, start_number
from spark_txn_source.losses import check_cursors, check_deletions, check_trims, hidden, known_trims, within_trimmed
from spark_txn_source.options import ReadOptions, check_progress
from spark_txn_source.pieces import merged, packed, split
from spark_txn_source.planned import ReadTask
from spark_txn_source.timestamps import final


def read_batch(client: Client, options: ReadOptions) -> tuple[LogRange, ...]:
    """Return the range of each log that a batch reads. The field `done` of a range has the rows that the batch leaves out. With a
    subscription these are the rows that it has acknowledged, and with the option `acknowledged` the rows that the option gives.
    Otherwise these are the remaining rows of transactions of which retention has trimmed other rows.

    Raises OptionError, TopicNotFound, SubscriptionNotFound, OffsetOutOfRange, DataLoss.
    """
    check_progress(client.cluster, options.selection, options.start, options.end)
    logs = Logs(client, options.selection)
    readings = logs.read(lambda log: _decided(log, options))
    if isinstance(options.start, AtLog) and options.fail_on_data_loss:
        logs.gone(dict(options.start.places()), readings, fail=True)
    return tuple(_range(client, reading, options) for reading in readings)


def _decided(log: LogReader, options: ReadOptions) -> Reading:
    """Read the metadata of one log for a batch, and return the reading. The whole planning of the batch uses this one reading.
    Raises TopicNotFound, OffsetOutOfRange.
    """
    end = options.end
    if options.isolation_level == "read_uncommitted":
        reading = log.now(uncommitted=True)
        if isinstance(end, AtLog):
            reading.check_reached(end.at(log.name).ledger)
        return reading
    match end:
        case AtLog():
            return log.to(end.at(log.name).ledger)
        case AtTime(ms=ms):
            return final(log, ms, options.timestamp_timeout_ms)
    return log.now()


def _range(client: Client, reading: Reading, options: ReadOptions) -> LogRange:
    end, start = end_number(reading, options.end), start_number(reading, options.start)
    done: Mapping[str, Rows] = NOTHING
    if options.subscription is not None:
        done = acknowledged(client, reading, options.subscription)
        start = reading.before_lost(first_pending(reading, done, end))
    elif options.acknowledged is not None:
        done = options.acknowledged
    if start > end and isinstance(options.start, AtLog):
        raise OffsetOutOfRange(
            f"The start {reading.shown(start)} lies behind the end {end} of this read.",
            advice="Give a start at or before the end.",
        )
    found = LogRange(reading, min(start, end), end, done)
    cursors = options.subscription is not None or options.acknowledged is not None
    known = known_trims(reading, options.start, cursors=cursors)
    if options.fail_on_data_loss:
        # A read from a log number usually continues an earlier read, for which later deletions are data loss. With the option
        # `acknowledged` the number comes from cursors, and the read continues no earlier read. So deletions count as in a read from
        # `earliest`.
        begins = Earliest() if options.acknowledged is not None else options.start
        check_deletions(found, deleted_to(reading, begins, None if isinstance(options.end, Latest) else end), known)
        if options.subscription is not None:
            check_cursors(reading, done, options.subscription)
        check_trims(within_trimmed(found, options.start), known)
    return found if cursors else replace(found, done=hidden(reading, known, fail_on_data_loss=options.fail_on_data_loss))


def tasks(ranges: Sequence[LogRange], options: ReadOptions, columns: Columns) -> list[ReadTask]:
    """Return the tasks of a read. By default a stream has one ordered task for each segment, and a batch packs pieces by size."""
    by_segment = [found for one in ranges for found in one.pieces(marks=columns.with_metadata)]
    if not by_segment:
        return []
    metrics.ROWS_PLANNED.inc(sum(p.rows for found in by_segment for p in found))
    size = options.max_partition_bytes
    if options.min_partitions is not None:
        total = sum(p.bytes for found in by_segment for p in found)
        share = max(1, total // options.min_partitions)
        size = share if size is None else min(size, share)
    if size is None:
        groups = by_segment
    else:
        groups = [group for found in by_segment for group in packed(split(found, size), size)]
        if options.min_partitions is None:
            groups = merged(groups, size)
    uri = ranges[0].reading.cluster.storage.uri
    return [ReadTask(uri, tuple(group), columns.wanted, columns.output, columns.avro) for group in groups]
