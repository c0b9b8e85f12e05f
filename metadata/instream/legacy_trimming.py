"""Retention of a migrated segment: its rows lie in the log of the persistent topic that it was (docs/in_stream.md, Migration).

The topic that goes on says what is kept, and its subscriptions hold it back; what is taken leaves as with any persistent topic.
"""

from __future__ import annotations

from typing import NamedTuple

from metadata import retention
from metadata.cluster import Cluster
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.legacy import MigratedSegment, whole_transactions
from metadata.instream.pending_ack import InStreamAcks
from metadata.instream.topics import PersistentTopics
from metadata.instream.trimming import InStreamTrimmer
from metadata.records import Position, Watermark
from metadata.row_ranges import Row
from metadata.segment_view import SegmentView


class Taken(NamedTuple):
    """What a trim took away: rows, and bytes as they were written."""

    rows: int
    bytes: int


def trim(cluster: Cluster, buffer: InStreamBuffer, segment: SegmentView, through: int, needed: Row | None) -> Taken | None:
    """Take whole transactions up to the number `through` of the cluster's log away, as far as nobody needs a row of them; None:
    there was nothing to take. With the last of them goes all else below the SEAL: markers, and what was aborted.
    """
    assert isinstance(segment, MigratedSegment)
    rows = size = 0
    kept: int | None = None
    for one in whole_transactions(segment.ledgers(0, through)):
        if not all(retention.is_done(found.id, found.last_entry, needed) for found in one):
            kept = one[0].id
            break
        rows, size = rows + sum(found.rows for found in one), size + sum(found.bytes for found in one)
    if not rows:
        return None
    if kept is None:
        kept = next((found.id for found in segment.ledgers(through, segment.number(segment.seal))), segment.seal)
    trimmer = InStreamTrimmer(cluster, buffer, PersistentTopics(cluster), InStreamAcks(cluster))
    return Taken(rows, size) if trimmer.trim_to(segment.reading, kept - 1) >= kept - 1 else None


def mark(segment: SegmentView) -> Watermark:
    """What the watermark record of another segment would say of this one, in numbers of its own log: all of it is decided."""
    assert isinstance(segment, MigratedSegment)
    assert segment.sealed_at is not None
    trimmed_ms = segment.reading.topic.layout.trimmed_ms
    return Watermark(ledger_id=segment.sealed_at, entry_id=0, trimmed_to=segment.last_trimmed, trimmed_ms=trimmed_ms)


def guard(segment: SegmentView) -> Watermark:
    """The same in numbers of the cluster's log: the guard of readers once the segment has left the layout."""
    found = mark(segment)
    last = found.trimmed_to
    place = None if last is None else Position(ledger_id=segment.number(last.ledger_id), entry_id=last.entry_id)
    return found.model_copy(update={"trimmed_to": place})
