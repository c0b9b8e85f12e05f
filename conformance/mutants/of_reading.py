"""Faults of reads: which registrations are visible, where the cut lies, how batches and streams are planned (protocol.md section
6).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from conformance.mutants.planting import Real, fault
from conformance.store.faults.planting import SoundView
from metadata.log.live_log import Entry, Listing, LiveLog
from metadata.read.log_reader import ClusterLog
from metadata.read.reading import LogSelection, Reading
from metadata.read.segment_view import StoredSegment
from metadata.read.transaction_buffer import TransactionBuffer
from metadata.records import paths
from metadata.records.paths import Key
from metadata.records.records import Header, Registration, State
from metadata.rules.transitions import Gone, Verdict, Weight
from metadata.store.contract import Record, View
from spark_txn_source.following import Following
from spark_txn_source.log_ranges import LogRange
from spark_txn_source.offsets import StreamOffset
from spark_txn_source.options import ReadOptions
from spark_txn_source.planned import ReadTask

_RESOLVE = "metadata.rules.transitions:resolve"
_BUFFER = "metadata.read.transaction_buffer:TransactionBuffer"
_LIMITED = "metadata.rules.transitions:limited"
_WAITING = "tests/spark_txn_source/test_waiting_streams.py"


def _in_state(header: Header | Gone, was: State, becomes: State, number: int) -> Header | Gone:
    if not isinstance(header, Header) or header.state is not was:
        return header
    return header.model_copy(update={"state": becomes, "commit": number})


# --- which registrations count --------------------------------------------------------------------------------------


@fault(
    "A2, 8.4", "The registration of an ABORTED transaction is filtered.", at=_RESOLVE, by="script a02_aborted_rows_are_never_read"
)
def aborted_rows_are_read(real: Real, number: int, registration: Registration, header: Header | Gone, *, reread: bool) -> Any:
    return real(number, registration, _in_state(header, State.ABORTED, State.COMMITTED, number), reread=reread)


@fault(
    "A11, 8.4",
    "A registration that is not settled and whose header is gone is filtered.",
    at=_RESOLVE,
    by="script a07_replay_shows_nothing_aborted",
)
def gone_means_committed(real: Real, number: int, registration: Registration, header: Header | Gone, *, reread: bool) -> Any:
    is_unsettled = registration.state is None and registration.seal is None
    return Verdict.VISIBLE if reread and is_unsettled else real(number, registration, header, reread=reread)


@fault(
    "A8, 8.9",
    "An aborted transaction is decided, so it does not hold back the cut.",
    at=_RESOLVE,
    by="script a08_aborted_tail_holds_nobody_up",
)
def aborted_tail_holds_readers(real: Real, number: int, registration: Registration, header: Header | Gone, *, reread: bool) -> Any:
    return real(number, registration, _in_state(header, State.ABORTED, State.OPEN, number), reread=reread)


@fault(
    "model reread-gone, A27",
    "If a header is missing, the registration is read again. Only if it is still not settled, its transaction did not commit.",
    at=_RESOLVE,
    by="script a27_gone_header_of_a_committed_transaction",
)
def reread_gone(real: Real, number: int, registration: Registration, header: Header | Gone, *, reread: bool) -> Any:
    return Verdict.FILTERED if reread else real(number, registration, header, reread=reread)


@fault(
    "8.5",
    "Only verdicts on decided transactions are cached.",
    at=f"{_BUFFER}.verdicts",
    by="script a04_hanging_transaction_pins_nothing",
)
def undecided_is_remembered(real: Real, self: TransactionBuffer, view: View, listing: Listing) -> Any:
    found = real(self, view, listing)
    self._final.update(found)
    return found


@fault(
    "8.5",
    "A thread with an older listing of the log removes no entries that another thread has cached.",
    at="metadata.log.live_log:LiveLog._known",
    by="tests/metadata/log/test_live_log.py",
)
def older_listing_wins(real: Real, self: LiveLog, numbers: Sequence[int]) -> dict[int, Entry]:
    for number in self._entries.keys() - set(numbers):
        del self._entries[number]
    return self._entries


# --- the order of reading, the cut ----------------------------------------------------------------------------------


class _Remembering(SoundView):
    """A view that reads each key only once, and lists each range of keys only once. Later it returns the first answer again."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._records: dict[Key, Record | None] = {}
        self._paths: dict[paths.KeyRange, list[str]] = {}

    def get_many(self, keys: Sequence[Key]) -> list[Record | None]:
        missing = [key for key in keys if key not in self._records]
        if missing:
            self._records |= dict(zip(missing, self.view.get_many(missing), strict=True))
        return [self._records[key] for key in keys]

    def keys(self, within: paths.KeyRange) -> list[str]:
        if within not in self._paths:
            self._paths[within] = self.view.keys(within)
        return self._paths[within]

    def scan(self, within: paths.KeyRange) -> list[Record]:
        return [record for record in self.get_many([Key(path, "") for path in self.keys(within)]) if record is not None]


@fault(
    "model log-before-snapshot, A28",
    "The live log is read before watermarks and snapshots.",
    at=f"{_BUFFER}._read",
    by="script a28_log_is_read_before_snapshots",
)
def log_before_snapshot(real: Real, self: TransactionBuffer, view: View, selection: LogSelection, uncommitted: bool) -> Any:
    early = _Remembering(view)
    _, names = self._topics(view, selection)
    early.get_many([paths.watermark(name) for _, _, name in names])
    return real(self, early, selection, uncommitted)


@fault(
    "A32",
    "Topics and layouts are read after the log. Otherwise a read would miss the rows of a new topic.",
    at=f"{_BUFFER}._read",
    by="script a32_layouts_are_read_after_the_log",
)
def layouts_before_log(real: Real, self: TransactionBuffer, view: View, selection: LogSelection, uncommitted: bool) -> Any:
    early = _Remembering(view)
    self._topics(early, selection)
    return real(self, early, selection, uncommitted)


@fault(
    "A29, 8.9",
    "A watermark that is read after the log does not raise the cut above the listed log.",
    at=f"{_BUFFER}._read",
    by="script a29_cut_is_not_taken_from_a_moving_watermark",
)
def cut_from_the_watermark(real: Real, self: TransactionBuffer, view: View, selection: LogSelection, uncommitted: bool) -> Reading:
    reading: Reading = real(self, view, selection, uncommitted)
    if reading.undecided:
        return reading
    folded = [segment.folded_to for segment in reading.segments if isinstance(segment, StoredSegment)]
    return dataclasses.replace(reading, cut=max([reading.cut, *folded]))


@fault(
    "6, 8.6",
    "No undecided transaction lies at or below the cut.",
    at="metadata.rules.transitions:cut",
    by="script a04_hanging_transaction_pins_nothing",
)
def cut_at_the_end(real: Real, undecided: Iterable[int], end_of_log: int) -> int:
    return end_of_log


@fault(
    "A21, 8.4",
    "Only committed registrations are visible, also in a segment without a watermark.",
    at=f"{_BUFFER}._segment",
    by="script a21_uncommitted_rows_of_a_new_segment",
)
def open_rows_of_a_new_segment(
    real: Real,
    self: TransactionBuffer,
    topic: Any,
    info: Any,
    name: str,
    mark: Record | None,
    listing: Listing,
    sealed: int | None,
    shown: set[int],
) -> Any:
    everything = {entry.number for entry in listing.entries}
    return real(self, topic, info, name, mark, listing, sealed, everything if mark is None else shown)


@fault(
    "A3, 8.5",
    "A snapshot that cannot be read is an error. It is not treated as empty.",
    at=f"{_BUFFER}.head",
    within=f"{_BUFFER}._segment",
    by="script a03_no_position_in_place_of_an_error",
)
def unreadable_snapshot_is_empty(real: Real, self: TransactionBuffer, path: str) -> Any:
    try:
        return real(self, path)
    except Exception:
        return None


@fault(
    "A9",
    "Plain writes advance maxReadPosition, as transactions do.",
    at="metadata.read.segment_view:StoredSegment.last",
    by="script a09_plain_writes_move_max_read_position",
)
def plain_writes_move_nothing(real: Real, self: StoredSegment, cut: int) -> Any:
    live = tuple((number, registration) for number, registration in self.live if registration.txn is not None)
    return real(dataclasses.replace(self, live=live), cut)


@fault(
    "A19, 8.5",
    "A read up to a number includes that number.",
    at="metadata.read.segment_view:StoredSegment._live",
    by="script a19_no_row_is_skipped_at_the_edge",
)
def last_ledger_is_left_out(real: Real, self: StoredSegment, after: int, through: int) -> Any:
    return real(self, after, through - 1)


@fault(
    "6, 8.9",
    "A registration above a segment's seal is void in that segment, even while its transaction is OPEN.",
    at="metadata.rules.transitions:void_by_seal",
    within=f"{_BUFFER}._read",
    by="tests/metadata/topics/test_splits.py::test_entries_above_a_seal_block_no_reader",
    kind="splitting",
)
def void_holds_readers(real: Real, number: int, sealed: int | None) -> bool:
    return False


# --- plans ----------------------------------------------------------------------------------------------------------


@fault(
    "A31, 8.5",
    "Planning up to a given end needs a cut that reaches this end, so that a replay never has fewer rows.",
    at=f"{_BUFFER}.read_to",
    by="script a31_replay_never_returns_fewer_rows",
)
def replay_with_fewer_rows(real: Real, self: TransactionBuffer, selection: LogSelection, end: int, *, attempts: int) -> Reading:
    return self.read(selection)


@fault(
    "a replay that plans with a newer cut, A31",
    "A micro-batch that is planned again has the same end.",
    at="spark_txn_source.plan:tasks",
    within="spark_txn_source.stream:StreamReader.partitions",
    by="script a02_aborted_rows_are_never_read",
)
def replay_with_a_newer_cut(real: Real, ranges: Sequence[LogRange], *rest: Any) -> Any:
    return real([dataclasses.replace(one, end=one.reading.cut) for one in ranges], *rest)


@fault(
    "6, 8.5",
    "A first micro-batch that is planned again has the same start.",
    at="spark_txn_source.offsets:StreamOffset.start_of_batch",
    by="tests/spark_txn_source/test_first_micro_batch.py::test_replay_of_the_first_batch_reads_the_same_rows",
)
def first_batch_starts_anew(real: Real, self: StreamOffset, start: StreamOffset) -> StreamOffset:
    return start


@fault(
    "6, 7",
    (
        "A stream acknowledges nothing in a subscription that was moved back or created again, since the stream does not read "
        "again the rows that became unacknowledged."
    ),
    at="spark_txn_source.cursors:StreamCursors._check_not_moved_back",
    by="tests/spark_txn_source/test_streams_of_moved_subscriptions.py::"
    "test_rows_acked_by_others_before_the_start_stay_unacknowledged_after_a_move_back",
)
def stream_acknowledges_what_was_moved_back(real: Real, *arguments: Any, **options: Any) -> None:
    return


@fault(
    "limits that split a transaction, 8.9",
    "A limit on a micro-batch lowers its end to the end of a whole transaction.",
    at="spark_txn_source.plan:tasks",
    by="script a01_late_commit_hits_no_successor",
)
def limit_splits_a_transaction(real: Real, ranges: Sequence[LogRange], options: ReadOptions, *rest: Any) -> list[ReadTask]:
    planned: list[ReadTask] = real(ranges, options, *rest)
    return [dataclasses.replace(task, pieces=task.pieces[: options.max_rows_per_trigger]) for task in planned]


@fault(
    "8.9",
    "A micro-batch has at least one transaction, whatever the limits, so that the stream always advances.",
    at=_LIMITED,
    by="script a02_aborted_rows_are_never_read",
)
def limit_stops_the_stream(
    real: Real,
    weights: Iterable[Weight],
    end: int,
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    seals: Collection[int] = (),
) -> Any:
    known = list(weights)
    found = real(known, end, max_rows=max_rows, max_bytes=max_bytes, seals=seals)
    first = known[0] if known else None
    too_big = first is not None and max_rows is not None and first.rows > max_rows
    return found - 1 if too_big and first is not None and found == first.number else found


@fault(
    "minOffsetsPerTrigger",
    "A micro-batch that waits for more rows waits no longer than maxTriggerDelay, so that few rows are read in the end.",
    at="spark_txn_source.limits:waits",
    by=f"{_WAITING}::test_a_stream_waits_no_longer_than_its_delay_after_the_last_rows",
)
def stream_waits_for_ever(real: Real, unread: Iterable[Weight], *, min_rows: int, waited: float | None, patience: float) -> bool:
    return bool(real(unread, min_rows=min_rows, waited=waited, patience=float("inf")))


@fault(
    "minOffsetsPerTrigger",
    "A stream with minOffsetsPerTrigger reads no smaller micro-batch before its delay is over.",
    at="spark_txn_source.limits:waits",
    by=f"{_WAITING}::test_a_stream_waits_until_enough_rows_are_committed",
)
def stream_does_not_wait(real: Real, *arguments: Any, **options: Any) -> bool:
    return False


@fault("model end-at-seal, 8.13", "A micro-batch ends at a seal of its segments.", at=_LIMITED, by="script limit_and_seal")
def end_at_seal(real: Real, weights: Iterable[Weight], end: int, **options: Any) -> Any:
    return real(weights, end, **{**options, "seals": ()})


@fault(
    "8.13",
    "A seal ends a micro-batch even after its segment is folded and only the layout shows the seal.",
    at="metadata.read.reading:Reading.seals",
    kind="splitting",
    by="script micro_batch_ends_at_a_folded_seal",
)
def micro_batch_passes_a_shown_seal(real: Real, self: Reading, after: int, through: int) -> Any:
    live = tuple(segment for segment in self.segments if segment.head is None)
    return real(dataclasses.replace(self, segments=live), after, through)


@fault(
    "a stale watch trusted, 8.16",
    "A reader lists the log before it treats a reading as the newest. A watch that has not fired proves nothing.",
    at="spark_txn_source.following:Following._is_newest",
    by="script a08_aborted_tail_holds_nobody_up",
)
def stale_watch_is_trusted(real: Real, self: Following[Any], seen: Any) -> bool:
    return True


@fault(
    "8.5",
    "A kept reading is not the newest one if registrations after it are folded: they may have had rows of its topics.",
    at="metadata.read.log_reader:ClusterLog.is_newest",
    by="tests/spark_txn_source/test_following.py::test_a_registration_that_was_folded_unseen_makes_a_full_reading",
)
def folded_rows_are_of_others(real: Real, self: ClusterLog, view: View, reading: Reading) -> bool:
    new = [entry for entry in self.buffer.log.list(view).entries if entry.number > reading.end_of_log]
    mine = any(entry.is_seal or any(map(self.selection.covers, entry.registration.segments)) for entry in new)
    return not reading.undecided and not mine


@fault(
    "8.16",
    "A change between the first reading and the setting of its watches wakes a waiting reader.",
    at="spark_txn_source.following:Following.wake",
    within="spark_txn_source.following:Following._watch",
    by="tests/spark_txn_source/test_following.py::test_a_commit_between_a_reading_and_its_watches_wakes_the_reader",
)
def watched_too_late(real: Real, self: Following[Any]) -> None:
    return
