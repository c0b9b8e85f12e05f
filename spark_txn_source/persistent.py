"""Reading `persistent://` topics: each has a log of its own, so a read has a range for each (docs/in_stream.md, Spark).

What `plan` is for topic://, whose rows all lie in one log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ledgers.model import Ledger
from metadata.client.client import Client
from metadata.common.errors import DataLoss, OffsetOutOfRange, TopicNotFound
from metadata.read.backlog import first_pending, pending
from metadata.read.reading import Reading
from metadata.records import paths
from metadata.records.names import PersistentName, TopicName, persistent_name, topic_name
from metadata.records.persistent_records import PersistentLayout
from metadata.records.records import Layout
from metadata.records.row_ranges import NONE, Rows
from metadata.rules import timestamps as rules
from metadata.rules.migrated import holds, is_its_own, to_cluster
from metadata.store.contract import View, decide, look
from metadata.topics.subscriptions import legacy_shift
from metadata.topics.topic import Topic
from spark_txn_source import limits, timestamps
from spark_txn_source.acked import acknowledged
from spark_txn_source.limits import Stretch
from spark_txn_source.losses import check_cursors
from spark_txn_source.options import ReadOptions
from spark_txn_source.pieces import pieces
from spark_txn_source.selection import AtLog, AtTime, Earliest, End, Latest, Pattern, Position, Selection, Start
from spark_txn_source.tasks import Piece

if TYPE_CHECKING:  # each of Spark's processes that plans a read would import it, too
    from metadata.instream.reading import TopicReading


class Range(NamedTuple):
    """What is read of one topic: rows of ledgers with start < id <= end, but for those in `done`."""

    reading: TopicReading
    start: int
    end: int
    done: Rows = NONE

    @property
    def topic(self) -> Topic:
        return topic(self.reading)

    def pieces(self, *, marks: bool) -> Iterator[Piece]:
        """Its visible rows in order, part by part. Raises DataLoss, CorruptRecord, StorageError."""
        shown = self.view
        (segment,) = shown.segments
        return pieces(segment, self.start, self.end, marks=marks, done=self.done)

    @property
    def view(self) -> Reading:
        return view(self.reading)

    def left(self) -> list[Ledger]:
        """The ledgers of the range with rows that are not done."""
        shown = self.view
        return [ledger for ledger, _ in pending(shown.segments[0], self.done, self.start, self.end)]


def view(reading: TopicReading) -> Reading:
    """A reading in the words of topic://, where the topic is its own segment."""
    from metadata.instream.view import as_reading  # each of Spark's processes that plans a read would import it, too

    return as_reading(reading)


def pieces_by_topic(ranges: Sequence[Range], *, marks: bool) -> list[list[Piece]]:
    """For each topic with rows in its range its pieces in order."""
    return [found for one in ranges if (found := list(one.pieces(marks=marks)))]


def topic(reading: TopicReading) -> Topic:
    """The topic as those see it who know topics of either kind: name and schema."""
    return Topic(reading.topic.name, reading.topic.layout, reading.topic.record)


def where_now(client: Client, topic: Topic, number: int) -> tuple[TopicName, int]:
    """What a topic goes by now, and where a number of its log is there: both change for one that was migrated."""
    to = topic.layout.migrated_to if isinstance(topic.layout, PersistentLayout) else None
    if to is None:
        return topic.name, number
    there = client.topics.get(topic_name(to))
    return there.name, to_cluster(number, legacy_shift(there, str(topic.name)))


def names(client: Client, selection: Selection) -> list[PersistentName]:
    """The persistent topics that a selection names today; of a pattern those whose full name it matches."""
    if isinstance(selection, Pattern):
        return [found.name for found in client.instream.topics.list(selection.compiled)]
    return list(selection.persistent)


def topics(client: Client, selection: Selection, ranges: Sequence[Range]) -> list[Topic]:
    """The persistent topics of a selection, those without a range in this read too. Raises TopicNotFound."""
    known = {one.reading.topic.name: one.topic for one in ranges}
    return [known.get(name) or client.topics.get(name) for name in names(client, selection)]


def read(client: Client, selection: Selection) -> tuple[TopicReading, ...]:
    """A decision for each topic that has rows of its own still. Raises TopicNotFound."""
    return holding(client, [client.instream.buffer.read(name) for name in names(client, selection)])


def read_final(client: Client, options: ReadOptions, ms: int) -> tuple[TopicReading, ...]:
    """The same in which the end by this timestamp is final; it waits for that. Raises OffsetOutOfRange."""
    named = names(client, options.selection)
    return holding(client, [timestamps.of_topic(client, name, ms, options.timestamp_timeout_ms) for name in named])


def holding(client: Client, found: Sequence[TopicReading], beside: Sequence[Topic] = ()) -> tuple[TopicReading, ...]:
    """Those that have rows of their own still: of migrated topics not those whose rows are gone with the topic that goes on, which
    was deleted, made again or not, or of which retention has taken all of them.

    `beside`: topics that the same read takes as they are here, so that it has all of them or nothing. A round trip for others that
    one was migrated to.
    """
    to = {one.topic.name: topic_name(to) for one in found if (to := one.topic.layout.migrated_to) is not None}
    if not to:
        return tuple(found)

    known: dict[TopicName, Layout] = {topic.name: topic.layout for topic in beside}
    if others := sorted({*to.values()} - known.keys()):
        records = decide(client.cluster.store, lambda view: view.get_many([paths.topic(name) for name in others]))
        known |= {name: Layout.of(r) for name, r in zip(others, records, strict=True) if r is not None}
    onward = {name: known[there] for name, there in to.items() if there in known}
    gone = {name for name, layout in onward.items() if is_its_own(layout, name) and not holds(layout, name)}
    return tuple(one for one in found if one.topic.name not in gone)


def read_batch(client: Client, options: ReadOptions, beside: Reading) -> tuple[Range, ...]:
    """The ranges of a batch, `beside` what it reads of topic://, which was read before.

    Raises TopicNotFound, SubscriptionNotFound, OffsetOutOfRange, DataLoss.
    """
    there = dict.fromkeys([*names(client, options.selection), *_left_out(beside)])
    found = holding(client, [_reading(client, name, options) for name in there], beside.topics)
    if isinstance(options.start, AtLog) and options.fail_on_data_loss:
        kept = {one.topic.name for one in found}
        for name, place in options.start.positions:
            if name not in kept and _had_more(client, name, place.ledger):
                raise _deleted(client, str(name), place.ledger)
    return tuple(_range(client, one, options) for one in found)


def _left_out(beside: Reading) -> list[PersistentName]:
    """The migrated topics whose rows are for us to read, though what they went on in may be deleted by now."""
    infos = [info for topic in beside.topics for info in topic.layout.kept() if beside.selection.leaves_out(info)]
    return [persistent_name(info.legacy_topic_name) for info in infos if info.legacy_topic_name is not None]


def _reading(client: Client, name: PersistentName, options: ReadOptions) -> TopicReading:
    """The one decision of a batch about a topic. Raises TopicNotFound, OffsetOutOfRange."""
    buffer = client.instream.buffer
    if options.isolation_level == "read_uncommitted":
        return buffer.read(name, uncommitted=True)
    if isinstance(options.end, AtLog):
        return buffer.read_to(name, _given(options.end, name).ledger)
    if isinstance(options.end, AtTime):
        return timestamps.of_topic(client, name, options.end.ms, options.timestamp_timeout_ms)
    return buffer.read(name)


def _range(client: Client, reading: TopicReading, options: ReadOptions) -> Range:
    end = end_number(reading, options.end)
    start, done = start_number(reading, options.start), NONE
    if options.subscription is not None:
        start, done = at_cursor(client, reading, options.subscription, end, fail=options.fail_on_data_loss)
    elif options.acknowledged is not None:
        done = options.acknowledged.get(reading.name, NONE)
    if start > end and isinstance(options.start, AtLog):
        raise OffsetOutOfRange(
            f"The start {start} of {reading.name} lies behind the end {end} of this read.",
            advice="Give a start at or before the end.",
        )
    start = min(start, end)
    if options.fail_on_data_loss and options.subscription is None:
        known = known_trims([reading], options.start).get(reading.name, 0)
        check_trim(reading, start, among_trimmed(options.start, start, end), known)
    return Range(reading, start, end, done)


def at_cursor(client: Client, reading: TopicReading, subscription: str, end: int, *, fail: bool) -> tuple[int, Rows]:
    """Before the first row that a subscription has not acknowledged; and what it has. Raises SubscriptionNotFound, and DataLoss if
    retention has taken rows of it.
    """
    shown = view(reading)
    done = acknowledged(client, shown, subscription)
    if fail:
        check_cursors(shown, done, subscription)
    return reading.topic.before_lost(first_pending(shown, done, end)), done[reading.name]


def read_to(client: Client, ends: Mapping[PersistentName, tuple[int, int]], *, fail: bool) -> tuple[Range, ...]:
    """GIVEN ranges, start and end of each topic: the same rows for ever. Raises OffsetOutOfRange rather than fewer; `fail`
    (failOnDataLoss): DataLoss for a topic that was deleted, which is left out otherwise.
    """
    found = []
    for name, (start, end) in ends.items():
        try:
            found.append(Range(client.instream.buffer.read_to(name, end), start, end))
        except TopicNotFound as error:
            if fail:
                raise _deleted(client, str(name), start) from error
    return tuple(found)


# --- starts and ends -----------------------------------------------------------------------------------------------


def start_number(reading: TopicReading, start: Start) -> int:
    """The ledger id after which a read of this topic begins. Raises OffsetOutOfRange."""
    match start:
        case Earliest():
            return 0
        case Latest():
            return reading.topic.before_lost(reading.cut)
        case AtLog():
            return _number(reading, start)
        case AtTime(ms=ms):
            return reading.topic.before_lost(rules.start(reading.published(), ms, reading.cut))


def end_number(reading: TopicReading, end: End) -> int:
    """The ledger id up to and with which a batch reads this topic; by a timestamp: `plan.end_number`. Raises OffsetOutOfRange."""
    match end:
        case Latest():
            return reading.cut
        case AtLog():
            return _number(reading, end)
        case AtTime(ms=ms):
            return reading.topic.before_lost(rules.end(reading.published(), ms, reading.cut)[0])


def _given(offset: AtLog, name: PersistentName) -> Position:
    """What an offset says of a topic. One that it does not name came later, by a pattern: nothing of it was read."""
    return offset.of(name) or Position(0, 0)


def _number(reading: TopicReading, offset: AtLog) -> int:
    place = _given(offset, reading.topic.name)
    within_log(place.ledger, reading)
    last = reading.last_entry(place.ledger)
    if place.entry < last:
        raise OffsetOutOfRange(
            f"The position {place} of {reading.name} lies within one append, whose last entry is {place.ledger}:{last}.",
            advice=f"An append is read whole: give {place.ledger}:{last}, or the position before {place.ledger}:0.",
        )
    if place.entry > last and not 0 < place.ledger <= reading.trimmed_to:
        raise OffsetOutOfRange(
            f"The position {place} of {reading.name} is none: its last entry up to there is {place.ledger}:{last}.",
            advice=f"Give {place.ledger}:{last}, or look where the position comes from: it may be one of another topic.",
        )
    return place.ledger


def within_log(number: int, reading: TopicReading) -> None:
    """Raises OffsetOutOfRange for a ledger that the topic's log has not reached, or that a restore lost: the offset comes from
    elsewhere.
    """
    reading.topic.check_not_lost(number)
    if number > reading.end:
        raise OffsetOutOfRange(
            f"The offset {number} lies beyond the log of {reading.name}, which ends at {reading.end}.",
            advice="The offset or checkpoint belongs to another cluster, or this one was made anew: use a new checkpoint.",
        )


def position(reading: TopicReading, number: int) -> Position:
    """The position of the last entry of an append, as an offset says it."""
    return Position(number, reading.last_entry(number))


# --- what retention has taken --------------------------------------------------------------------------------------


def known_trims(readings: Sequence[TopicReading], start: Start) -> dict[str, int]:
    """What was trimmed before a NEW read from `earliest` began, which is no loss for it."""
    return {r.name: r.lost_to for r in readings if r.lost_to} if isinstance(start, Earliest) else {}


def among_trimmed(given: Start, start: int, end: int) -> int:
    """Up to which number a batch looks for what was trimmed. Timestamps become numbers by the rows that are kept and by where each
    trim ended. So a range of timestamps of which all rows were trimmed is empty, and its start is the number before that end.
    """
    return max(end, start + 1) if isinstance(given, AtTime) else end


def check_trim(reading: TopicReading, start: int, end: int, known: int) -> None:
    """Raise DataLoss if retention has taken entries with start < id <= end beyond what was `known` when the read began."""
    begin = max(start, known)
    if begin < min(end, reading.lost_to):
        raise DataLoss(
            f"{reading.name} was trimmed by retention up to {reading.lost_to}: its rows after {begin} up to there, which a read "
            f"after {begin} up to {end} may need, are gone.",
            advice="Start later (earliest does, in a new checkpoint), keep rows longer (retention), or set failOnDataLoss=false to "
            "go on without them.",
        )


def deleted(
    client: Client, selection: Selection, positions: Mapping[str, Position], readings: Sequence[TopicReading], *, fail: bool
) -> set[str]:
    """The topics that were read and have no rows of their own any more: of a pattern those that are deleted by now, and those that
    were migrated and let go. They need no position any more, as no name is used again.

    `fail`: raises DataLoss if one had rows beyond its position, or may have had, which is not known after the grace period.
    """
    there = {one.name for one in readings}
    gone = {name for name in positions if name not in there and _is_read(selection, persistent_name(name))}
    for name in sorted(gone):
        if fail and _had_more(client, persistent_name(name), positions[name].ledger):
            raise _deleted(client, name, positions[name].ledger)
    return gone


def _is_read(selection: Selection, name: PersistentName) -> bool:
    return selection.matches(name) if isinstance(selection, Pattern) else name in selection.persistent


def _had_more(client: Client, name: PersistentName, after: int) -> bool:
    log = client.instream.buffer.log(name)

    def body(view: View) -> bool:
        numbers = log.numbers(view, after - 1)
        entries, (record,) = log.entries(view, numbers, then=[paths.topic(name)])
        trimmed = None if record is None else PersistentLayout.of(record).trimmed_to
        if trimmed is not None and trimmed.ledger_id > after:
            return True
        if not entries:
            return True  # it has left the log
        return any(entry.write is not None for number, entry in entries.items() if number > after)

    return decide(client.cluster.store, body)


def check_nothing_left(client: Client, shown: Reading, after: int, done: Rows) -> None:
    """Of a migrated topic that what goes on has let go: raises DataLoss if it had rows after `after` that are not `done`."""
    (segment,) = shown.segments
    if next(pending(segment, done, after, shown.cut), None) is not None:
        raise _deleted(client, segment.name, after)


def _deleted(client: Client, name: str, after: int) -> DataLoss:
    record = look(client.cluster.store, paths.topic(persistent_name(name)))
    to = None if record is None else PersistentLayout.of(record).migrated_to
    why = "was deleted" if to is None else f"was migrated to {to}, which was deleted or keeps them no longer"
    return DataLoss(
        f"The topic {name} {why}: rows of it after {after}, which this read may need, are gone.",
        advice="Set failOnDataLoss=false to go on without these rows, or use a new checkpoint.",
    )


# --- the limits of a micro-batch ------------------------------------------------------------------------------------


def limited(
    reading: Reading, start: int, end: int, ranges: Sequence[Range], *, max_rows: int | None, max_bytes: int | None
) -> tuple[int, dict[str, Position]]:
    """Where a micro-batch over the log of topic:// (start to `end`, at most to its next seal) and these ranges ends: in the log,
    and in each topic that it moves in.
    """
    if max_rows is None and max_bytes is None:
        return end, {one.reading.name: position(one.reading, one.end) for one in ranges}
    logs = {one.reading.name: _stretch(one.reading, one.start, one.end) for one in ranges}
    if end > start:
        logs[_LOG] = _stretch(reading, start, end)
    ends = limits.limited(logs, max_rows=max_rows, max_bytes=max_bytes)
    moved = {one.reading.name: position(one.reading, n) for one in ranges if (n := ends[one.reading.name]) > one.start}
    return ends.get(_LOG, end), moved


_LOG = "topic://"
"""Among the names of persistent topics: the one log of all others."""


def _stretch(reading: Reading | TopicReading, start: int, end: int) -> Stretch:
    return Stretch(start, end, limits.published(reading.weights(start, end), reading.published(start, end)))
