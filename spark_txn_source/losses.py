"""What a read has lost: rows that deletions and retention took, which it raises DataLoss for (protocol.md section 6)."""

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
    """Raise DataLoss if rows of a range went with a topic that was deleted by a seal above `known`, or before that by retention,
    beyond the `trims` that were known when the read began. Rows that are `done` are no loss.

    Within the grace period it is known which rows those were; after it, that there may have been some below the seal.
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


def check_trims(found: LogRange, known: Mapping[str, int]) -> None:
    """Raise DataLoss if retention has taken rows of a range, beyond what was `known` when the read began, and which are not
    `done`.
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
    """The range of a batch in which rows may have been trimmed. Timestamps become numbers by the rows that are kept and by where
    each trim ended. So a range of timestamps of which all rows were trimmed is empty, and its start is the number before that end.
    """
    return replace(found, end=max(found.end, found.start + 1)) if isinstance(given, AtTime) else found


def check_cursors(reading: Reading, done: Mapping[str, Rows], subscription: str) -> None:
    """Raise DataLoss if retention has taken rows that the subscription has not acknowledged, wherever it begins now."""
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
