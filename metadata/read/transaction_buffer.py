"""Compute the rows that a reader may see: the verdict on each registration of the live log, the cut, and the visible ledgers of
each segment (protocol.md section 6).

A read syncs with the store. Then it reads, in this order: the live log, the headers, topic names and layouts, watermarks and
snapshots. In another order it would miss rows if, between two steps, a transaction is folded or a segment is created or split.
Guards against failures A28, A29 and A32 (protocol.md section 9).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from metadata.cluster.cluster import Cluster
from metadata.common.errors import OffsetOutOfRange, OptionError
from metadata.log import ending
from metadata.log.live_log import Entry, Listing, LiveLog
from metadata.read.marker_model import MarkerModel
from metadata.read.reading import LogSelection, Reading
from metadata.read.segment_view import SegmentView, StoredSegment
from metadata.read.snapshot_heads import SnapshotHeads
from metadata.records import paths
from metadata.records.names import TopicName, is_persistent, persistent_name, segment_name, topic_name
from metadata.records.records import Header, Layout, Registration, SegmentInfo, SegmentState, State, Watermark
from metadata.rules import transitions
from metadata.rules.timestamps import OpenTransaction, OpenTransactions
from metadata.rules.transitions import Gone, Verdict
from metadata.store.contract import Record, View, decide
from metadata.topics.topics import Topic, Topics, compiled, every, missing, of_record

if TYPE_CHECKING:
    from ledgers.snapshots import SnapshotHead

T = TypeVar("T")


class _LookAgain(Exception):
    """A transaction was settled, folded or decided between two reads. The caller starts over from a fresh view."""


@dataclass
class TransactionBuffer:
    """A reader of one cluster. It caches the live log, final verdicts and snapshot heads. Several threads may use it."""

    cluster: Cluster
    markers: MarkerModel
    log: LiveLog = field(default_factory=LiveLog)
    _final: dict[int, Verdict] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def heads(self) -> SnapshotHeads:
        return SnapshotHeads(self.cluster.storage)

    def read(self, selection: LogSelection, *, uncommitted: bool = False) -> Reading:
        """Return a reading up to the current cut. Raises TopicNotFound.

        `uncommitted` (isolationLevel read_uncommitted): the cut is the end of the log, and every registration above the watermarks
        is visible, even if its transaction is undecided or aborted. Only registrations above the seal of a segment stay invisible
        in that segment.
        """
        return self.deciding(lambda view: self._read(view, selection, uncommitted))

    def read_to(self, selection: LogSelection, end: int, *, attempts: int = 5) -> Reading:
        """Return a reading whose cut is at or above `end`. Such a reading has every row up to `end`. The caller has `end` from a
        replayed micro-batch or from the user.

        Raises TopicNotFound. Raises OffsetOutOfRange if the log ends before `end`, if a transaction at or below `end` is still
        undecided after several attempts, or if a restore lost `end`. Guards against failure A31 (protocol.md section 9).
        """
        self.cluster.check_not_lost(end)
        for _ in range(attempts):
            reading = self.read(selection)
            if reading.cut >= end:
                return reading
            if reading.end_of_log >= end and reading.undecided:
                self.cluster.clock.sleep(0.05)
        raise OffsetOutOfRange(
            f"The offset {end} lies beyond what is decided: the log ends at {reading.end_of_log}, "
            f"undecided are {', '.join(f'{n} ({txn})' for n, txn in reading.undecided) or 'none'}.",
            advice="Give an offset that a query has reported, or wait until the transaction is decided or times out.",
        )

    def verdicts(self, view: View, listing: Listing) -> dict[int, Verdict]:
        """Return the verdict on each entry of a listing, by number. Final verdicts are cached, because they never change."""
        with self._lock:
            live = {e.number for e in listing.entries}
            for number in [n for n in self._final if n not in live]:
                del self._final[number]
            known = dict(self._final)
        open_entries: list[Entry] = []
        found: dict[int, Verdict] = {}
        for entry in listing.entries:
            verdict = known.get(entry.number) or transitions.resolve(entry.number, entry.registration, Gone.UNREAD)
            if verdict is Verdict.READ_AGAIN:
                open_entries.append(entry)
            else:
                found[entry.number] = verdict
        if open_entries:
            found.update(self._by_headers(view, open_entries))
        with self._lock:
            self._final.update((n, v) for n, v in found.items() if v is not Verdict.UNDECIDED)
        return found

    def _by_headers(self, view: View, entries: Sequence[Entry]) -> dict[int, Verdict]:
        txns = [e.registration.txn or "" for e in entries]
        headers = [None if r is None else Header.of(r) for r in view.get_many([paths.header(t) for t in txns])]
        found: dict[int, Verdict] = {}
        gone: list[Entry] = []
        for entry, header in zip(entries, headers, strict=True):
            if header is None:
                gone.append(entry)
                continue
            if not self.cluster.store.read_only and self._is_expired(view, header):
                self._abort_expired(view, entry.registration.txn or "")
                raise _LookAgain
            found[entry.number] = transitions.resolve(entry.number, entry.registration, header)
        if gone:
            again = view.get_many([paths.LOG.key(e.number) for e in gone])
            for entry, record in zip(gone, again, strict=True):
                if record is None:
                    raise _LookAgain
                registration = Registration.of(record)
                self.log.update(Entry(entry.number, record, registration))
                found[entry.number] = transitions.resolve(entry.number, registration, Gone.GONE, reread=True)
        return found

    def _is_expired(self, view: View, header: Header) -> bool:
        return transitions.expired(header, view.now_ms(), self.cluster.settings.deadline_allowance_ms)

    def _abort_expired(self, view: View, txn_id: str) -> None:
        """Abort a transaction that is past its deadline. Several processes may try: a CAS changes the header only once (8.10)."""
        record = view.get(paths.header(txn_id))
        if record is None:
            return
        if not self._is_expired(view, Header.of(record)):
            return
        ending.end(self.cluster.store, record, State.ABORTED, now_ms=view.now_ms())  # the caller reads again

    def deciding(self, body: Callable[[View], T]) -> T:
        """Return the result of `body`, which uses `verdicts`. If `body` raises _LookAgain, it is called again with a new view."""
        while True:
            try:
                return decide(self.cluster.store, body)
            except _LookAgain:
                continue

    def _read(self, view: View, selection: LogSelection, uncommitted: bool) -> Reading:
        listing = self.log.list(view, again=self.still_open)
        verdicts = self.verdicts(view, listing)
        topics, names = self._topics(view, selection)
        if self.cluster.store.read_only:  # the rows of an unfinished migration are not in the cluster's log yet
            names = [n for n in names if n[1].legacy_topic_name is None or n[1].state is SegmentState.SEALED]
        marks = view.get_many([paths.watermark(s) for _, _, s in names])
        seals = listing.seals()
        sealed = {name: transitions.sealed_at(info.segment_id, name, topic.layout, seals) for topic, info, name in names}
        for topic, info, name in names:
            if info.legacy_topic_name is not None and sealed[name] is None and info.deleted_at_log is None:
                Topics(self.cluster).complete(topic.name)  # finish an unfinished migration
                raise _LookAgain
        undecided = [
            e
            for e in listing.entries
            if verdicts[e.number] is Verdict.UNDECIDED
            and any(selection.covers(s) and not transitions.void_by_seal(e.number, sealed.get(s)) for s in e.registration.segments)
        ]
        cut = listing.end if uncommitted else transitions.cut((e.number for e in undecided), listing.end)
        shown = {n for n, verdict in verdicts.items() if uncommitted or verdict is Verdict.VISIBLE}
        touching = _by_segment(listing)
        segments = [
            self._segment(topic, info, name, mark, listing._replace(entries=touching.get(name, [])), sealed[name], shown)
            for (topic, info, name), mark in zip(names, marks, strict=True)
        ]
        return Reading(
            self.cluster,
            cut,
            listing.end,
            view.now_ms(),
            tuple(t for t in topics if not t.layout.deleted),
            tuple(s for s in segments if s.deleted_at is None),
            () if uncommitted else tuple((e.number, e.registration.txn or "") for e in undecided),
            tuple(s for s in segments if s.deleted_at is not None),
            tuple((str(t.name), n) for t in topics if (n := self._forgotten_to(view, t)) is not None),
            selection,
            () if uncommitted else tuple((e.number, e.registration.publish_ms) for e in undecided),
        )

    def open_transactions(self) -> OpenTransactions:
        """Return the transactions over topic:// topics that may still register rows. This call first aborts transactions that are
        past their deadline (8.10). A read of the log after this call sees all registrations of all other transactions that began
        before this call.
        """

        def body(view: View) -> OpenTransactions:
            now_ms = view.now_ms()  # read before the scan: a header that the scan misses was created after now_ms
            found = []
            for record in view.scan_index(paths.TXN_BY_DEADLINE, paths.pad20(0), "9" * 20):
                header, txn_id = Header.of(record), record.key.partition
                if transitions.expired(header, now_ms, self.cluster.settings.deadline_allowance_ms):
                    self._abort_expired(view, txn_id)
                    raise _LookAgain
                if header.state is State.OPEN:
                    found.append(OpenTransaction(txn_id, header.created_ms, header.deadline_ms, header.owner))
            return OpenTransactions(now_ms, tuple(found), self.cluster.settings.deadline_allowance_ms)

        return self.deciding(body)

    def _in_grace(self, view: View, topic: Topic) -> list[SegmentInfo]:
        return transitions.in_grace(topic.layout, view.now_ms(), self.cluster.settings.grace_period_ms)

    def _forgotten_to(self, view: View, topic: Topic) -> int | None:
        """Return the `deleted_to_log` that the layout should have now. An orphan sweep writes this value into the layout later."""
        grace_ms = self.cluster.settings.grace_period_ms
        return transitions.without_gone(topic.layout, now_ms=view.now_ms(), grace_ms=grace_ms).deleted_to_log

    def still_open(self, entry: Entry) -> bool:
        """Return whether a cached entry must be read again, because it is not settled and its final verdict is not cached."""
        return entry.registration.state is None and entry.registration.txn is not None and entry.number not in self._final

    def _topics(self, view: View, selection: LogSelection) -> tuple[list[Topic], list[tuple[Topic, SegmentInfo, str]]]:
        if selection.pattern is not None:
            topics = every(view, compiled(selection.pattern))
            names = [n for n in map(topic_name, selection.further) if n not in {t.name for t in topics}]
            records = view.get_many([paths.topic(n) for n in names]) if names else []
            # a deleted topic is included, because the layout in its tombstone may still have segments within the grace period
            topics += [Topic(n, Layout.of(r), r) for n, r in zip(names, records, strict=True) if r is not None]
            wanted = None
        else:
            names = list(dict.fromkeys(self._topic_of(view, n) for n in selection.names))
            records = view.get_many([paths.topic(n) for n in names])
            topics = [self._present(view, n, r) for n, r in zip(names, records, strict=True)]
            wanted = set(selection.names)
        found: list[tuple[Topic, SegmentInfo, str]] = []
        for topic in topics:
            for info in (*topic.layout.kept(), *self._in_grace(view, topic)):
                name = topic.segment(info)
                if selection.leaves_out(info):
                    continue
                if wanted is None or str(topic.name) in wanted or name in wanted:
                    found.append((topic, info, name))
        if wanted is not None:
            there = {name for _, info, name in found if info.deleted_at_log is None}
            missing = [n for n in wanted if n.startswith(("segment://", "persistent://")) and n not in there]
            if missing:
                raise OptionError(f"There is no segment {missing[0]}.", advice="txnsegment segments show TOPIC lists them.")
        return topics, found

    @staticmethod
    def _topic_of(view: View, name: str) -> TopicName:
        """Return the topic of a name in a selection. For a persistent topic return its successor. Raises OptionError if the
        persistent topic was not migrated.
        """
        if not is_persistent(name):
            return segment_name(name).topic if name.startswith("segment://") else topic_name(name)
        from metadata.records.persistent_records import PersistentLayout  # imported late, because most reads are of topic:// alone

        persistent = persistent_name(name)
        record = view.get(paths.topic(persistent))
        to = None if record is None else PersistentLayout.of(record).migrated_to
        if to is None:
            raise OptionError(
                f"{name} is no segment of a topic:// topic.", advice="A migrated topic is one (txnsegment topics migrate)."
            )
        return topic_name(to)

    def _segment(
        self,
        topic: Topic,
        info: SegmentInfo,
        name: str,
        mark: Record | None,
        listing: Listing,
        sealed: int | None,
        shown: set[int],
    ) -> SegmentView:
        if info.legacy_topic_name is not None:
            return self.markers.segment(topic, info, name, sealed)
        watermark = None if mark is None else Watermark.of(mark)
        folded_to = 0 if watermark is None else watermark.ledger_id
        live = tuple(
            (e.number, e.registration)
            for e in listing.entries
            if e.number > folded_to
            and e.number in shown
            and name in e.registration.segments
            and not transitions.void_by_seal(e.number, sealed)
        )
        head = None if watermark is None or watermark.snapshot is None else self.head(watermark.snapshot)
        return StoredSegment(
            name=name,
            topic=topic,
            info=info,
            sealed_at=sealed,
            watermark=watermark,
            head=head,
            live=live,
            storage=self.cluster.storage,
        )

    def _present(self, view: View, name: TopicName, record: Record | None) -> Topic:
        topic = of_record(name, record)
        if topic is None:
            raise missing(view, name, self.cluster.url)
        return topic

    def head(self, path: str) -> SnapshotHead:
        """Return the head of an index snapshot. Raises CorruptSnapshot, StorageError."""
        return self.heads.get(path)


def _by_segment(listing: Listing) -> dict[str, list[Entry]]:
    """Return the entries of each segment. So a read of many segments does not go through the whole log for each of them."""
    found: dict[str, list[Entry]] = {}
    for entry in listing.entries:
        for name in entry.registration.segments:
            found.setdefault(name, []).append(entry)
    return found
