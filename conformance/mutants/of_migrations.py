"""Faults of migration: a persistent topic that goes on as topic:// (docs/in_stream.md, Migration)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="migrating")
_TESTS = "tests/metadata/instream/test_migration.py"
_STREAMS = "tests/spark_txn_source/test_migrated_streams.py"
_MIGRATOR = "metadata.instream.migrating:Migrator"
_ACKS = "metadata.instream.pending_ack:InStreamAcks"
_WHILE = "tests/metadata/instream/test_subscriptions_while_migrating.py"
_AFTER = "tests/spark_txn_source/test_migrated_subscriptions.py"
_STREAM = "spark_txn_source.stream:StreamReader"
_CONSUMERS = "tests/txnsegment/test_migrated_consumers.py"
_CONSUMER = "txnsegment.consumer:Consumer"
_FEEDS = "txnsegment.feeds:Feeds"

MUTANTS = (
    mutant(
        "migration-forgets-what-applications-committed",
        "8.8",
        "What an application committed before the migration is known after it: a replay is skipped, an older version refused.",
        (f"{_MIGRATOR}._carry_over", "until(lambda: self._carry_applications(name, to))", "pass"),
        tests=(f"{_TESTS}::test_a_migration_fails_at_every_step",),
    ),
    mutant(
        "migrated-rows-in-numbers-passed-already",
        "8.7",
        "The ledgers of a migrated topic stand above everything that was in the log before its layout was there.",
        ("metadata.topics.topics:Topics.complete", "end + 1 + migration.seal + 1", "0"),
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
        (
            "metadata.rules.migrated:whole_transactions",
            "ledger.id if ledger.txn is None else last[ledger.txn]",
            "ledger.id",
        ),
        tests=(f"{_TESTS}::test_a_transaction_of_several_entries_is_never_split_by_a_limit",),
    ),
    mutant(
        "subscriptions-of-a-migrated-topic-begin-anew",
        "8.11",
        "The cursor of a subscription is carried over as it stood at its own last word.",
        (f"{_MIGRATOR}.carry", "make_missing(self.cluster.store, [where], cursor)", "make_missing(self.cluster.store, [where])"),
    ),
    mutant(
        "subscription-sealed-over-claims",
        "8.11",
        "The last word of a subscription does not count while a transaction holds a claim there.",
        ("metadata.instream.ack_rules:fold", "if not state.cursor.claims:", "if True:"),
    ),
    mutant(
        "stream-goes-on-before-the-old-topic-ends",
        "8.13",
        "A stream of the old name reads it to its SEAL before what goes on from it.",
        ("spark_txn_source.stream:StreamReader.latestOffset", "end = begin", "end = end"),
    ),
    mutant(
        "onward-under-another-application",
        "8.8",
        "A writer that goes on commits as the application whose versions were carried over.",
        (
            "metadata.instream.onward:Onward.of",
            "app_topic=str(topic_of.get(work.app_topic, work.app_topic))",
            "app_topic=work.app_topic",
        ),
    ),
    mutant(
        "old-and-new-name-are-both-read",
        "8.5",
        "What is read under the old name is left out of the topic that goes on.",
        ("spark_txn_source.topics:selected", "beside=tuple(map(str, selection.persistent))", "beside=()"),
    ),
    mutant(
        "two-migrations-two-names",
        "8.12",
        "The SEAL says where a topic goes on; another name counts only if that one is another topic's for ever.",
        (f"{_MIGRATOR}._said", "and self._is_taken(name, topic_name(first))", "and True"),
    ),
    mutant(
        "applications-carried-before-the-seal",
        "8.8",
        "What applications have committed is read after the SEAL: nothing of the old topic is committed above it.",
        (f"{_MIGRATOR}.migrate", "self.sealing.seal(name,", "self._carry_applications(name, to)\n        self.sealing.seal(name,"),
        (f"{_MIGRATOR}._carry_over", "until(lambda: self._carry_applications(name, to))", "pass"),
    ),
    mutant(
        "version-without-rows-behind-the-seal",
        "8.8",
        "No version of an application of the old topic is committed behind its SEAL, with rows or without.",
        (
            "metadata.instream.coordinator:InStreamCoordinator._commit",
            "if not parts:\n            self._refuse",
            "if False:\n            self._refuse",
        ),
        (f"{_MIGRATOR}._carry_over", "self._abort(rules.of_its_applications(self.coordinator.log.live(), name))\n", ""),
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
        ("txnsegment.plain:PlainSend._check_takes", "not isinstance(name, PersistentName)", "False"),
        tests=(f"{_STREAMS}::test_a_plain_producer_is_told_that_its_topic_was_migrated",),
    ),
    mutant(
        "subscription-made-meanwhile-stays-behind",
        "8.11",
        "Who makes a subscription reads the topic's record after it is there: a migration may have passed it.",
        (f"{_ACKS}.create", "self._find_migration((topic, subscription))", "pass"),
        tests=(f"{_WHILE}::test_a_migration_in_the_middle_of_it[create]",),
    ),
    mutant(
        "subscription-deleted-where-it-has-moved-from",
        "8.11",
        "A subscription that has moved is deleted where its topic goes on, and nowhere else.",
        (f"{_ACKS}.delete", "if found.moved:", "if False:"),
        tests=(f"{_WHILE}::test_in_the_middle_of_a_migration[delete]",),
    ),
    mutant(
        "migration-revives-a-deleted-subscription",
        "8.11",
        "A subscription moves by a CAS of its record: who deletes it or makes it again was faster, and the migration goes by it.",
        (f"{_MIGRATOR}.carry", "not (found.moved or self.coordinator.acks.close(record))", "False"),
        tests=(f"{_WHILE}::test_in_the_middle_of_a_migration[delete]",),
    ),
    mutant(
        "old-acks-refused-for-good",
        "8.11",
        "An acknowledgement that meets the last word of its subscription is done where the topic goes on.",
        ("metadata.instream.acknowledging:OnwardAcks._each", "left.append(ack)", "raise"),
        tests=(f"{_WHILE}::test_a_migration_in_the_middle_of_it[ack]",),
    ),
    mutant(
        "migrated-cursor-by-numbers-of-the-log",
        "8.11",
        "A stream's commit moves the cursor of a migrated topic by its ledgers: as numbers of the log they cover rows not read.",
        ("spark_txn_source.cursors:StreamCursors.commit", "end_of(ledger.id, ledger.last_entry)", "end_of(to.log)"),
        tests=(f"{_AFTER}::test_a_stream_of_the_new_name_acknowledges_what_it_has_read_and_no_more",),
    ),
    mutant(
        "acked-rows-of-migrated-topics-come-again",
        "8.5",
        "What was acknowledged beyond a stream's start is kept by the ledgers of a migrated topic.",
        ("spark_txn_source.cursors:StreamCursors.start", "s.ledger_id(number)", "number"),
        tests=(f"{_AFTER}::test_what_was_acknowledged_one_by_one_stays_so_for_a_stream",),
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
        "log-passes-what-goes-on",
        "8.7",
        "A stream takes its cut in the log before it looks which topics were migrated.",
        (
            f"{_STREAM}._newest",
            """following = self.follow()
        reading = nothing_read(self._client().cluster) if following is None else following.read()
        topics = self._following_topics.read()
""",
            """topics = self._following_topics.read()
        following = self.follow()
        reading = nothing_read(self._client().cluster) if following is None else following.read()
""",
        ),
        tests=(f"{_AFTER}::test_a_log_beside_a_topic_that_is_migrated",),
    ),
    mutant(
        "cumulative-ack-by-ledgers-of-another-topic",
        "8.11",
        "A cumulative ack covers of a migrated topic what lies before it in the log, and not ledgers with lower ids.",
        (
            f"{_CONSUMER}._row_end",
            "below = view.ledger_id(through)",
            "below = through",
        ),
        tests=(f"{_AFTER}::test_a_cumulative_acknowledgement_keeps_to_the_order_of_the_log",),
    ),
    mutant(
        "migrated-rows-out-of-order",
        "8.13",
        "A consumer gets rows in the order of the log, in which the ledgers of a migrated topic stand at their numbers.",
        ("spark_txn_source.entries:_turns", "segment.number(ledger)", "ledger"),
        tests=(f"{_AFTER}::test_a_cumulative_acknowledgement_keeps_to_the_order_of_the_log",),
    ),
    mutant(
        "delivered-rows-of-migrated-topics-come-again",
        "8.5",
        "A consumer that has had rows of a topic does not get them again when that is migrated.",
        (f"{_FEEDS}._join", "min(segment.number(ended.after + 1) - 1, segment.sealed_at)", "0"),
        tests=(f"{_CONSUMERS}::test_cumulative_acknowledgements_after_a_migration",),
    ),
    mutant(
        "consumers-pass-what-goes-on",
        "8.13",
        "A consumer looks at the log before it looks whether its topics were migrated: it passes no row of what goes on.",
        (f"{_FEEDS}.look", "for feed in self._feeds:", "for feed in reversed(self._feeds):"),
        tests=(f"{_CONSUMERS}::test_a_migration_between_two_looks[Following]",),
    ),
    mutant(
        "one-migration-at-a-look",
        "8.13",
        "A consumer of two topics that were migrated delivers nothing of what goes on from one before the other is joined to it.",
        (f"{_FEEDS}.look", "self._join(*onward)", "return self._join(*onward)"),
        tests=(f"{_CONSUMERS}::test_two_topics_that_are_migrated_one_after_the_other",),
    ),
    mutant(
        "cumulative-ack-of-what-came-by-its-own-log",
        "8.11",
        "A row that came by its topic's own log stands in no order to what came beside it, also once that is migrated.",
        (f"{_CONSUMER}.ack_cumulative", "number <= feed.known.get(given.segment, 0)", "False"),
        tests=(f"{_CONSUMERS}::test_cumulative_acknowledgements_after_a_migration",),
    ),
    mutant(
        "consumers-skip-what-was-deleted-with-the-new-topic",
        "A19",
        "A consumer that has not had all of a migrated topic is told so when the topic that goes on was deleted and made again.",
        (f"{_FEEDS}._join", "check_nothing_left(self._client, shown, ended.after, self.done.get(name, NONE))", "pass"),
        tests=(f"{_CONSUMERS}::test_what_is_deleted_with_the_topic_that_goes_on",),
    ),
)
