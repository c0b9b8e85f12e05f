"""Faults of migration: a persistent topic that goes on as topic:// (docs/in_stream.md, Migration)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="migrating")
_AFTER = "tests/spark_txn_source/test_migrated_subscriptions.py"
_STREAM = "spark_txn_source.stream:StreamReader"
_CONSUMERS = "tests/txnsegment/test_migrated_consumers.py"
_FEEDS = "txnsegment.feeds:Feeds"

MUTANTS = (
    mutant(
        "old-and-new-name-are-both-read",
        "8.5",
        "What is read under the old name is left out of the topic that goes on.",
        ("spark_txn_source.topics:selected", "beside=tuple(map(str, selection.persistent))", "beside=()"),
    ),
    mutant(
        "migrated-cursor-by-numbers-of-the-log",
        "8.11",
        "A stream's commit moves the cursor of a migrated topic by its ledgers: as numbers of the log they cover rows not read.",
        ("spark_txn_source.cursors:StreamCursors.commit", "end_of(ledger.id, ledger.last_entry)", "end_of(to.log)"),
        tests=(f"{_AFTER}::test_a_stream_of_the_new_name_acknowledges_what_it_has_read_and_no_more",),
    ),
    mutant(
        "new-name-reads-again",
        "8.5",
        "A checkpoint of a persistent topic that goes on under the new name keeps what was read by the old positions.",
        (f"{_STREAM}.latestOffset", "offset = offset.as_segments(migrated)", "pass"),
        (f"{_STREAM}.partitions", "offset = offset.as_segments(_migrated(reading, begin))", "pass"),
        tests=(f"{_AFTER}::test_a_checkpoint_goes_on_under_the_new_name",),
    ),
    mutant(
        "migrated-rows-out-of-order",
        "8.13",
        "A consumer gets rows in the order of the log, in which the ledgers of a migrated topic stand at their numbers.",
        ("spark_txn_source.entries:_turns", "segment.number(ledger)", "ledger"),
        tests=(f"{_AFTER}::test_a_cumulative_acknowledgement_keeps_to_the_order_of_the_log",),
    ),
    mutant(
        "consumers-pass-what-goes-on",
        "8.13",
        "A consumer looks at the log before it looks whether its topics were migrated: it passes no row of what goes on.",
        (f"{_FEEDS}.look", "for feed in self._feeds:", "for feed in reversed(self._feeds):"),
        tests=(f"{_CONSUMERS}::test_a_migration_between_two_looks[Following]",),
    ),
)
