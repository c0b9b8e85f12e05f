"""Faults of Spark's reads and writes: offsets, cursors of streams, pieces of files, lost rows (protocol.md section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from conformance.mutants.planting import fault
from ledgers.part_reader import EntryBatch
from metadata.read.selection import Pattern
from metadata.records.names import is_persistent
from metadata.records.records import Layout
from metadata.rules import transitions
from metadata.rules.timestamps import OpenTransactions
from spark_txn_source.planned import Piece

Real = Callable[..., Any]

_OFFSET = "spark_txn_source.offsets:StreamOffset"
_CHECKPOINTS = "tests/spark_txn_source/test_checkpoints.py"
_PERSISTENT = "tests/spark_txn_source/test_persistent_source.py"
_AFTER = "tests/spark_txn_source/test_migrated_subscriptions.py"
_STREAMS = "tests/spark_txn_source/test_migrated_streams.py"
_RULES = "tests/spark_txn_source/test_reading_rules.py"

# --- offsets and cursors ------------------------------------------------------------------------------------------


@fault(
    "6, 8.5",
    "The numbers of an offset are valid only in the cluster that the offset names and in clusters restored from its backups.",
    at="metadata.cluster.cluster:Cluster.check_is_mine",
    by=f"{_CHECKPOINTS}::test_a_checkpoint_counts_for_the_cluster_that_it_was_made_with",
)
def offset_of_another_cluster(real: Real, *rest: Any) -> None:
    return None


@fault(
    "6, 8.11",
    "If a stream gains a subscription or a topic, it never acknowledges rows below the position at which it started to read.",
    at="spark_txn_source.cursors:StreamCursors.check_added",
    by=(
        f"{_CHECKPOINTS}::test_a_subscription_added_to_a_stream_loses_no_unacknowledged_row",
        f"{_CHECKPOINTS}::test_a_topic_added_to_a_subscribed_stream_loses_no_unacknowledged_row",
    ),
)
def added_subscription_is_acknowledged_unread(real: Real, *rest: Any) -> bool:
    return True


@fault(
    "8.5",
    "A persistent topic that an offset does not name was added later. The stream reads it from its first row.",
    at=f"{_OFFSET}.number",
    by=f"{_PERSISTENT}::test_a_pattern_finds_new_topics",
)
def newcomer_from_its_end(real: Real, self: Any, *rest: Any) -> Any:
    return real(self, *rest) if rest[0] in self.numbers() else 1 << 62


@fault(
    "8.5",
    "A stream whose checkpoint has positions of a persistent topic does not read these rows again under the successor's name.",
    at=f"{_OFFSET}.as_segments",
    by=f"{_AFTER}::test_a_checkpoint_continues_under_the_new_name",
)
def new_name_reads_again(real: Real, self: Any, migrated: Iterable[str]) -> Any:
    return self


# --- rows ---------------------------------------------------------------------------------------------------------


@fault(
    "8.5, 8.9",
    "If a read is divided by size, every entry is in exactly one task.",
    at="spark_txn_source.pieces:split",
    by="script partitions_by_size",
)
def last_entry_lost_in_the_split(real: Real, found: Iterable[Piece], size: int) -> Iterator[Piece]:
    for one in found:
        *before, last = real([one], size)
        yield from before
        yield last.narrowed(last.first, last.last - 1) if before else last


@fault(
    "6, 8.5",
    "The row numbers wanted from an entry count from the start of the entry, across all of its Arrow batches.",
    at="spark_txn_source.tasks:_wanted",
    by=f"{_RULES}::test_an_entry_in_several_batches_gives_the_wanted_rows_of_each",
)
def rows_of_the_first_batch_of_an_entry_only(real: Real, found: EntryBatch, piece: Piece) -> Any:
    cut = piece.row or piece.stop is not None
    return None if cut and found.first_row > piece.row else real(found, piece)


@fault(
    "8.13",
    "A consumer returns rows in log order. The ledgers of a migrated topic are ordered by their log numbers.",
    at="metadata.instream.legacy:LegacySegment.number",
    within="spark_txn_source.entries:_turns",
    by=f"{_AFTER}::test_a_cumulative_acknowledgement_keeps_to_the_order_of_the_log",
)
def migrated_rows_out_of_order(real: Real, self: Any, ledger_id: int) -> int:
    return ledger_id


@fault(
    "6, 8.5",
    "An end by publish time in a persistent topic is not final while an open transaction may still append to the topic.",
    at="metadata.instream.end:Ending.open_transactions",
    by="tests/spark_txn_source/test_persistent_timestamps.py::test_a_batch_in_the_middle_of_a_commit_is_final_or_an_error",
)
def open_transactions_of_persistent_topics_hold_no_timestamp(real: Real, self: Any) -> OpenTransactions:
    found: OpenTransactions = real(self)
    return replace(found, open=())


# --- what a read has lost -----------------------------------------------------------------------------------------


@fault(
    "A19, 6",
    "A read that needs trimmed rows is an error.",
    at="spark_txn_source.losses:check_trims",
    by="script a19_trimmed_rows_are_an_error",
)
def loss_is_silent(real: Real, *rest: Any) -> None:
    return None


@fault(
    "6, 8.9",
    "A read from `earliest` omits a transaction whose rows are already trimmed in one of its segments.",
    at="spark_txn_source.losses:hidden",
    by="script trim_is_one_number",
    kind="compacting",
)
def half_done_trim_shows_half_of_a_transaction(real: Real, *rest: Any, **options: Any) -> dict[str, Any]:
    return {}


@fault(
    "6, A19",
    "A layout keeps the number of the highest seal among the deletions whose grace period is over.",
    at="metadata.rules.transitions:without_gone",
    by="tests/metadata/rules/test_transitions.py::test_the_guard_of_deletions_is_the_newest_one_that_was_forgotten",
)
def guard_of_the_oldest_deletion(real: Real, layout: Layout, *, now_ms: int, grace_ms: int) -> Layout:
    after: Layout = real(layout, now_ms=now_ms, grace_ms=grace_ms)
    if after is layout:
        return layout
    in_grace = {info.deleted_at_log for info in transitions.in_grace(layout, now_ms, grace_ms)}
    over = {info.deleted_at_log for info in layout.gone()} - in_grace
    numbers = [number for number in (*over, layout.deleted_to_log) if number is not None]
    return after.model_copy(update={"deleted_to_log": min(numbers)})


# --- the logs of a read -------------------------------------------------------------------------------------------


@fault(
    "8.5",
    "A read that names both a migrated topic and its successor returns their rows once.",
    at="metadata.client.logs:selected",
    by=f"{_STREAMS}::test_a_stream_and_a_writer_continue_over_a_migration",
)
def old_and_new_name_are_both_read(real: Real, *rest: Any) -> Any:
    found = real(*rest)
    return found and replace(found, beside=())


@fault(
    "8.9",
    "A pattern that matches only the old name of a migrated topic also covers the successor.",
    at="metadata.client.logs:Logs.successors",
    by=f"{_STREAMS}::test_a_pattern_of_the_old_name_continues_with_the_successor",
)
def patterns_end_at_the_seal(real: Real, self: Any) -> Any:
    return () if isinstance(self.selection, Pattern) else real(self)


# --- Spark's writes -----------------------------------------------------------------------------------------------


@fault(
    "8.5",
    "If a Spark transaction writes to topics of both transaction models, the second write is refused before it stages a row.",
    at="metadata.write.staging_manifests:StagingArea._refuse_both_kinds",
    by="tests/metadata/write/test_staging_kinds.py::test_a_write_of_the_other_model_is_refused",
)
def staged_writes_to_both_kinds(real: Real, self: Any, write: str, topic: str) -> None:
    if is_persistent(topic):
        real(self, write, topic)
