"""Faults of how long a migrated topic is kept, and of what is left of it (docs/in_stream.md, Migration)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="migrating")
_KEPT = "tests/metadata/instream/test_migrated_remains.py"
_BARE = "tests/metadata/instream/test_bare_names.py"
_STREAMS = "tests/spark_txn_source/test_migrated_streams.py"
_BATCHES = "tests/spark_txn_source/test_persistent_batches.py"
_TRIM = "metadata.instream.legacy:LegacySegment"
_RULES = "metadata.rules.migrated"

MUTANTS = (
    mutant(
        "migrated-rows-trimmed-past-a-subscription",
        "section 7, trim",
        "Retention takes no row of a migrated topic that a subscription has not acknowledged.",
        (
            f"{_RULES}:first_needed",
            "if not all(retention.is_done(found.id, found.last_entry, needed) for found in one):",
            "if False:",
        ),
        tests=(f"{_KEPT}::test_a_subscription_holds_back_what_it_has_not_acknowledged",),
    ),
    mutant(
        "half-of-a-migrated-transaction-trimmed",
        "section 7, trim",
        "A transaction leaves a migrated topic as a whole.",
        (f"{_RULES}:first_needed", "if not all(", "if not any("),
        tests=(f"{_KEPT}::test_no_half_of_a_transaction_is_taken",),
    ),
    mutant(
        "migrated-segment-leaves-with-its-rows",
        "8.5",
        "A migrated segment leaves the layout only once nothing of it is left.",
        (
            "metadata.maintenance.trimming:Trimmer._drained_migrated",
            "segment.last(reading.cut) is None",
            "True",
        ),
        tests=(f"{_KEPT}::test_the_new_topic_s_retention_takes_the_oldest_rows_and_no_more",),
    ),
    mutant(
        "guard-of-a-migrated-segment-in-numbers-of-its-own-log",
        "A19",
        "What the layout remembers of a migrated segment that left is a number of the cluster's log, which readers begin at.",
        (f"{_TRIM}.guard", "self.number(last.ledger_id)", "last.ledger_id"),
        tests=(f"{_KEPT}::test_what_is_trimmed_whole_leaves_and_takes_all_with_it_but_its_name",),
    ),
    mutant(
        "trimmed-markers-told-as-lost-rows",
        "section 6",
        "Who has read the last row that was trimmed has lost nothing, though markers behind it are gone, too.",
        (
            "metadata.instream.reading:TopicReading.lost_to",
            "0 if last is None else last.ledger_id",
            "self.topic.layout.trimmed_log",
        ),
        tests=(f"{_KEPT}::test_readers_are_told_what_they_have_lost",),
    ),
    mutant(
        "rows-of-a-deleted-topic-under-its-old-name",
        "8.4",
        "A persistent topic is listed no more once the topic that it was migrated to was deleted: its rows went with that.",
        ("metadata.instream.topics:PersistentTopics.list", "if not migrated.went_with(t.name, layouts.get(t.name))", ""),
        tests=(f"{_KEPT}::test_the_deletion_of_the_new_topic_takes_the_old_one_with_it",),
    ),
    mutant(
        "what-was-migrated-stays-for-ever",
        "8.14",
        "Once the topic that goes on has let go of it, all that is left of a persistent topic is its name.",
        ("metadata.rules.migrated:let_go", "if onward is None or not is_its_own(onward, name):", "if True:"),
        tests=(f"{_KEPT}::test_the_deletion_of_the_new_topic_takes_the_old_one_with_it",),
    ),
    mutant(
        "another-topic-lets-go-of-the-cursors",
        "8.11",
        "A topic that somebody else made under the name has no say over the cursors: the migration goes on under another one.",
        ("metadata.maintenance.remains:_let_go", "if let_go(name, layout)", "if layout is not None"),
        tests=(f"{_KEPT}::test_a_sweep_takes_no_cursor_that_a_migration_to_another_name_has_found",),
    ),
    mutant(
        "old-name-stands-for-a-topic-of-somebody-else",
        "8.4",
        "The name of a persistent topic stands for the topic:// that it became, and for no other that was made under that name.",
        ("metadata.client.providers:Providers.select", "if to is None or not is_its_own(to.layout, name):", "if to is None:"),
        ("metadata.instream.migrating:Migrator._further", "and migrated.is_its_own(Layout.of(record), name)", ""),
        tests=(
            "tests/metadata/instream/test_migration.py::test_a_topic_never_goes_by_the_name_of_another_that_was_made_meanwhile",
            "tests/metadata/instream/test_instream_life.py::test_a_name_never_stands_for_another_topic_that_was_made_while_it_was_migrated",
        ),
    ),
    mutant(
        "subscriptions-of-deleted-persistent-topics-stay-for-ever",
        "8.14",
        "What a deleted persistent topic had goes after the grace period: its subscriptions, their logs, its schemas.",
        ("metadata.instream.remains:Remains.collect", "if over_ms < time_ms(self.cluster.store):", "if False:"),
        tests=(f"{_KEPT}::test_a_topic_that_was_deleted_leaves_its_tombstone_alone",),
    ),
    mutant(
        "sweeps-look-at-every-name-that-ever-died",
        "8.14",
        "A sweep's work does not grow with the names of which nothing is left.",
        ("metadata.instream.remains:Remains.due", "[:LOOKED_AT]", ""),
        tests=(f"{_BARE}::test_an_idle_sweep_asks_no_more_after_many_names_have_died",),
    ),
    mutant(
        "orphan-sweeps-look-at-every-name-that-ever-died",
        "8.14",
        "Which files are named is not asked of the logs of names of which nothing is left.",
        ("metadata.instream.buffer:InStreamBuffer.named_files", "if topic.layout.bare:", "if False:"),
        tests=(f"{_BARE}::test_an_idle_sweep_asks_no_more_after_many_names_have_died",),
    ),
    mutant(
        "what-comes-late-to-a-dead-name-stays",
        "8.14",
        "A sweep looks at some of the names of which nothing is left: who slept through the deletion may append there still.",
        ("metadata.instream.remains:Remains.due", "[*bare[first:], *bare[:first]][:LOOKED_AT]", "[]"),
        tests=(f"{_BARE}::test_who_appends_after_sleeping_through_the_deletion_is_told_and_what_it_appended_goes",),
    ),
    mutant(
        "the-same-dead-names-are-looked-at-again",
        "8.14",
        "The names of which nothing is left have their turn, from anywhere on.",
        ("metadata.instream.remains:Remains.due", "zlib.crc32(self.cluster.unique().encode()) % len(bare) if bare else 0", "0"),
        tests=(f"{_BARE}::test_a_subscription_that_is_made_late_goes_too",),
    ),
    mutant(
        "dead-names-are-taken-for-bare-unseen",
        "8.14",
        "A record says that nothing else is left only while that is so.",
        ("metadata.instream.remains:Remains.is_bare", "return decide(self.cluster.store, body)", "return True"),
        tests=(f"{_BARE}::test_who_appends_after_sleeping_through_the_deletion_is_told_and_what_it_appended_goes",),
    ),
    mutant(
        "acks-of-a-deleted-topic-stay",
        "8.14",
        "Who acknowledges after sleeping through the deletion of a topic takes its own entry away: no sweep knows of that log.",
        ("metadata.instream.pending_ack:InStreamAcks._clean_behind", "self.empty(where, [life])", "pass"),
        tests=(f"{_BARE}::test_who_acknowledges_after_sleeping_through_the_deletion_is_told_and_leaves_nothing",),
    ),
    mutant(
        "patterns-end-at-the-seal",
        "8.9",
        "A pattern that matches the old name of a migrated topic alone covers what goes on from it.",
        (
            "spark_txn_source.topics:onward",
            "tuple(name for name in client.instream.migrator.matching(selection.compiled) if not selection.matches(name))",
            "()",
        ),
        tests=(f"{_STREAMS}::test_a_pattern_of_the_old_name_alone_goes_on_with_the_new_topic",),
    ),
    mutant(
        "deleted-rows-read-under-the-old-name",
        "8.4",
        "What went with the topic that a persistent one was migrated to is read no more, also once that is made again.",
        ("spark_txn_source.persistent:holding", "and not holds(layout, name)", "and False"),
        tests=(f"{_STREAMS}::test_streams_of_what_is_deleted_with_the_new_topic",),
    ),
    mutant(
        "batches-judge-the-old-name-by-another-look",
        "8.5",
        "A batch that has read what a migrated topic went on in has the rows of that, too, though it is deleted meanwhile.",
        ("spark_txn_source.persistent:read_batch", ", beside.topics)", ")"),
        tests=(f"{_BATCHES}::test_a_deletion_at_any_step_takes_all_of_a_batch_or_nothing",),
    ),
    mutant(
        "patterns-forget-what-was-left-to-the-old-name",
        "8.5",
        "The same for a pattern, whose persistent topics are listed after what they went on in was read.",
        ("spark_txn_source.persistent:read_batch", ", *_left_out(beside)", ""),
        tests=(f"{_BATCHES}::test_a_deletion_at_any_step_takes_all_of_a_batch_or_nothing",),
    ),
    mutant(
        "streams-forget-what-went-on-before-they-began",
        "8.5",
        "A stream of a migrated topic follows what goes on from it, also where nothing of the old topic is left.",
        (
            "spark_txn_source.stream:StreamReader.follow",
            "self._onward = onward(self._client(), self._selection)",
            "self._onward = ()",
        ),
        tests=(f"{_STREAMS}::test_streams_of_what_is_deleted_with_the_new_topic",),
    ),
)
