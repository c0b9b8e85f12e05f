"""Faults of sweepers: timeouts, settling, folding, expiring records, deleting files (protocol.md section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.mutants.planting import Real, fault
from metadata.cluster.cluster import Cluster
from metadata.common.errors import TxnSegmentError
from metadata.log.live_log import Entry
from metadata.maintenance.folding import Folding
from metadata.maintenance.orphans import named_files
from metadata.maintenance.sweeper import Sweeper
from metadata.read.marker_model import MarkerModel
from metadata.records import paths
from metadata.records.paths import Key
from metadata.records.records import AbortedTxn, Header, Registration, Settled
from metadata.rules.transitions import Verdict
from metadata.store.contract import ANY, Delete, Record, View, decide, written

_SWEEPER = "metadata.maintenance.sweeper:Sweeper"
_FOLDING = "metadata.maintenance.folding:Folding"
_ORPHANS = "metadata.maintenance.orphans:sweep_orphans"
_FOLD = "metadata.rules.transitions:fold"
_MAY_DROP = "metadata.rules.transitions:may_drop"
_NEW_PUT = "metadata.store.contract:Put.__new__"

_ERRORS = "tests/txnsegment/test_sweeping_errors.py::"
_COPIES = "tests/metadata/cluster/test_copied_clusters.py::"


@fault(
    "A4, 8.10",
    "Any process that meets a transaction past its deadline aborts it.",
    at="metadata.rules.transitions:expired",
    by="script a04_hanging_transaction_pins_nothing",
)
def nobody_times_out(real: Real, header: Header, now_ms: int, allowance_ms: int) -> bool:
    return False


# --- settling and folding -------------------------------------------------------------------------------------------


@fault(
    "A7, 8.4",
    "A registration that its header does not name is settled as VOID. Otherwise a replay would show it.",
    at="metadata.rules.transitions:settled",
    by="script a07_replay_shows_nothing_aborted",
)
def settle_all_committed(real: Real, verdict: Verdict) -> Settled:
    return Settled.COMMITTED


@fault(
    "7, A27",
    "A registration is settled by CAS, so a sweeper with an outdated view of it fails.",
    at=_NEW_PUT,
    within=f"{_SWEEPER}._settle_entry",
    by="script sweep_settle_late",
)
def settle_without_version(real: Real, _cls: type, key: Key, value: bytes, expect: Record | int | None, *options: Any) -> Any:
    return real(_cls, key, value, ANY, *options)


@fault(
    "model fold-stops, 8.5", "Folding never passes an unsettled registration.", at=_FOLD, by="script a11_no_gap_while_recovering"
)
def fold_stops(real: Real, segment: str, watermark: int, log: Sequence[tuple[int, Registration]], sealed: int | None) -> Any:
    decided = [(number, one) for number, one in log if one.txn is None or one.state is not None or one.seal is not None]
    return real(segment, watermark, decided, sealed)


@fault(
    "A5, 8.6",
    "The watermark moves by CAS and never goes back.",
    at=_NEW_PUT,
    within=f"{_FOLDING}._fold_segment",
    by="script a05_watermark_never_goes_back",
)
def watermark_without_cas(real: Real, _cls: type, key: Key, value: bytes, expect: Record | int | None, *options: Any) -> Any:
    return real(_cls, key, value, ANY, *options)


@fault(
    "model keep-tail, 8.6",
    "The newest record of the log is kept, so that the end of a listing bounds the cut.",
    at=_MAY_DROP,
    by="script a01_late_commit_hits_no_successor",
)
def keep_tail(
    real: Real,
    number: int,
    registration: Registration,
    watermarks: Mapping[str, int | None],
    end_of_log: int,
    *,
    seal_shown: bool,
) -> Any:
    return real(number, registration, watermarks, end_of_log + 1, seal_shown=seal_shown)


@fault(
    "7, 8.5",
    "A registration leaves the log only after it is folded in all of its segments.",
    at=_MAY_DROP,
    by="script a14_one_name_a_prefix_of_another",
)
def drop_before_folding(
    real: Real,
    number: int,
    registration: Registration,
    watermarks: Mapping[str, int | None],
    end_of_log: int,
    *,
    seal_shown: bool,
) -> Any:
    folded = any(mark is None or mark >= number for mark in watermarks.values())
    return folded and real(number, registration, {}, end_of_log, seal_shown=seal_shown)


@fault("5, 8.12", "A seal stays in the log until the layout shows it.", at=_MAY_DROP, by="script seal_of_a_later_version")
def seal_dropped_before_shown(real: Real, *arguments: Any, seal_shown: bool) -> Any:
    return real(*arguments, seal_shown=True)


@fault(
    "A11",
    "The record of an aborted transaction is kept until the watermark has passed it.",
    at="metadata.records.records:AbortedTxn.of",
    within=f"{_FOLDING}.collect_aborted",
    by="script a11_no_gap_while_recovering",
)
def aborted_record_pruned_early(real: Real, cls: type, record: Record) -> Any:
    found = real(cls, record)
    return found.model_copy(update={"max_ledger_id": 0}) if isinstance(found, AbortedTxn) else found


@fault(
    "an index range one too wide, A14",
    "Folding deletes the records of aborted transactions up to the watermark, and none above it.",
    at=f"{_FOLDING}._clean_behind",
    by="script sweep_fold_cleans_no_further",
)
def aborted_range_one_too_wide(real: Real, self: Folding, view: View, segment: str, through: int) -> Any:
    return real(self, view, segment, min(through + 1, 10**20 - 1))


@fault(
    "A13, 8.14",
    "An event is deleted once the watermark has passed it.",
    at=f"{_FOLDING}._forget_events",
    by="script a13_nothing_grows_without_end",
)
def events_are_kept(real: Real, self: Folding, view: View, segment: str) -> bool:
    return True


# --- expiring records ------------------------------------------------------------------------------------------------


@fault(
    "model settle-before-forget, A10",
    "A header is deleted only after its registration is settled.",
    at="metadata.log.live_log:unsettled",
    within=f"{_SWEEPER}.forget",
    by="script a10_committed_rows_outlive_their_header",
)
def settle_before_forget(real: Real, entry: Entry) -> bool:
    return False


@fault(
    "model raise-before-forget, 8.8",
    "lastCommitted is raised before a committed header is deleted.",
    at=f"{_SWEEPER}._release_application",
    by="script a01_late_commit_hits_no_successor",
)
def raise_before_forget(real: Real, self: Sweeper, view: View, txn: str, header: Header) -> bool:
    return True


@fault(
    "the application record raised after the header is forgotten, 8.8",
    (
        "lastCommitted is raised before the header is deleted. In the opposite order, a committed predecessor would look aborted "
        "in between."
    ),
    at=f"{_SWEEPER}._release_application",
    by="script random_application",
)
def raise_after_forget(real: Real, self: Sweeper, view: View, txn: str, header: Header) -> Any:
    return written(self.cluster.store, Delete(paths.header(txn))) and real(self, view, txn, header)


# --- files ----------------------------------------------------------------------------------------------------------

_named: dict[int, set[str]] = {}
"""Id of the Cluster object that sweeps -> the files that records named before the sweep listed the files."""


def _named_early(real: Real, cluster: Cluster, markers: MarkerModel, view: View) -> Iterator[str]:
    return iter(_named[id(cluster)]) if id(cluster) in _named else real(cluster, markers, view)


@fault(
    "7, 8.5",
    "The orphan sweep notes the time and lists the files first, and reads the records that protect files afterwards.",
    at=_ORPHANS,
    also={"metadata.maintenance.orphans:named_files": _named_early},
    by="script a19_no_row_is_skipped_at_the_edge",
)
def files_listed_last(real: Real, cluster: Cluster, markers: MarkerModel) -> Any:
    _named[id(cluster)] = decide(cluster.store, lambda view: set(named_files(cluster, markers, view)))
    try:
        return real(cluster, markers)
    finally:
        del _named[id(cluster)]


@fault(
    "7, 8.5",
    "The orphan sweep keeps the files that an index snapshot lists.",
    at="ledgers.snapshot_changes:listed",
    within="metadata.maintenance.orphans:named_files",
    by="script a18_abort_after_unknown_commit_deletes_nothing",
)
def folded_parts_unprotected(real: Real, storage: Any, head: Any) -> Iterator[str]:
    return iter(())


@fault(
    "7, A18",
    "The orphan sweep keeps the files that a live staging manifest lists.",
    at="metadata.write.staging_manifests:protected",
    kind="moving",
    by="script together_killed_before_it_opens",
)
def sweep_takes_staged_parts(real: Real, *arguments: Any) -> Iterator[str]:
    return iter(())


@fault(
    "issue 13, 18",
    "An exception that is no TxnSegmentError ends neither a sweep nor the sweeper daemon.",
    at="metadata.common.failures:note",
    within="metadata.common.failures:contained",
    by=f"{_ERRORS}test_the_daemon_continues_past_an_unexpected_error_and_retries",
)
def foreign_errors_end_the_sweeper(real: Real, step: str, what: str, error: Exception, *, level: int) -> Any:
    if not isinstance(error, TxnSegmentError):
        raise error
    return real(step, what, error, level=level)


@fault(
    "issue 13, 10",
    "A sweep that was running during a restore deletes nothing.",
    at="metadata.cluster.cluster:Cluster.check_root",
    within="metadata.maintenance.deleting:Deleter._check",
    by=f"{_COPIES}test_a_sweep_running_during_a_restore_deletes_none_of_its_files",
)
def sweep_does_not_look_before_it_deletes(real: Real, self: Cluster) -> None:
    return


@fault(
    "8.11",
    "A sweep keeps the cursors of child segments, which are made before the layout lists these segments.",
    at="metadata.maintenance.remains:_left",
    by="tests/metadata/cursors/test_pending_ack.py::test_a_sweep_spares_the_cursors_of_children_that_no_layout_shows_yet",
    kind="splitting",
)
def children_cursors_are_swept(real: Real, layouts: dict[Any, Any], segment: str) -> Any:
    later = {name: layout.model_copy(update={"next_segment_id": 10**9}) for name, layout in layouts.items()}
    return real(later, segment)
