"""Reads of persistent topics. A replay of the topic's log gives maxReadPosition and the aborted transactions (docs/in_stream.md,
Reading).

A read first lists the numbers of the log's entries. Then it reads the topic's record (system property, snapshot, `trimmed_log`),
and last the entries. The system property tells whether the log has transactional entries. A writer sets it before it appends the
first such entry. So a reader that has listed such an entry finds the property set. `trimmed_log` is the number up to which entries
are trimmed. It covers every entry that left the log before the log was listed.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgers.model import Ledger
from metadata.cluster.cluster import Cluster
from metadata.common import metrics
from metadata.common.errors import BadVersion, CorruptSnapshot, DataLoss, OffsetOutOfRange, UnknownOutcome
from metadata.instream import paths, snapshots
from metadata.instream.managed_log import ManagedLog
from metadata.instream.reading import GROUP, TopicReading
from metadata.instream.rules import TopicState, first_ongoing, fold, max_read, trimmed
from metadata.instream.topics import PersistentTopic, every, not_found, of_record, with_system_property
from metadata.log import live_log as manifests
from metadata.records.names import PersistentName
from metadata.records.persistent_records import EntryKind, LogEntry, SnapshotPointer
from metadata.store.contract import View, decide

log = logging.getLogger("txnsegment.instream")


class _Moved(Exception):
    """Entries were trimmed, or transactions ended, between two reads. The caller starts over."""


class Opened(NamedTuple):
    """The state of a topic as `InStreamBuffer.open` has read it. `end`: the number of the last entry of the log. `cut`: the number
    of maxReadPosition. `state`: the state at the end of the log. `numbers`: the numbers of the entries that are not trimmed.
    `replayed`: how many entries this call of `open` has replayed (0 for a topic without transactions).
    """

    topic: PersistentTopic
    end: int
    cut: int
    state: TopicState
    numbers: tuple[int, ...]
    replayed: int


@dataclass
class _Known:
    """The cached replay of a topic's log. `tip`: the state at the end of the log. `base`: the state at maxReadPosition. Snapshots
    store this state.

    `between`: the entries that are applied to `tip` but not yet to `base`. `numbers`: the numbers of all entries that were not
    trimmed when the log was last listed. `listed`: the highest number that was listed. `trimmed_to`: the number up to which trimmed
    entries were dropped from `tip` and `base`.
    """

    log: ManagedLog[LogEntry]
    lock: AbstractContextManager[object]
    tip: TopicState = field(default_factory=TopicState)
    base: TopicState = field(default_factory=TopicState)
    between: deque[tuple[int, LogEntry]] = field(default_factory=deque)
    numbers: list[int] = field(default_factory=list)
    listed: int = 0
    trimmed_to: int = 0
    unusable: SnapshotPointer | None = None
    """A snapshot that is damaged, or lies beyond the end of the log as listed."""
    shown: TopicState | None = None
    """A copy of `tip` for readers, valid until `tip` changes."""


@dataclass
class InStreamBuffer:
    """The read cache of a cluster's persistent topics. Safe for several threads and any number of processes.

    `resolve` aborts expired transactions of a topic and finishes decided ones. It returns whether the topic's maxReadPosition may
    have advanced.
    """

    cluster: Cluster
    resolve: Callable[[PersistentName], bool] = lambda name: False
    _known: dict[PersistentName, _Known] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, name: PersistentName, *, uncommitted: bool = False) -> TopicReading:
        """Read a topic once. With `uncommitted` (isolationLevel read_uncommitted) the reading has every DATA entry up to the end of
        the log.

        Raises TopicNotFound.
        """

        def body(view: View) -> TopicReading:
            opened = self.open(view, name)
            if not uncommitted and self._has_waited(view, opened) and self.resolve(name):
                raise _Moved
            return TopicReading(
                opened.topic,
                opened.end if uncommitted else opened.cut,
                opened.end,
                view.now_ms(),
                uncommitted,
                self,
                opened.state,
                opened.numbers,
            )

        while True:
            try:
                return decide(self.cluster.store, body)
            except _Moved:
                continue

    def _has_waited(self, view: View, opened: Opened) -> bool:
        """Return whether the first undecided entry is older than the deadline allowance, or is no longer in the log. Then the
        caller resolves the transactions that are open in the topic: it aborts those past their deadline, and finishes the decided
        ones (8.10).
        """
        first = first_ongoing(opened.state)
        if first is None:
            return False
        entries, _ = self.log(opened.topic.name).entries(view, [first])
        return first not in entries or view.now_ms() - entries[first].publish_ms > self.cluster.settings.deadline_allowance_ms

    def read_to(self, name: PersistentName, end: int, *, attempts: int = 5) -> TopicReading:
        """Read a topic at least up to `end`, which a replayed micro-batch or an option names. Raises OffsetOutOfRange if the cut
        stays below `end`, because rows would be missing. This happens if an entry up to `end` is undecided (A31), or does not exist
        yet. Raises OffsetOutOfRange also if a restore lost the number `end`.
        """
        for _ in range(attempts):
            reading = self.read(name)
            reading.topic.check_not_lost(end)
            if reading.cut >= end:
                return reading
            if reading.end >= end:
                self.cluster.clock.sleep(0.05)
        raise OffsetOutOfRange(
            f"The offset {end} of {name} lies beyond what is decided: its log ends at {reading.end}, undecided are "
            f"{', '.join(f'{txn} (from {first} on)' for txn, first in reading.ongoing.items()) or 'none'}.",
            advice="Give an offset that a query has reported, or wait until the transaction is decided or times out.",
        )

    def open(self, view: View, name: PersistentName) -> Opened:
        """Update the cached state of a topic and return it. Raises TopicNotFound."""
        known = self._of(name)
        while True:
            try:
                with known.lock:
                    return self._open(view, name, known)
            except _Moved:
                continue

    def state(self, name: PersistentName) -> TopicState:
        """Return a copy of the topic's state up to the end of its log."""
        return decide(self.cluster.store, lambda view: self.open(view, name).state)

    def log(self, name: PersistentName) -> ManagedLog[LogEntry]:
        return self._of(name).log

    def _of(self, name: PersistentName) -> _Known:
        with self._lock:
            if name not in self._known:
                self._known[name] = _Known(ManagedLog(self.cluster.store, paths.log(name), LogEntry), self.cluster.lock())
            return self._known[name]

    def _open(self, view: View, name: PersistentName, known: _Known) -> Opened:
        fresh = known.log.numbers(view, known.listed)
        topic = of_record(name, view.get(paths.topic(name)))
        if topic is None:
            raise not_found(name)
        layout = topic.layout
        numbers = [n for n in (*known.numbers, *fresh) if n > layout.trimmed_log]
        known.numbers, known.listed = numbers, max(known.listed, *fresh[-1:], 0)
        end = max(numbers[-1] if numbers else 0, layout.trimmed_log)
        if layout.contains_txn is False and not layout.sealing:
            return Opened(topic, end, end, TopicState(at=end), tuple(numbers), 0)
        replayed = self._replay(view, known, topic, end)
        if known.shown is None:
            known.shown = known.tip.copy()
        cut = max(max_read(known.tip, end), layout.trimmed_log)
        return Opened(topic, end, cut, known.shown, tuple(numbers), replayed)

    def _replay(self, view: View, known: _Known, topic: PersistentTopic, end: int) -> int:
        """Apply the new entries to the cached state. If the topic's snapshot is newer than the cached state, the snapshot first
        replaces the cached state. Return the number of applied entries.
        """
        layout = topic.layout
        found = layout.snapshot
        if found is not None and found.at > known.tip.at and (kept := self._kept(known, topic, found, end)) is not None:
            known.base, known.tip = kept
            known.between, known.shown = deque(), None
        elif known.tip.at < layout.trimmed_log:
            # No snapshot covers the trimmed entries. A trim after the topic's first transaction never goes beyond a snapshot. So
            # these entries were trimmed before the first transaction, and none of them belongs to a transaction.
            known.base, known.tip = TopicState(at=layout.trimmed_log), TopicState(at=layout.trimmed_log)
            known.between, known.shown = deque(), None
        todo = known.numbers[bisect_right(known.numbers, known.tip.at) :]
        for i in range(0, len(todo), GROUP):
            some = todo[i : i + GROUP]
            entries, _ = known.log.entries(view, some)
            for number in some:
                if number not in entries:
                    known.numbers, known.listed = [], 0
                    raise _Moved
                fold(known.tip, number, entries[number])
                known.between.append((number, entries[number]))
        self._advance(known, end)
        if todo or known.trimmed_to != layout.trimmed_log:
            trimmed(known.tip, layout.trimmed_log)
            trimmed(known.base, layout.trimmed_log)
            known.trimmed_to, known.shown = layout.trimmed_log, None
        return len(todo)

    def _kept(
        self, known: _Known, topic: PersistentTopic, found: SnapshotPointer, end: int
    ) -> tuple[TopicState, TopicState] | None:
        """Load a snapshot. Return None if it cannot be used. The caller then replays the whole log, and the next snapshot replaces
        this one. But a log that was trimmed or restored lacks entries and cannot be replayed as a whole. Then a snapshot that
        cannot be used raises CorruptSnapshot. Raises StorageError.
        """
        try:
            if found.at <= end:
                kept = snapshots.load(self.cluster.storage, topic.name, found)
                known.unusable = None
                return kept
            if known.unusable != found:  # the snapshot may be newer than the list of the log: list the log again
                known.unusable = found
                raise _Moved
            raise snapshots.corrupt(topic.name, found, f"it is newer than the log, which ends at {end}")
        except CorruptSnapshot as error:
            if topic.layout.trimmed_log or topic.layout.lost:  # the log then lacks entries that only the snapshot covers
                raise
            log.warning("replaying all of %s: %s", topic.name, error.message)
            known.unusable = found
            return None

    @staticmethod
    def _advance(known: _Known, end: int) -> None:
        top = max_read(known.tip, end)
        while known.between and known.between[0][0] <= top:
            fold(known.base, *known.between.popleft())

    def entries(self, name: PersistentName, numbers: Sequence[int]) -> list[tuple[int, LogEntry]]:
        """Return the entries of these numbers, which the caller has listed before. Raises DataLoss if one of them has left the log
        since.
        """
        found, _ = decide(self.cluster.store, lambda view: self._of(name).log.entries(view, numbers))
        if len(found) < len(numbers):
            gone = next(n for n in numbers if n not in found)
            raise DataLoss(
                f"{name} was trimmed by retention after this read was planned: its entry {gone} is gone.",
                advice="Read again; keep rows longer (retention), or read sooner.",
            )
        return list(found.items())

    # --- snapshots --------------------------------------------------------------------------------------------------

    def snapshot(self, name: PersistentName, *, entries: int = 1, after_ms: int = 0) -> bool:
        """Take a snapshot of the topic's transaction buffer if maxReadPosition has advanced by at least `entries` entries since the
        last snapshot. One entry is enough if the last snapshot is at least `after_ms` old. Return whether a snapshot was taken.
        After a lost race or a lost reply the result is False.

        Raises TopicNotFound, StorageError.
        """

        def body(view: View) -> bool:
            opened = self.open(view, name)
            layout, known = opened.topic.layout, self._of(name)
            if layout.contains_txn is False:
                return False  # without transactions there is no state to store
            last = None if layout.snapshot == known.unusable else layout.snapshot
            base, aborted = self._decided(known)
            moved = sum(1 for n in opened.numbers if (0 if last is None else last.at) < n <= base.at)
            waited = view.now_ms() - (layout.created_ms if last is None else last.made_ms)
            if not moved or (moved < entries and waited < after_ms):
                return False
            found, _ = known.log.entries(view, [base.at])
            write = found[base.at].write if base.at in found else None
            pointer = snapshots.pointer(
                self.cluster.storage,
                name,
                base,
                aborted,
                last_entry=0 if write is None else write.entries - 1,
                now_ms=view.now_ms(),
                unique=self.cluster.unique(),
            )
            after = layout.model_copy(update={"snapshot": pointer})
            try:
                self.cluster.store.put(opened.topic.record.key, after.to_bytes(), expect=opened.topic.record)
            except (BadVersion, UnknownOutcome):
                return False
            return True

        return decide(self.cluster.store, body)

    @staticmethod
    def _decided(known: _Known) -> tuple[TopicState, dict[str, int]]:
        """Return copies of the state that a snapshot stores: the state at maxReadPosition, and all aborted transactions, each with
        the number of the marker that aborted it.
        """
        with known.lock:
            return known.base.copy(), dict(known.tip.aborted)

    def confirm(self, name: PersistentName) -> None:
        """Set the system property of a topic if the topic's record lacks it. Records that an older version of txnsegment wrote lack
        it. The value depends on whether the log has transactional messages.

        An existing value stays, also one that a user has set. A value that is not a boolean counts as true, so readers always
        replay the log of such a topic.
        """

        def body(view: View) -> None:
            opened = self.open(view, name)
            if opened.topic.layout.contains_txn is not None:
                return
            log = self.log(name)
            found, _ = log.entries(view, opened.numbers)
            used = any(entry.kind is EntryKind.DATA and entry.txn is not None for entry in found.values())
            after = with_system_property(opened.topic.layout, "true" if used else "false")
            # A writer may have set the property meanwhile, before its first transactional append. This CAS then fails, and must
            # fail, because the value that was computed here is outdated.
            with suppress(BadVersion, UnknownOutcome):
                self.cluster.store.put(opened.topic.record.key, after.to_bytes(), expect=opened.topic.record)
                if used:
                    metrics.USING_TXN_TOPICS.inc()

        decide(self.cluster.store, body)

    def named_files(self, view: View) -> Iterator[str]:
        """Yield the paths of all files that the orphan sweep must keep for persistent topics: those that the topics name in their
        snapshots, and in all entries of their logs, visible or not. The sweep must list the ledger root before this call. The files
        of an entry that leaves the log during the call may be missing in the result. This does no harm, because such an entry was
        trimmed longer ago than the grace period.
        """
        for topic in every(view):
            if topic.layout.snapshot is not None:
                yield from topic.layout.snapshot.files()
            if topic.layout.bare:
                continue  # its log may have entries, but they count for no reader
            log = self.log(topic.name)
            numbers = log.numbers(view)
            for i in range(0, len(numbers), GROUP):
                entries, _ = log.entries(view, numbers[i : i + GROUP])
                for number, entry in entries.items():
                    if entry.kind is not EntryKind.DATA:
                        continue
                    if entry.manifest is not None:
                        yield entry.manifest
                    yield from (part.path for part in self.ledger(topic.name, number, entry).parts)

    def ledger(self, name: PersistentName, number: int, entry: LogEntry) -> Ledger:
        """Return the ledger of a DATA entry, with the parts from the entry or its manifest. Raises CorruptRecord, StorageError."""
        return manifests.ledger(self.cluster.storage, number, entry.registration(str(name)), str(name))
