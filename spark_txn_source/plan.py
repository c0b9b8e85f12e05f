"""From a reading to tasks: which ledgers, in which order, packed into partitions; and starts and ends as numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from metadata.client.client import Client
from metadata.common import metrics
from metadata.common.errors import AckConflict, OffsetOutOfRange
from metadata.read.backlog import first_pending
from metadata.read.reading import Reading
from metadata.read.reading import Selection as LogSelection
from metadata.records.names import PersistentName
from metadata.records.row_ranges import NONE, Rows
from metadata.rules import timestamps as rules
from spark_txn_source import persistent, timestamps
from spark_txn_source.acked import acknowledged, first_left, last_ledger
from spark_txn_source.losses import NOTHING, check_cursors, check_deletions, check_trims, hidden, known_trims
from spark_txn_source.options import ReadOptions
from spark_txn_source.persistent import Range
from spark_txn_source.pieces import merged, packed, pieces, split
from spark_txn_source.selection import AtLog, AtTime, Earliest, End, Latest, Selection, Start
from spark_txn_source.tasks import ReadTask
from spark_txn_source.topics import Columns, nothing_read, onward, reads_log, selected


def read_batch(client: Client, options: ReadOptions) -> tuple[Reading, int, int, Mapping[str, Rows]]:
    """The reading of a batch with its range, rows of ledgers with start < number <= end, and what of it is left out: what its
    subscription has done, or what retention has left of transactions that it has not taken whole yet.

    Raises TopicNotFound, SubscriptionNotFound, OffsetOutOfRange, DataLoss.
    """
    if options.isolation_level == "read_uncommitted":
        reading = of_log(client, options.selection, partial(client.buffer.read, uncommitted=True))
        if isinstance(options.end, AtLog) and reads_log(reading):
            within_log(options.end.log, reading)
    elif isinstance(options.end, AtLog):
        reading = reading_to(client, options.selection, options.end.log)
    elif isinstance(options.end, AtTime):
        reading = reading_final(client, options, options.end.ms)
    else:
        reading = reading_now(client, options.selection)
    if not reads_log(reading):
        return reading, 0, 0, NOTHING
    end = end_number(reading, options.end)
    done: Mapping[str, Rows] = NOTHING
    start = start_number(reading, options.start)
    if options.subscription is not None:
        done = acknowledged(client, reading, options.subscription)
        start = first_pending(reading, done, end)
    elif options.acknowledged is not None:
        done = options.acknowledged
    if start > end and isinstance(options.start, AtLog):
        raise OffsetOutOfRange(
            f"The start {start} lies behind the end {end} of this read.", advice="Give a start at or before the end."
        )
    start = min(start, end)
    cursors = options.subscription is not None or options.acknowledged is not None
    known = known_trims(reading, options.start, cursors=cursors)
    if options.fail_on_data_loss:
        begins = Earliest() if options.acknowledged is not None else options.start  # then its number is that of a cursor
        check_deletions(reading, start, end, deleted_to(reading, begins, options.end), known, done)
        if options.subscription is not None:
            check_cursors(reading, done, options.subscription)
        check_trims(reading, start, persistent.among_trimmed(options.start, start, end), known, done)
    if not cursors:
        done = hidden(reading, known, fail_on_data_loss=options.fail_on_data_loss)
    return reading, start, end, done


def reading_now(client: Client, selection: Selection) -> Reading:
    """What there is of topic:// in a selection. Raises TopicNotFound."""
    return of_log(client, selection, client.buffer.read)


def reading_final(client: Client, options: ReadOptions, ms: int) -> Reading:
    """The same in which the end by this timestamp is final; it waits for that. Raises OffsetOutOfRange."""
    return timestamps.of_log(client, ms, options.timestamp_timeout_ms, partial(reading_now, client, options.selection))


def reading_to(client: Client, selection: Selection, end: int) -> Reading:
    """The same with a cut that reaches a GIVEN end. Raises OffsetOutOfRange."""
    return of_log(client, selection, lambda found: client.buffer.read_to(found, end))


def of_log(client: Client, selection: Selection, read: Callable[[LogSelection], Reading]) -> Reading:
    """What is read of the log of topic://. A persistent topic that is migrated meanwhile goes on in it: the cut may lie beyond rows
    of what goes on only if they are shown, so who was migrated is asked again after the log was read.
    """
    further = onward(client, selection)
    while True:
        found = selected(selection, further)
        if found is None:
            return nothing_read(client.cluster)
        reading = read(found)
        again = onward(client, selection)
        if again == further:
            return reading
        further = again


def deleted_to(reading: Reading, start: Start, end: End) -> int:
    """The number up to which deletions are no loss for a NEW read: what they took was gone before its range was ever read.

    A start that names no number begins after every deletion that its end has seen; with `AtLog` the range itself was read before.
    """
    if isinstance(start, AtLog):
        return 0
    last = None if isinstance(end, Latest) else end_number(reading, end)
    return max((n for n in reading.deletions() if last is None or n <= last), default=0)


def check_not_moved_back(
    client: Client,
    reading: Reading,
    done: Mapping[str, Rows],
    were: Mapping[str, Rows],
    ends: Mapping[str, int],
    *,
    subscription: str,
) -> None:
    """Raise AckConflict if rows are left that `were` acknowledged when a batch was planned, by segment. `ends`: the ledgers up to
    which the batch reads.
    """
    for segment in reading.segments:
        found = first_left(segment, done[segment.name], were[segment.name])
        if found is None:
            continue
        topic = segment.topic.name
        others = [one for one in reading.segments if one.topic.name == topic]
        to = max(one.number(max(ends[one.name], last_ledger(were[one.name]))) for one in others)
        there, to = persistent.where_now(client, segment.topic, to)
        raise AckConflict(
            f"The subscription {subscription!r} of {topic} was moved back, or deleted and made again, while this query followed "
            f"it: rows of {segment.name} at {segment.number(found.id)} were acknowledged, and are left again. The query does "
            "not give them out again. Nothing was acknowledged.",
            advice="Use a new checkpoint location: it starts at the first row that is left. Or give the rows up: txnsegment "
            f"subscriptions seek {there} {subscription} --to {to}",
        )


def start_number(reading: Reading, start: Start) -> int:
    """The number after which a read begins."""
    match start:
        case Earliest():
            return 0
        case Latest():
            return reading.cluster.before_lost(reading.cut)
        case AtLog(log=number):
            reading.cluster.check_not_lost(number)
            return number
        case AtTime(ms=ms):
            return reading.cluster.before_lost(rules.start(reading.published(0, reading.cut), ms, reading.cut))


def _log_of(reading: Reading) -> str:
    """Whose numbers these are: a persistent topic's own, or the cluster's."""
    older = [str(topic.name) for topic in reading.topics if isinstance(topic.name, PersistentName)]
    return older[0] if older else reading.cluster.url


def within_log(number: int, reading: Reading) -> None:
    """Raises OffsetOutOfRange for a number that the log has not reached: it comes from another cluster, or from one that was lost.
    Going on would pass over the rows that get the numbers in between."""
    reading.cluster.check_not_lost(number)
    if number > reading.end_of_log:
        raise OffsetOutOfRange(
            f"The offset {number} lies beyond the log of {_log_of(reading)}, which ends at {reading.end_of_log}.",
            advice="The offset or checkpoint belongs to another cluster, or this one was made anew: use a new checkpoint.",
        )


def end_number(reading: Reading, end: End) -> int:
    """The number up to and with which a batch reads. By a timestamp it is final in a reading that `reading_final` gave."""
    match end:
        case Latest():
            return reading.cut
        case AtLog(log=number):
            return number
        case AtTime(ms=ms):
            return reading.cluster.before_lost(rules.end(reading.published(0, reading.cut), ms, reading.cut)[0])


def tasks(
    reading: Reading,
    options: ReadOptions,
    columns: Columns,
    start: int,
    end: int,
    done: Mapping[str, Rows] = NOTHING,
    ranges: Sequence[Range] = (),
) -> list[ReadTask]:
    """The partitions of a read, without the rows that are `done` already, by segment; and of persistent topics, whose log takes the
    place of a segment, their `ranges`. By default a stream has one ordered task per segment; a batch packs pieces by size."""
    marks = columns.with_metadata
    by_segment = [
        found
        for segment in reading.segments
        if (found := list(pieces(segment, start, end, marks=marks, done=done.get(segment.name, NONE))))
    ]
    by_segment += persistent.pieces_by_topic(ranges, marks=marks)
    metrics.ROWS_PLANNED.inc(sum(p.rows for found in by_segment for p in found))
    size = options.max_partition_bytes
    if options.min_partitions is not None and by_segment:
        total = sum(p.bytes for found in by_segment for p in found)
        share = max(1, total // options.min_partitions)
        size = share if size is None else min(size, share)
    if size is None:
        groups = by_segment
    else:
        groups = [group for found in by_segment for group in packed(split(found, size), size)]
        if options.min_partitions is None:
            groups = merged(groups, size)
    uri = reading.cluster.storage.uri
    return [ReadTask(uri, tuple(group), columns.wanted, columns.output, columns.avro) for group in groups]
