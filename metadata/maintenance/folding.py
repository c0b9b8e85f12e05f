"""Folding: settled registrations move from the log into index snapshots (protocol.md section 7). Any number of processes may fold
at once. If a process loses a race, another process has done the work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ledgers import snapshots
from metadata.cluster.cluster import Cluster
from metadata.common import metrics
from metadata.common.failures import STORE, contained
from metadata.log.live_log import Listing, ledger, unsettled
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records import paths
from metadata.records.names import TopicName, is_persistent, segment_name, topic_name
from metadata.records.paths import Key
from metadata.records.records import AbortedTxn, Layout, Registration, Watermark
from metadata.rules import transitions
from metadata.store.contract import ABSENT, Delete, Put, Record, View, decide, in_groups, written


@dataclass
class Folded:
    """The result of one folding. `folded`: the number of ledgers moved into snapshots. `dropped`: the number of records dropped
    from the log. `unfolded`: the segments that could not be folded, with the error.
    """

    folded: int = 0
    dropped: int = 0
    unfolded: dict[str, Exception] = field(default_factory=dict)


@dataclass
class Folding:
    """Folds the log of one cluster, as a part of its sweep."""

    cluster: Cluster
    buffer: TransactionBuffer

    def fold(self) -> Folded:
        """Move settled registrations into index snapshots, CAS the watermarks, and drop registrations that are folded in all their
        segments.

        A segment whose files cannot be read keeps its watermark and does not block others; it is returned with its error in
        `unfolded`.
        """
        done = Folded()

        def body(view: View) -> None:
            done.unfolded.clear()
            listing = self.buffer.log.list(view, again=unsettled)
            named = {s for e in listing.entries for s in _segments(e.registration)}
            if not named:
                return
            seals = listing.seals()
            segments = sorted(s for s in named if not is_persistent(s))
            layouts = _layouts(view, segments, [topic_name(s.topic) for s in seals.values() if s.topic is not None])
            records = view.get_many([paths.watermark(s) for s in segments]) if segments else []
            marks = dict(zip(segments, records, strict=True))
            folded_to: dict[str, int | None] = {s: None for s in named if is_persistent(s)}  # migrated segments are never folded
            for segment in segments:
                name = segment_name(segment)
                layout = layouts[name.topic]
                if layout is None or not _has(layouts, segment):
                    # The segment is trimmed or deleted, and counts as folded. Its watermark stays, because a reader may still use
                    # the older layout.
                    folded_to[segment] = None
                    self._forget_events(view, segment)
                    self._clean_behind(view, segment, 10**20 - 1)
                    continue
                sealed = transitions.sealed_at(name.segment_id, segment, layout, seals)
                mark = marks[segment]
                folded_to[segment] = 0 if mark is None else Watermark.of(mark).ledger_id
                with contained("fold", segment, done.unfolded, passing=STORE):
                    folded_to[segment] = self._fold_segment(view, segment, mark, listing, sealed, done)
            self._drop(listing, layouts, folded_to, done)

        decide(self.cluster.store, body)
        return done

    def _fold_segment(
        self, view: View, segment: str, mark: Record | None, listing: Listing, sealed: int | None, done: Folded
    ) -> int:
        """Fold one segment. Return the log number of the segment's watermark, as far as this sweep knows it."""
        before = None if mark is None else Watermark.of(mark)
        at = 0 if before is None else before.ledger_id
        plan = transitions.fold(segment, at, [(e.number, e.registration) for e in listing.entries], sealed)
        if plan is None or not self._forget_events(view, segment):
            return at
        registrations = {e.number: e.registration for e in listing.entries}
        storage = self.cluster.storage
        found = [ledger(storage, n, registrations[n], segment) for n in plan.committed]
        top = found[-1].last_entry if found and found[-1].id == plan.through else 0
        snapshot = None if before is None else before.snapshot
        if found:
            name = self.cluster.unique()
            snapshot = snapshots.extend(storage, snapshot, segment, found, watermark=(plan.through, top), name=name)
        after = (before or Watermark(ledger_id=0, entry_id=0)).model_copy(
            update={"ledger_id": plan.through, "entry_id": top, "snapshot": snapshot}
        )
        if not written(
            self.cluster.store, Put(paths.watermark(segment), after.to_bytes(), expect=ABSENT if mark is None else mark)
        ):
            return at  # another sweeper moved the watermark; the new snapshot file is an orphan
        done.folded += len(found)
        self._clean_behind(view, segment, plan.through)
        return plan.through

    def _clean_behind(self, view: View, segment: str, through: int) -> None:
        """Delete the segment's records of aborted transactions up to the number `through`, its watermark."""
        with metrics.INDEX_QUERY_SECONDS.time():
            passed = view.scan_index(
                paths.TXN_ABORTED_BY_POSITION,
                paths.aborted_position(segment, 0, 0),
                paths.aborted_position(segment, through, 10**20 - 1),
            )
        for some in in_groups(passed):
            written(self.cluster.store, *(Delete(record.key) for record in some))

    def _forget_events(self, view: View, segment: str) -> bool:
        """Delete a segment's events. Return False after a lost race. Events only wake readers, and the snapshot shows what the
        events announced. The caller deletes the events before it moves the watermark. If it did so afterwards, a crash in between
        could leave events for ever, because an idle segment is not folded again.
        """
        events = paths.segment_events(segment)
        keys = [Key(path, events.partition) for path in view.keys(events.range())]
        return all(written(self.cluster.store, *(Delete(key) for key in some)) for some in in_groups(keys))

    def _drop(
        self, listing: Listing, layouts: Mapping[TopicName, Layout | None], folded_to: dict[str, int | None], done: Folded
    ) -> None:
        seals = listing.seals()
        doomed = []
        for entry in listing.entries:
            registration = entry.registration
            layout = layouts.get(topic_name(registration.topic)) if registration.topic else None
            shown = registration.seal is None or not transitions.unfinished(entry.number, registration, layout, seals)
            marks = {s: folded_to[s] for s in _segments(registration)}
            if transitions.may_drop(entry.number, registration, marks, listing.end, seal_shown=shown):
                doomed.append(entry)
        for some in in_groups(doomed):
            if written(self.cluster.store, *(Delete(e.record.key, expect=e.record) for e in some)):
                done.dropped += len(some)
            else:
                done.dropped += sum(written(self.cluster.store, Delete(e.record.key, expect=e.record)) for e in some)

    def collect_aborted(self) -> None:
        """Delete records of aborted transactions that no fold deletes. A slow sweeper may write such a record after other sweepers
        have settled the transaction, folded its segment, and deleted the segment's records of aborted transactions.
        """

        def body(view: View) -> None:
            with metrics.INDEX_QUERY_SECONDS.time():
                found = view.scan_index(paths.TXN_ABORTED_BY_POSITION, "", "~")
            if not found:
                return
            # an aborted record is needed until the watermark of its segment has passed it
            segments = sorted({paths.decode(r.key.partition) for r in found})
            layouts = _layouts(view, segments)
            marks = dict(zip(segments, view.get_many([paths.watermark(s) for s in segments]), strict=True))
            passed = []
            for record in found:
                segment = paths.decode(record.key.partition)
                mark = marks[segment]
                through = None if mark is None else Watermark.of(mark).ledger_id
                if not _has(layouts, segment) or (through is not None and AbortedTxn.of(record).max_ledger_id <= through):
                    passed.append(record.key)
            for some in in_groups(passed):
                written(self.cluster.store, *(Delete(key) for key in some))

        decide(self.cluster.store, body)


def _layouts(view: View, segments: Sequence[str], topics: Sequence[TopicName] = ()) -> dict[TopicName, Layout | None]:
    """Return the layouts of `topics` and of the topics of `segments`, tombstones included."""
    names = sorted({*topics, *(segment_name(s).topic for s in segments)})
    records = view.get_many([paths.topic(n) for n in names]) if names else []
    return {n: None if r is None else Layout.of(r) for n, r in zip(names, records, strict=True)}


def _has(layouts: Mapping[TopicName, Layout | None], segment: str) -> bool:
    name = segment_name(segment)
    layout = layouts[name.topic]
    return layout is not None and str(name.segment_id) in layout.segments


def _segments(registration: Registration) -> tuple[str, ...]:
    return tuple(registration.segments) + (registration.seal or ())
