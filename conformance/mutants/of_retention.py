"""Faults of compaction, retention and the ages of rows (protocol.md sections 1 and 7)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from conformance.mutants import planting
from metadata.records.records import Cursor
from metadata.records.row_ranges import Row
from metadata.rules import acks
from metadata.rules.elapsed import Clocks, SeenTime, Witness

fault = partial(planting.fault, kind="compacting")
Real = Callable[..., Any]

_COMPACTING = "tests/metadata/maintenance/test_compacting.py"
_TRIMMING = "tests/metadata/maintenance/test_trimming.py"
_ELAPSED = "tests/metadata/cluster/test_elapsed.py"
_TRIMMER = "metadata.maintenance.trimming:Trimmer"
_CHANGE = "metadata.maintenance.compaction:change_snapshot"

# --- compaction ---------------------------------------------------------------------------------------------------


@fault(
    "7, 8.5",
    "Files that compaction replaced are kept for the grace period.",
    at="metadata.maintenance.retired:retire",
    within=_CHANGE,
    by="script compaction_crashes",
)
def compaction_without_a_note(real: Real, *rest: Any) -> None:
    return None


@fault(
    "5 Late commit, 7",
    "The orphan sweep deletes an old compacted file only after it has made sure that no compaction can still record this file.",
    at="metadata.maintenance.orphans:_fence",
    by=f"{_COMPACTING}::test_a_compaction_suspended_too_long_does_not_publish_its_files",
)
def late_compaction_not_fenced(real: Real, *rest: Any) -> None:
    return None


@fault(
    "5 Late commit, 7",
    "A compaction that took longer than half the orphan age records no files, since they may already be deleted.",
    at="metadata.store.contract:time_ms",
    within="metadata.maintenance.compaction:Compactor._name",
    by=f"{_COMPACTING}::test_a_compaction_suspended_too_long_does_not_publish_its_files",
)
def late_compaction(real: Real, store: Any) -> int:
    return 0


# --- trims --------------------------------------------------------------------------------------------------------


@fault(
    "A19, 7",
    "One CAS removes the rows and raises `trimmedTo`.",
    at=_CHANGE,
    within=f"{_TRIMMER}._trim_segment",
    by="script a19_trimmed_rows_are_an_error",
)
def trim_without_a_guard(real: Real, cluster: Any, segment: str, change: Any, **options: Any) -> Any:
    return real(cluster, segment, change)


@fault(
    "7",
    "Retention keeps the rows that a subscription has not acknowledged.",
    at="metadata.rules.retention:is_done",
    by=f"{_TRIMMING}::test_rows_that_a_subscription_needs_are_kept_unless_the_policy_overrides",
)
def trim_past_a_subscription(real: Real, ledger_id: int, last_entry: int, needed: Row | None) -> bool:
    return needed is None or (ledger_id, 0, 0) <= needed


@fault(
    "7, 8.11",
    "Retention keeps the rows that an open transaction claims, since they are delivered again if it aborts.",
    at="metadata.rules.acks:first_unacknowledged_row",
    by=f"{_TRIMMING}::test_rows_with_pending_acks_are_kept",
)
def trim_what_is_claimed(real: Real, cursor: Cursor) -> Any:
    for txn in tuple(cursor.claims):
        cursor = acks.settled(cursor, txn, committed=True)
    return real(cursor)


@fault(
    "7, 8.9",
    "A trim removes a transaction from all of its segments together, and only after it is folded in each of them.",
    at="metadata.maintenance.trimming:_folded_in_all",
    by="script trim_is_one_number",
)
def trim_half_of_a_transaction(real: Real, segments: Any, through: int) -> int:
    return through


@fault(
    "7, 8.12",
    "A sealed segment leaves the layout only after the grace period, since staged writes may still be on the way to it.",
    at="metadata.rules.retention:is_drained",
    by=f"{_TRIMMING}::test_one_segment_is_read_beside_a_removed_segment",
)
def drained_within_the_grace_period(real: Real, *rest: Any, now_ms: int, grace_ms: int) -> Any:
    return real(*rest, now_ms=now_ms, grace_ms=grace_ms - (1 << 60))


# --- the ages of rows ---------------------------------------------------------------------------------------------


@fault(
    "7, 8.5",
    (
        "The age of rows is computed with the smallest lead of the clocks over elapsed time that was observed within the "
        "retention limit, not with the current lead. A clock that jumped ahead has a larger lead."
    ),
    at="metadata.rules.elapsed:now_for",
    by=f"{_ELAPSED}::test_a_row_of_a_persistent_topic_that_was_committed_while_the_clock_was_behind_stays",
)
def age_by_the_clocks_of_now(real: Real, seen: SeenTime, keep_ms: int) -> int:
    return seen.elapsed_ms + seen.looks[-1].lead_ms


@fault(
    "7, 8.5",
    "A row that an observation within the retention limit did not yet find in the log is not expired, whatever its publish time.",
    at="metadata.rules.elapsed:known_to",
    by=f"{_ELAPSED}::test_a_row_published_while_the_clock_was_behind_is_not_old_when_it_is_right_again",
)
def age_by_publish_times_alone(real: Real, seen: SeenTime, keep_ms: int) -> int:
    return seen.looks[-1].number


@fault(
    "7, 8.5",
    "Elapsed time is measured by the monotonic clock as well as by the store's clock.",
    at="metadata.rules.elapsed:_since",
    by=f"{_ELAPSED}::test_a_clock_that_leaps_ahead_makes_no_row_old",
)
def time_passes_by_a_clock_that_can_be_set(real: Real, mine: Witness, now: Clocks) -> int:
    return max(0, now.store_ms - mine.store_ms)


@fault(
    "7, 8.5",
    "The orphan sweep does not rely on the store's clock alone, since this clock may jump ahead by more than the orphan age.",
    at="metadata.rules.elapsed:now_for",
    within="metadata.maintenance.orphans:sweep_orphans",
    by=f"{_ELAPSED}::test_a_staged_part_outlives_a_leap_of_the_clock",
)
def orphans_by_the_store_s_clock(real: Real, seen: SeenTime, keep_ms: int) -> int:
    return seen.store_ms


@fault(
    "7, 8.5",
    "The clocks are observed for the first time when the cluster is created, so that a jump before the first sweep is detected.",
    at="metadata.cluster.clock_looks:look",
    within="metadata.cluster.cluster:open_cluster",
    by=f"{_ELAPSED}::test_a_staged_part_outlives_a_leap_of_the_clock",
)
def nobody_looks_at_the_clocks_of_a_new_cluster(real: Real, *rest: Any) -> None:
    return None
