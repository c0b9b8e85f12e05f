"""Checks for data loss, i.e. for rows in the range of a read that a deletion or retention has removed (protocol.md section 6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from metadata.common.errors import DataLoss
from metadata.read.backlog import pending
from metadata.read.reading import Reading
from metadata.read.segment_view import SegmentView
from metadata.read.selection import AtTime, Earliest, Start
from metadata.records.row_ranges import FIRST, NONE, Rows, before, end_of, last_of, minus
from spark_txn_source.log_ranges import LogRange


def check_deletions(
    found: LogRange,
    known: int,
    trims: Mapping[str, int],
    advice: str = "Start after it (earliest does, in a new checkpoint), or set failOnDataLoss=false to go on without these rows.",
) -> None:
    """Raise DataLoss if a topic that had rows in a range was deleted. Deletions with a seal at or below `known` are no loss. Rows
    that the range leaves out (`found.done`) are no loss. `trims`: the numbers up to which rows were known to be trimmed when the
    read began. Rows above these numbers are a loss even if retention had removed them before the deletion.

    Within the grace period after a deletion it is known exactly which rows were lost. After the grace period any rows below the
    seal may have been lost.
    """
    reading, start, end = found.reading, found.start, found.end
    for segment in reading.gone:
        if segment.deleted_at is None or segment.deleted_at <= max(known, start):
            continue
        lost = next((ledger for ledger, _ in pending(segment, found.done_of(segment), start, end)), None)
        if lost is not None:
            raise DataLoss(
                f"The topic {segment.topic.name} was deleted by the seal {segment.deleted_at}: the rows of {segment.name} from "
                f"{lost.id}:0 on, which a read after {start} up to {end} needs, went with it.",
                advice=advice,
            )
        begin = max(start, _known_of(segment, trims))
        if begin < min(end, segment.trimmed_to) and minus(segment.trimmed(begin), found.done_of(segment)):
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
    """Return the numbers, by segment or topic, up to which trimmed rows are no data loss for a NEW read.

    In each topic, a read from `earliest` begins at the first transaction of which retention has kept all rows in all segments. So
    trims below this transaction are no loss. For any other start the result is empty.

    `cursors`: the read begins at the cursors of a subscription. Then only trims in segments that have left the layout are no loss,
    because a segment leaves the layout only after every subscription has acknowledged its trimmed rows. In the other segments the
    cursor shows which trimmed rows are acknowledged.
    """
    if cursors:
        return reading.guards()
    return reading.whole_from() if isinstance(start, Earliest) else {}


def _known_of(segment: SegmentView, known: Mapping[str, int]) -> int:
    """Return the number in `known` for a segment: the higher one of its own number and the number of its topic."""
    return max(known.get(segment.name, 0), known.get(str(segment.topic.name), 0))


def hidden(reading: Reading, known: Mapping[str, int], *, fail_on_data_loss: bool = True) -> dict[str, Rows]:
    """Return the rows, by segment, that a read leaves out so that it has only whole transactions. Retention has removed other rows
    of the same transactions from another segment of the topic.

    `known`: the trims when the read began. Without `failOnDataLoss` later trims are taken into account, too. A segment in which
    retention has removed all such rows is not in the result.
    """
    now = {} if fail_on_data_loss else reading.whole_from()
    numbers = {segment.name: max(_known_of(segment, known), _known_of(segment, now)) for segment in reading.segments}
    return {s.name: before(end_of(s.ledger_id(numbers[s.name]))) for s in reading.segments if numbers[s.name] > s.trimmed_to}


def check_trims(found: LogRange, known: Mapping[str, int]) -> None:
    """Raise DataLoss if retention has removed rows of a range. Trims in `known`, which were made before the read began, are no
    loss. Rows that the range leaves out (`found.done`) are no loss either.
    """
    reading, start, end = found.reading, found.start, found.end
    if start >= end:
        return
    segments = {segment.name: segment for segment in reading.segments}
    for name, through in reading.trims().items():
        segment = segments.get(name)
        begin = max(start, known.get(name, 0) if segment is None else _known_of(segment, known))
        if begin < min(end, through) and (segment is None or minus(segment.trimmed(begin), found.done_of(segment))):
            after = begin if segment is None else segment.ledger_id(begin)
            raise _trimmed(reading, name, after, f"a read after {begin} up to {end}")


def within_trimmed(found: LogRange, given: Start) -> LogRange:
    """Return the range that a batch checks for trimmed rows. This is the range `found`, except if the batch starts at a timestamp.

    A search for a timestamp sees all trimmed rows as one registration, with the number of the last trimmed registration. If all
    rows between the timestamps of the start and the end were trimmed, the searches for the two timestamps find the same place,
    right before this number. So the range is empty. It is then extended by one number, so that the check finds the trim.
    """
    return replace(found, end=max(found.end, found.start + 1)) if isinstance(given, AtTime) else found


def check_cursors(reading: Reading, done: Mapping[str, Rows], subscription: str) -> None:
    """Raise DataLoss if retention has removed rows that the subscription has not acknowledged, wherever the read starts."""
    for segment in reading.segments:
        left = minus(segment.trimmed(), done.get(segment.name, NONE))
        if left:
            last = ":".join(map(str, last_of(left[0][0]))) if left[0][0] > FIRST else "0"
            raise _trimmed(reading, segment.name, last, f"the subscription {subscription!r}")


def _trimmed(reading: Reading, name: str, after: object, who: str) -> DataLoss:
    gone = next((s.last_trimmed for s in reading.segments if s.name == name), None)
    last = f"{gone}" if gone is not None else f"{reading.trims()[name]}"
    return DataLoss(
        f"{name} was trimmed by retention up to {last}: its rows after {after} up to there, which {who} may need, are gone.",
        advice="Start later (earliest does, in a new checkpoint; subscriptions seek --to earliest moves a subscription), keep rows "
        "longer (txnsegment topics retention), or set failOnDataLoss=false to go on without them.",
    )
