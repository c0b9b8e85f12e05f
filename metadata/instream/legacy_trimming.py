"""Retention of a migrated segment: its rows lie in the log of the persistent topic that it was (docs/in_stream.md, Migration).

The topic that goes on says what is kept, and its subscriptions hold it back; what is taken leaves as with any persistent topic.
"""

from __future__ import annotations

from metadata.instream import migration_rules
from metadata.instream.buffer import InStreamBuffer
from metadata.instream.legacy import MigratedSegment
from metadata.instream.topics import PersistentTopics
from metadata.instream.trimming import Taken, trim_log
from metadata.records.records import Position, Watermark


def trim(buffer: InStreamBuffer, segment: MigratedSegment, through: int) -> Taken | None:
    """Take what stands at or below the number `through` of the cluster's log away, which splits no transaction; None: there was
    nothing to take.
    """
    if next(segment.ledgers(0, through), None) is None:
        return None
    stays = next((found.id for found in segment.ledgers(through, segment.number(segment.seal))), None)
    to = migration_rules.gone_to(stays, segment.seal)
    taken = trim_log(buffer, PersistentTopics(buffer.cluster), segment.reading, to)
    return taken if taken.rows else None  # somebody else may have been faster


def mark(segment: MigratedSegment) -> Watermark:
    """What the watermark record of another segment would say of this one, in numbers of its own log: all of it is decided."""
    assert segment.sealed_at is not None
    trimmed_ms = segment.reading.topic.layout.trimmed_ms
    return Watermark(ledger_id=segment.sealed_at, entry_id=0, trimmed_to=segment.last_trimmed, trimmed_ms=trimmed_ms)


def guard(segment: MigratedSegment) -> Watermark:
    """The same in numbers of the cluster's log: the guard of readers once the segment has left the layout."""
    found = mark(segment)
    last = found.trimmed_to
    place = None if last is None else Position(ledger_id=segment.number(last.ledger_id), entry_id=last.entry_id)
    return found.model_copy(update={"trimmed_to": place})
