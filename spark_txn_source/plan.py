"""From a reading to tasks: which ledgers, in which order, packed into partitions; and starts and ends as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType

from ledgers.model import Ledger
from metadata.client.client import Client
from metadata.client.providers import Providers
from metadata.common import metrics
from metadata.common.errors import AckConflict, DataLoss, OffsetOutOfRange
from metadata.read.backlog import Left, acked, first_pending, pending
from metadata.read.reading import Reading
from metadata.read.reading import Selection as LogSelection
from metadata.read.segment_view import SegmentView
from metadata.records.names import PersistentName
from metadata.records.row_ranges import FIRST, NONE, Rows, before, end_of, last_of, minus, union
from metadata.rules import timestamps as rules
from spark_txn_source import persistent, timestamps
from spark_txn_source.options import ReadOptions
from spark_txn_source.persistent import Range
from spark_txn_source.selection import AtLog, AtTime, Earliest, End, Latest, Selection, Start
from spark_txn_source.tasks import Piece, ReadTask, of_stretch
from spark_txn_source.topics import Columns, nothing_read, onward, reads_log, selected

NOTHING: Mapping[str, Rows] = MappingProxyType({})


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


def acknowledged(client: Client, reading: Reading, subscription: str) -> dict[str, Rows]:
    """What a subscription has done of each segment of a reading. Raises SubscriptionNotFound."""
    names = [segment.name for segment in reading.segments]
    cursors = Providers(client).of(names).acks.read((name, subscription) for name in names)
    return acked({segment: cursor for (segment, _), cursor in cursors.items()})


def deleted_to(reading: Reading, start: Start, end: End) -> int:
    """The number up to which deletions are no loss for a NEW read: what they took was gone before its range was ever read.

    A start that names no number begins after every deletion that its end has seen; with `AtLog` the range itself was read before.
    """
    if isinstance(start, AtLog):
        return 0
    last = None if isinstance(end, Latest) else end_number(reading, end)
    return max((n for n in reading.deletions() if last is None or n <= last), default=0)


def check_deletions(
    reading: Reading,
    start: int,
    end: int,
    known: int,
    trims: Mapping[str, int],
    done: Mapping[str, Rows] = NOTHING,
    advice: str = "Start after it (earliest does, in a new checkpoint), or set failOnDataLoss=false to go on without these rows.",
) -> None:
    """Raise DataLoss if rows with start < number <= end went with a topic that was deleted by a seal above `known`, or before that
    by retention, beyond the `trims` that were known when the read began. Rows that are `done` are no loss.

    Within the grace period it is known which rows those were; after it, that there may have been some below the seal.
    """
    for segment in reading.gone:
        if segment.deleted_at is None or segment.deleted_at <= max(known, start):
            continue
        lost = next((ledger for ledger, _ in pending(segment, done.get(segment.name, NONE), start, end)), None)
        if lost is not None:
            raise DataLoss(
                f"The topic {segment.topic.name} was deleted by the seal {segment.deleted_at}: the rows of {segment.name} from "
                f"{lost.id}:0 on, which a read after {start} up to {end} needs, went with it.",
                advice=advice,
            )
        begin = max(start, _known_of(segment, trims))
        if begin < min(end, segment.trimmed_to) and minus(segment.trimmed(begin), done.get(segment.name, NONE)):
            raise DataLoss(
                f"Retention had taken rows of {segment.name} up to {segment.trimmed_to} when its topic {segment.topic.name} was "
                f"deleted by the seal {segment.deleted_at}: a read after {begin} up to {end} may need them.",
                advice=advice,
            )
    for topic, number in reading.forgotten:
        if number > max(known, start + 1) and start < end:
            raise DataLoss(
                f"The topic {topic} was deleted by the seal {number}: rows of it after {start} and before that, "
                f"which a read up to {end} may need, went with it.",
                advice=advice,
            )


def known_trims(reading: Reading, start: Start, *, cursors: bool = False) -> dict[str, int]:
    """What retention had taken before a NEW read began, which is no loss for it: `earliest` is the first transaction that is kept
    whole, over all segments of a topic. `cursors`: it begins at those of a subscription. They say themselves what they have done,
    but of segments that have left the layout: none goes before every subscription is through with it.
    """
    if cursors:
        return reading.guards()
    return reading.whole_from() if isinstance(start, Earliest) else {}


def _known_of(segment: SegmentView, known: Mapping[str, int]) -> int:
    """What is known of a segment: said of itself, or of its topic."""
    return max(known.get(segment.name, 0), known.get(str(segment.topic.name), 0))


def hidden(reading: Reading, known: Mapping[str, int], *, fail_on_data_loss: bool = True) -> dict[str, Rows]:
    """The rows of each segment that a read leaves out: those of transactions of which retention has taken something, in whichever
    segment of the topic, before the read began (`known`), and, without `failOnDataLoss`, until now. What was taken of a segment
    itself need not be left out.
    """
    now = {} if fail_on_data_loss else reading.whole_from()
    numbers = {segment.name: max(_known_of(segment, known), _known_of(segment, now)) for segment in reading.segments}
    return {s.name: before(end_of(s.ledger_id(numbers[s.name]))) for s in reading.segments if numbers[s.name] > s.trimmed_to}


def check_trims(reading: Reading, start: int, end: int, known: Mapping[str, int], done: Mapping[str, Rows] = NOTHING) -> None:
    """Raise DataLoss if retention has taken rows of this read beyond its start, beyond what was `known` when it began, and which
    are not `done`.
    """
    if start >= end:
        return
    segments = {segment.name: segment for segment in reading.segments}
    for name, through in reading.trims().items():
        begin = max(start, _known_of(segments[name], known) if name in segments else known.get(name, 0))
        if begin < through and (name not in segments or minus(segments[name].trimmed(begin), done.get(name, NONE))):
            after = segments[name].ledger_id(begin) if name in segments else begin
            raise _trimmed(reading, name, after, f"a read after {begin} up to {end}")


def check_cursors(reading: Reading, done: Mapping[str, Rows], subscription: str) -> None:
    """Raise DataLoss if retention has taken rows that the subscription has not acknowledged, wherever it begins now."""
    for segment in reading.segments:
        left = minus(segment.trimmed(), done.get(segment.name, NONE))
        if left:
            last = ":".join(map(str, last_of(left[0][0]))) if left[0][0] > FIRST else "0"
            raise _trimmed(reading, segment.name, last, f"the subscription {subscription!r}")


def ledger_at(segment: SegmentView, numbers: Mapping[str, int], log: str = "log") -> int:
    """Up to which ledger of a segment these numbers of an offset reach: its topic's own, or that of the log that it stands in."""
    return numbers[segment.name] if segment.name in numbers else segment.ledger_id(numbers.get(log, 0))


def first_left(segment: SegmentView, done: Rows, among: Rows) -> Ledger | None:
    """The first ledger of a segment of which some of these rows are left."""
    if not among:
        return None
    last = last_ledger(among)
    others = minus(before(end_of(last)), among)
    return next((ledger for ledger, _ in pending(segment, union(done, others), 0, segment.number(last))), None)


def upto(ledger: int) -> Rows:
    """All rows of ledgers at or below this one (0: none)."""
    return before(end_of(ledger)) if ledger else NONE


def last_ledger(rows: Rows) -> int:
    """The last ledger of which there are any (0: none)."""
    return last_of(rows[-1][1])[0] if rows else 0


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


def _trimmed(reading: Reading, name: str, after: object, who: str) -> DataLoss:
    gone = next((s.last_trimmed for s in reading.segments if s.name == name), None)
    last = f"{gone}" if gone is not None else f"{reading.trims()[name]}"
    return DataLoss(
        f"{name} was trimmed by retention up to {last}: its rows after {after} up to there, which {who} may need, are gone.",
        advice="Start later (earliest does, in a new checkpoint; subscriptions seek --to earliest moves a subscription), keep rows "
        "longer (txnsegment topics retention), or set failOnDataLoss=false to go on without them.",
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


def large_pieces(segment: SegmentView, start: int, end: int, *, marks: bool) -> Iterator[Piece]:
    """Everything visible of a segment with start < number <= end, in order: part by part, but what lies together in a compacted
    file is one piece. `marks`: with what the positions of its rows come from.
    """
    for found in segment.stretches(start, end, marks=marks):
        yield of_stretch(segment.name, found)


def pieces(segment: SegmentView, start: int, end: int, *, marks: bool, done: Rows = NONE) -> Iterator[Piece]:
    """As `large_pieces`, but for the rows in `done`."""
    touched = segment.number(done[-1][1].ledger_id) if done else 0
    middle = min(max(start, touched), end)
    for ledger, left in pending(segment, done, start, middle):
        yield from _left_pieces(segment.name, ledger, left)
    yield from large_pieces(segment, middle, end, marks=marks)


def _left_pieces(segment: str, ledger: Ledger, left: Sequence[Left] | None) -> Iterator[Piece]:
    """What is left of one ledger, part by part."""
    bases = [0, *accumulate(len(part.entries) for part in ledger.parts)]
    if left is None:
        for base, part in zip(bases, ledger.parts, strict=False):
            yield Piece(segment, ledger.id, base, ledger.publish_ms, ledger.txn, part, 0, len(part.entries) - 1)
        return
    for number, first, last, row, stop in runs(left):
        yield Piece(segment, ledger.id, bases[number], ledger.publish_ms, ledger.txn, ledger.parts[number], first, last, row, stop)


def runs(left: Iterable[Left]) -> Iterator[tuple[int, int, int, int, int | None]]:
    """What is left of a ledger in as few pieces as can be: (part, first entry, last entry, row, stop)."""
    whole: tuple[int, int, int] | None = None
    for one in left:
        if whole is not None and (one.first, one.stop) == (0, one.of) and (one.part, one.entry) == (whole[0], whole[2] + 1):
            whole = (*whole[:2], one.entry)
            continue
        if whole is not None:
            yield (*whole, 0, None)
            whole = None
        if (one.first, one.stop) == (0, one.of):
            whole = (one.part, one.entry, one.entry)
        else:
            yield one.part, one.entry, one.entry, one.first, one.stop
    if whole is not None:
        yield (*whole, 0, None)


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
    by_segment += persistent.pieces(ranges, marks=marks)
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
    return [ReadTask(uri, tuple(group), columns.wanted, columns.output, columns.avro) for group in groups]


def _split(found: Iterable[Piece], size: int) -> Iterator[Piece]:
    """Cut pieces above `size` bytes between entries (of a compacted file: between row groups)."""
    for one in found:
        if one.bytes <= size or one.first == one.last:
            yield one
            continue
        part = one.part
        first, weight = one.first, 0
        for entry in range(one.first, one.last + 1):
            bytes_of = part.bytes * part.entries[entry] // max(1, part.rows)
            if entry > first and weight + bytes_of > size:
                yield one.narrowed(first, entry - 1)
                first, weight = entry, 0
            weight += bytes_of
        yield one.narrowed(first, one.last)


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
