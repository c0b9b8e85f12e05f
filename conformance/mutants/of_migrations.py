"""Faults of migration: a persistent topic that goes on as topic:// (docs/in_stream.md, Migration)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_TESTS = "tests/instream/test_migration.py"
_STREAMS = "tests/instream/test_migrated_streams.py"
_MIGRATOR = "metadata.instream.migrating:Migrator"

MUTANTS = (
    mutant(
        "migration-forgets-what-applications-committed",
        "8.8",
        "What an application committed before the migration is known after it: a replay is skipped, an older version refused.",
        (f"{_MIGRATOR}._carry_over", "until(lambda: self._carry_applications(name, to))", "pass"),
        tests=(f"{_TESTS}::test_a_migration_fails_at_every_step",),
    ),
    mutant(
        "migration-cuts-through-a-transaction",
        "8.5",
        "A seal of a migration does not count while a transaction is ongoing there.",
        ("metadata.instream.rules:fold", 'entry.why != "migrate" or not state.ongoing', "True"),
        tests=(f"{_TESTS}::test_a_seal_does_not_count_while_a_transaction_is_ongoing",),
    ),
    mutant(
        "migrated-rows-in-numbers-passed-already",
        "8.7",
        "The ledgers of a migrated topic stand above everything that was in the log before its layout was there.",
        ("metadata.topics:Topics.complete", "end + 1 + migration.seal + 1", "0"),
        tests=(f"{_TESTS}::test_positions_and_limits",),
    ),
    mutant(
        "migration-takes-a-topic-that-exists",
        "8.13",
        "The layout of the new topic is made where there is none, and nowhere else.",
        (f"{_MIGRATOR}._make", "expect=ABSENT", "expect=look(self.cluster.store, paths.topic(to)) or ABSENT"),
        tests=(f"{_TESTS}::test_a_topic_that_is_made_meanwhile_is_never_taken_and_another_name_can_be_given",),
    ),
    mutant(
        "limits-split-migrated-transactions",
        "8.9",
        "No limit cuts between two entries that one transaction appended to a migrated topic.",
        ("metadata.instream.legacy:MigratedSegment.weights", "last.get(txn, n) if txn is not None else n", "n"),
        tests=(f"{_TESTS}::test_a_transaction_of_several_entries_is_never_split_by_a_limit",),
    ),
    mutant(
        "sink-goes-by-the-younger-plan",
        "8.5",
        "Rows that Spark's tasks staged for a persistent topic go on from there, also if whoever commits them has planned since.",
        (
            "spark_txn_sink.commit:staged_for",
            "(topic_of(segment) for message in staged for segment, _ in message.parts)",
            "iter(())",
        ),
        tests=(f"{_STREAMS}::test_a_sink_goes_on_whose_tasks_and_commit_were_planned_on_either_side_of_a_migration",),
    ),
    mutant(
        "plain-messages-name-what-went-on",
        "8.12",
        "A plain producer is told that its topic was migrated.",
        ("txnsegment.plain:PlainSend.append", "not isinstance(name, PersistentName)", "False"),
        tests=(f"{_STREAMS}::test_a_plain_producer_is_told_that_its_topic_was_migrated",),
    ),
)
