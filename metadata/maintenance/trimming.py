"""Trimming: rows past their retention leave the snapshots, and later the orphan sweep deletes their files (protocol.md section 7).

Any number of processes may trim at once. One CAS of the watermark record removes the rows and moves `trimmedTo`. So a reader finds
either the rows or the new `trimmedTo`, which shows that they were trimmed.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ledgers import snapshot_changes, snapshots
from ledgers.snapshots import SnapshotHead
from metadata.cluster.clock_looks import seen_for
from metadata.cluster.cluster import Cluster
from metadata.common.errors import BadVersion, UnknownOutcome
from metadata.common.failures import RACES, contained
from metadata.cursors.cursors import live
from metadata.maintenance.compaction import change_snapshot
from metadata.read.marker_model import MigratedSegment
from metadata.read.reading import LogSelection, Reading
from metadata.read.segment_view import SegmentView
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records import paths
from metadata.records.names import TopicName
from metadata.records.records import Layout, Policies, Position, Watermark
from metadata.records.row_ranges import Row
from metadata.rules import acks, elapsed, retention
from metadata.rules.retention import Kept
from metadata.store.contract import View, decide, look, until
from metadata.topics.topics import Topics

log = logging.getLogger("txnsegment.trimming")


@dataclass
class Trimmed:
    """The result of a trim. `segments`: the number of segments that lost rows. `rows`, `bytes`: the trimmed rows, and their bytes
    as written. `left`: the number of segments that left their layouts.
    """

    segments: int = 0
    rows: int = 0
    bytes: int = 0
    left: int = 0


class Trimmer:
    """Trims the topics of one cluster."""

    def __init__(self, cluster: Cluster, buffer: TransactionBuffer) -> None:
        self.cluster, self.buffer = cluster, buffer

    def policies(self, name: TopicName, layout: Layout) -> Policies:
        """Return the effective policies of a topic. A policy that the topic does not set is that of its namespace."""
        record = look(self.cluster.store, paths.namespace(name.tenant, name.namespace))
        return retention.effective(layout.policies, None if record is None else Policies.of(record))

    def trim(self, name: TopicName, done: Trimmed | None = None) -> Trimmed:
        """Trim one topic by its policies, then remove drained segments from its layout. Add the result to `done`, and return
        `done`. Raises TopicNotFound, CorruptSnapshot, StorageError, TxnConflict.
        """
        done = Trimmed() if done is None else done
        reading = self.buffer.read(LogSelection((str(name),)))
        (topic,) = reading.topics
        policies = self.policies(name, topic.layout)
        if policies.retention_ms is not None or policies.retention_bytes is not None:
            total = sum(segment.size(reading.cut) for segment in reading.segments)
            now_ms, known_to = self._time(reading, policies.retention_ms)
            through = retention.trim_to(_kept(reading), policies, total_bytes=total, now_ms=now_ms, known_to=known_to)
            through = _folded_in_all(reading.segments, through)
            if through and not policies.despite_subscriptions:
                through = self._free_to(reading.segments, through)
            for segment in reading.segments if through else ():
                if isinstance(segment, MigratedSegment):
                    self._trim_migrated(segment, through, done)
                else:
                    self._trim_segment(segment.name, min(through, segment.folded_to), done)
        self._leave(name, done)
        return done

    def _time(self, reading: Reading, keep_ms: int | None) -> tuple[int, int | None]:
        """Return the time (ms) against which ages are judged, and the number above which no row is old enough to be trimmed. The
        number is None if `keep_ms` is None.
        """
        if keep_ms is None:
            return reading.now_ms, None
        seen = seen_for(self.cluster.store, self.cluster.clock, keep_ms)
        # `known_to` would count the rows of a migrated segment as young, because their numbers are just below the segment's seal.
        # But the rows are older than the migration. So numbers up to the seal are not excluded: the publish times alone decide.
        migrated = [s.sealed_at or 0 for s in reading.segments if s.info.legacy_topic_name is not None]
        return elapsed.now_for(seen, keep_ms), max([elapsed.known_to(seen, keep_ms), *migrated])

    def _free_to(self, segments: Iterable[SegmentView], through: int) -> int:
        """Return the number, at most `through`, up to which all segments may be trimmed. If a subscription still needs a row in any
        segment, the result is below the transaction of the first such row. A trim beyond this number would remove the rows of that
        transaction from the other segments.
        """
        for segment in segments:
            needed = self._needed(segment.name)
            if needed is not None:
                through = segment.free_to(needed, through)
        return through

    def _needed(self, segment: str) -> Row | None:
        """Return the first row of a segment that a subscription still needs; None if no subscription needs one. Rows with a pending
        ack count as needed: if the transaction aborts, they are delivered again.
        """
        found = decide(self.cluster.store, lambda view: list(live(view, segment).values()))
        return min((acks.first_unacknowledged_row(cursor) for cursor in found), default=None)

    def _trim_segment(self, segment: str, through: int, done: Trimmed) -> None:
        last: Position | None = None
        rows = size = latest = 0

        def change(head: SnapshotHead) -> str | None:
            nonlocal last, rows, size, latest
            last, rows, size, latest = None, 0, 0, 0
            for ledger in snapshots.read_ledgers(self.cluster.storage, head, -1, through):
                last = Position(ledger_id=ledger.id, entry_id=ledger.last_entry)
                latest = max(latest, ledger.publish_ms)
                rows += ledger.rows
                size += ledger.bytes
            if last is None:
                return None
            return snapshot_changes.trimmed(self.cluster.storage, head, last.ledger_id, name=self.cluster.unique())

        def update(mark: Watermark) -> dict[str, object]:
            return {"trimmed_to": last, "trimmed_ms": max(latest, mark.trimmed_ms or 0)}

        if change_snapshot(self.cluster, segment, change, update=update):
            done.segments += 1
            done.rows += rows
            done.bytes += size
            log.info("trimmed %s up to %s: %s rows", segment, last, rows)

    def _trim_migrated(self, segment: MigratedSegment, through: int, done: Trimmed) -> None:
        taken = segment.trim(through)
        if taken is not None:
            done.segments += 1
            done.rows += taken.rows
            done.bytes += taken.bytes

    def _leave(self, name: TopicName, done: Trimmed) -> None:
        """Remove drained segments (sealed, without rows) from the layout."""
        settings = self.cluster.settings

        def body(view: View) -> int | None:
            record = view.get(paths.topic(name))
            if record is None:
                return 0
            layout = Layout.of(record)
            if layout.deleted:
                return 0
            sealed = [info for info in layout.kept() if info.sealed_at_log is not None and info.legacy_topic_name is None]
            topic = Topics(self.cluster).get(name)
            marks = view.get_many([paths.watermark(topic.segment(info)) for info in sealed]) if sealed else []
            drained = {}
            for info, found in zip(sealed, marks, strict=True):
                mark = None if found is None else Watermark.of(found)
                empty = mark is None or mark.snapshot is None or self.buffer.head(mark.snapshot).rows == 0
                if mark is not None and retention.is_drained(
                    info, mark, empty, self._needed(topic.segment(info)), now_ms=view.now_ms(), grace_ms=settings.grace_period_ms
                ):
                    drained[info.segment_id] = mark
            drained |= self._drained_migrated(layout, name, view.now_ms())
            if not drained:
                return 0
            after = retention.without_drained(layout, drained)
            try:
                self.cluster.store.put(record.key, after.to_bytes(), expect=record)
            except (BadVersion, UnknownOutcome):
                return None
            return len(drained)

        done.left += until(lambda: decide(self.cluster.store, body))

    def _drained_migrated(self, layout: Layout, name: TopicName, now_ms: int) -> dict[int, Watermark]:
        """Return the guard (`MigratedSegment.guard`) of each drained migrated segment, by segment id. A migrated segment never gets
        new rows, so a drained one stays drained until the caller changes the layout.
        """
        infos = [info for info in layout.kept() if info.sealed_at_log is not None and info.legacy_topic_name is not None]
        if not infos:
            return {}
        grace_ms = self.cluster.settings.grace_period_ms
        reading = self.buffer.read(LogSelection((str(name),)))
        segments = {segment.info.segment_id: segment for segment in reading.segments if isinstance(segment, MigratedSegment)}
        drained = {}
        for info in infos:
            segment = segments.get(info.segment_id)
            if segment is None:
                continue  # another process removed the segment from the layout
            mark = segment.mark()
            empty = segment.last(reading.cut) is None
            if retention.is_drained(info, mark, empty, self._needed(segment.name), now_ms=now_ms, grace_ms=grace_ms):
                drained[info.segment_id] = segment.guard()
        return drained


def _folded_in_all(segments: Iterable[SegmentView], through: int) -> int:
    """Return the highest number, at most `through`, up to which every segment is folded. So no trim splits a transaction."""
    return min([through, *(segment.live[0][0] - 1 for segment in segments if segment.live)])


def trim_all(cluster: Cluster, buffer: TransactionBuffer, done: Trimmed) -> dict[str, Exception]:
    """Trim every topic. Return the errors by topic; a failed topic does not stop the others."""
    failed: dict[str, Exception] = {}
    trimmer = Trimmer(cluster, buffer)
    for topic in Topics(cluster).list():
        with contained("trim", str(topic.name), failed, races=RACES):
            trimmer.trim(topic.name, done)
    return failed


def _kept(reading: Reading) -> Iterator[Kept]:
    """Yield each visible registration of the reading once, with its bytes in all segments, ascending and lazily."""

    pending: Kept | None = None
    for one in heapq.merge(*(segment.kept(reading.cut) for segment in reading.segments)):
        if pending is not None and pending.number != one.number:
            yield pending
            pending = None
        pending = one if pending is None else pending._replace(bytes=pending.bytes + one.bytes)
    if pending is not None:
        yield pending
