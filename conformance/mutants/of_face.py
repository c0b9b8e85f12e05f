"""Faults of what programs call: consumers, producers, transactions, subscriptions (txnsegment), and of Spark's writes."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_CONSUMER = "txnsegment.consumer:Consumer"
_PRODUCER = "txnsegment.producer:Producer"
_PRODUCERS = "tests/txnsegment/test_producer.py"
_SINK = "tests/spark_txn_sink/test_sink_commit.py"
_TOGETHER = "txnsegment.spark_transaction:SparkTransaction"
_TRANSACTION = "txnsegment.transaction:Transaction"
_TOKENS = "tests/spark_txn_sink/test_batch_tokens.py"
_TAKING_UP = "tests/txnsegment/test_taking_up.py"

MUTANTS = (
    mutant(
        "cumulative-ack-ends-in-empty-space",
        "8.11",
        "A cumulative ack ends behind a row in each segment: acks of later rows cover the empty space before them.",
        (
            "txnsegment.consumer:Consumer._row_end",
            "if not below or end_of(below) >= self._handed_to(view.name):",
            "if True:",
        ),
        tests=("tests/conformance/surface/test_surface.py",),
    ),
    mutant(
        "read-ahead-counts-as-delivered",
        "8.11",
        "A cumulative ack covers what was handed out, and not what was read ahead.",
        (f"{_CONSUMER}._message", "message.span[1]", "ahead.batch.span[1]"),
        (f"{_CONSUMER}._message", "message = ahead.message()", "message, ahead.given = ahead.message(), ahead.batch.rows.num_rows"),
        tests=(f"{_TAKING_UP}::test_a_loop_that_is_left_after_one_row_loses_no_row",),
    ),
    mutant(
        "batches-repeat-what-messages-gave",
        "8.5",
        "A batch that was begun row by row is gone on with behind its last row that was handed out.",
        ("txnsegment.messages:Ahead.rest", "self.batch.after(self.given)", "self.batch"),
        tests=(f"{_TAKING_UP}::test_batches_begin_behind_the_rows_that_messages_gave",),
    ),
    mutant(
        "rows-again-after-an-error",
        "8.5",
        "A consumer that met an error goes on with the next row, and gives none twice.",
        (f"{_CONSUMER}._not_again", "found[segment.name] = union(", "union("),
        tests=(f"{_TAKING_UP}::test_a_file_that_is_missing_for_a_while_costs_no_row",),
    ),
    mutant(
        "acks-of-an-open-transaction-count",
        "8.11",
        "What an open or aborted transaction is to acknowledge stands for no other ack: the one that repeats it acknowledges it.",
        (f"{_CONSUMER}._floor_of", " if one.counts", ""),
        tests=(
            f"{_TAKING_UP}::test_a_cumulative_ack_in_an_open_transaction_stands_for_no_other_ack",
            f"{_TAKING_UP}::test_a_transaction_that_is_tried_again_acknowledges_all_that_it_did",
        ),
    ),
    mutant(
        "acknowledged-by-another-consumer-is-a-loss",
        "8.11",
        "Rows that another consumer of the subscription acknowledged, and retention took, are no loss to a consumer that runs.",
        (f"{_CONSUMER}._deliver", "now = feed.done(reading)", "now: dict[str, Rows] = {}"),
        tests=("tests/txnsegment/test_consumer.py::test_what_another_consumer_acknowledged_and_retention_took_is_no_loss",),
    ),
    mutant(
        "cumulative-acks-of-what-others-delivered",
        "8.11",
        "A consumer acknowledges cumulatively only what it has handed out itself.",
        (f"{_CONSUMER}.ack_cumulative", "if given.span[1] > self._handed_to(given.segment):", "if False:"),
        tests=(f"{_TAKING_UP}::test_a_cumulative_ack_is_of_rows_that_the_consumer_delivered",),
    ),
    mutant(
        "seek-forgets-what-was-never-delivered",
        "8.11",
        "Rows that a seek gave back were not handed out: no older row acknowledges them.",
        (f"{_CONSUMER}._begin_anew", "self._given_before.pop(segment, None)", "pass"),
        tests=(f"{_TAKING_UP}::test_rows_that_a_seek_gave_back_are_not_acknowledged_by_an_older_row",),
    ),
    mutant(
        "failed-rewind-is-forgotten",
        "8.5",
        "A rewind that failed is made up for before the next row.",
        (f"{_CONSUMER}._begin_anew", "self._rewind_due = True", "pass"),
        tests=(f"{_TAKING_UP}::test_a_rewind_that_fails_is_made_up_for",),
    ),
    mutant(
        "flush-forgets-later-rows",
        "8.5",
        "A flush takes the rows that it has committed out of the producer, and none that were sent since.",
        (f"{_PRODUCER}._commit", "del self._waiting[: self._staged]", "self._waiting.clear()"),
        tests=(f"{_PRODUCERS}::test_rows_whose_commit_is_not_known_are_never_staged_anew",),
    ),
    mutant(
        "flush-ends-with-the-first-try",
        "8.5",
        "A flush commits what was sent after one that raised, too: nobody flushes once more after the block.",
        (f"{_PRODUCER}.flush", "while self._tried is not None or self._waiting:", "if self._tried is not None or self._waiting:"),
        tests=(f"{_PRODUCERS}::test_rows_that_were_sent_after_a_flush_that_failed_are_committed_with_the_block",),
    ),
    mutant(
        "more-rows-after-an-unknown-commit",
        "8.5",
        "A transaction that may have committed takes nothing more: it would be in no commit.",
        ("txnsegment.transaction:Transaction._check_takes_more", "if self._unknown:", "if False:"),
        tests=("tests/txnsegment/test_transaction.py::test_what_may_have_committed_takes_nothing_more",),
    ),
    mutant(
        "gathered-rows-appended-again",
        "8.8",
        "What a commit that failed had gathered is not taken for newly appended by the next append.",
        ("txnsegment.spark_transaction:SparkTransaction._put_back", "self._staged = []", "pass"),
        tests=("tests/txnsegment/test_spark_transaction.py::test_what_comes_after_a_commit_that_failed_is_added_once",),
    ),
    mutant(
        "forked-child-gives-its-parents-ids",
        "8.3",
        "A forked child gives no ids of the block that its parent took.",
        ("metadata.write.txn_ids:TxnIds.next", "if os.getpid() != self._pid:", "if False:"),
        tests=("tests/txnsegment/test_transaction.py::test_a_forked_child_has_ids_and_a_background_of_its_own",),
    ),
    mutant(
        "producer-keeps-to-a-topic-that-is-gone",
        "8.5",
        "Rows that were staged for a topic that was deleted are staged anew for the one that was made again.",
        (f"{_PRODUCER}._commit", "self._tried = None  # it can", "pass  # it can"),
        tests=(f"{_PRODUCERS}::test_rows_go_to_the_topic_that_was_made_again",),
    ),
    mutant(
        "unknown-flush-staged-anew",
        "8.5",
        "Rows that may be committed are never staged anew: they would be there twice.",
        (f"{_PRODUCER}._commit", "self._unknown = True", "pass"),
        tests=(f"{_PRODUCERS}::test_an_error_after_an_unknown_outcome_does_not_stage_anew",),
    ),
    mutant(
        "producer-without-bound",
        "8.14",
        "A producer keeps no more rows than it may.",
        (f"{_PRODUCER}.send", "if len(self._waiting) >= self._most:", "if False:"),
        tests=(f"{_PRODUCERS}::test_a_producer_keeps_no_more_rows_than_it_may",),
    ),
    mutant(
        "columns-of-the-first-row",
        "8.5",
        "A producer writes every column that any of its rows has.",
        ("txnsegment.producer:_table", "for row in given for name in row", "for row in given[:1] for name in row"),
        tests=(f"{_PRODUCERS}::test_columns_that_only_later_rows_have_are_written",),
    ),
    mutant(
        "skipped-transaction-keeps-its-rows",
        "8.8",
        "Rows that a skipped transaction was to acknowledge are delivered again: its acknowledgements do not count.",
        (f"{_TRANSACTION}.commit", "if committed.skipped:", "if False:"),
        tests=(
            "tests/txnsegment/test_consumer.py::test_a_transaction_that_was_skipped_gives_back_its_rows[True]",
            "tests/txnsegment/test_consumer.py::test_a_transaction_that_was_skipped_gives_back_its_rows[False]",
        ),
    ),
    mutant(
        "consumer-passes-over-a-deletion",
        "8.14",
        "A consumer that is behind says which rows went with a topic that was deleted and made again.",
        ("txnsegment.consumer:Consumer._deliver", "self._check_deletions(feed, reading, feed.after, done)", "pass"),
        tests=("tests/txnsegment/test_consumer.py::test_a_topic_that_was_deleted_and_made_again_is_a_loss",),
    ),
    mutant(
        "deletion-forgotten-after-an-abort",
        "8.14",
        "A consumer that begins anew by itself says what a deletion took: only the program can go on without these rows.",
        ("txnsegment.consumer:Consumer._read_ahead", "self._check_deletions(feed, feed.reading, 0, {})", "None"),
        tests=(
            "tests/txnsegment/test_consumer.py::test_a_consumer_that_begins_anew_by_itself_says_what_a_deletion_took[abort]",
            "tests/txnsegment/test_consumer.py::test_a_consumer_that_begins_anew_by_itself_says_what_a_deletion_took[skip]",
        ),
    ),
    mutant(
        "acknowledged-rows-lost-with-their-topic",
        "8.14",
        "What another consumer of the subscription had acknowledged before a deletion is no loss.",
        ("txnsegment.feeds:Feed.done_of_deleted", "for segment in reading.gone:", "for segment in ():"),
        tests=("tests/txnsegment/test_consumer.py::test_what_another_consumer_acknowledged_before_a_deletion_is_no_loss",),
    ),
    mutant(
        "cumulative-ack-takes-what-was-given-back",
        "8.8",
        "No cumulative ack takes rows that a skipped transaction gave back, before they are delivered again.",
        ("txnsegment.consumer:Consumer.ack_cumulative", "if self._skipped:", "if False:"),
        tests=("tests/txnsegment/test_consumer.py::test_no_cumulative_ack_takes_what_a_skipped_transaction_gave_back",),
    ),
    mutant(
        "uncommitted-block-says-nothing",
        "5",
        "A block that ends without a commit says what it has left out.",
        ("txnsegment.transaction:Transaction.__exit__", "if kind is None and not self._tried and", "if False and"),
        tests=("tests/txnsegment/test_transaction.py::test_leaving_without_a_commit_forgets_it",),
    ),
    mutant(
        "batch-tokens-without-their-query",
        "A20",
        "A write in foreachBatch whose version another query has committed is an error: its rows would be lost without a word.",
        ("metadata.rules.transitions:_same", "not claim.replays and (claim.by is None or by is None)", "not claim.replays"),
        tests=(f"{_TOKENS}::test_another_query_repeats_nothing",),
    ),
    mutant(
        "query-of-foreach-batch-not-recorded",
        "A20",
        "The query of foreachBatch travels from the tasks into the application record.",
        ("spark_txn_sink.commit:claim", "query(staged)", "query(staged) if identity.streaming else None"),
        tests=(f"{_TOKENS}::test_another_query_repeats_nothing",),
    ),
    mutant(
        "query-lost-in-the-staging-manifest",
        "A20",
        "The query of foreachBatch travels from the tasks of a transaction's writes into the application record.",
        (
            "txnsegment.spark_transaction:SparkTransaction._gather",
            "manifest.query for manifest in manifests if",
            "None for manifest in () if",
        ),
        tests=(f"{_TOKENS}::test_another_query_repeats_nothing",),
    ),
    mutant(
        "staged-when-the-committer-planned",
        "5, 8.5",
        "Parts are as old as the first plan of their tasks says, and not as the plan of the process that commits them.",
        ("spark_txn_sink.commit:commit", "min((m.staged_ms for m in staged), default=plan.staged_ms)", "plan.staged_ms"),
        tests=(f"{_SINK}::test_parts_are_as_old_as_their_tasks_say",),
    ),
    mutant(
        "staged-when-the-last-write-began",
        "5, 8.5",
        "The parts of a transaction are as old as its first write says.",
        (f"{_TOGETHER}._gather", "self._staged_ms = min(begun", "self._staged_ms = max(begun"),
        tests=("tests/txnsegment/test_spark_transaction.py::test_a_transaction_is_as_old_as_its_first_write",),
    ),
    mutant(
        "staged-when-the-last-append-began",
        "5, 8.5",
        "The parts of a transaction are as old as its first append says.",
        (f"{_TRANSACTION}.append", "if self._staged_ms is None:", "if True:"),
        tests=("tests/txnsegment/test_transaction.py::test_a_transaction_is_as_old_as_its_first_append",),
    ),
    mutant(
        "unknown-commit-not-told",
        "5, 8.5",
        "A commit that is tried again after an unknown outcome says so: what became of the first try may be forgotten by then.",
        (f"{_TRANSACTION}.commit", "retried=self._unknown", "retried=False"),
        tests=("tests/txnsegment/test_transaction.py", "tests/metadata/write/test_outcomes.py"),
    ),
    mutant(
        "abort-leaves-it-open",
        "A4",
        "Giving a transaction up ends what a commit that raised has left OPEN.",
        (f"{_TRANSACTION}.abort", "if self._tried and not self._aborted:", "if False:"),
        tests=("tests/txnsegment/test_transaction.py::test_giving_up_ends_what_a_commit_left_open",),
    ),
    mutant(
        "seek-beyond-the-cut",
        "8.5",
        "A subscription is not moved beyond what is decided: rows of open transactions would be passed over.",
        ("txnsegment.subscriptions:ClusterSubscriptions._number", "if number > reading.cut:", "if False:"),
        tests=("tests/txnsegment/test_subscriptions.py::test_a_subscription_is_not_moved_beyond_what_is_decided",),
    ),
    mutant(
        "few-files-compacted",
        "7",
        "Compaction leaves runs of fewer files than it was told as they are.",
        ("txnsegment.cluster:Cluster.compact", "Policy(target_bytes, min_files)", "Policy(target_bytes, 2)"),
        tests=(
            "tests/spark_txn_source/test_compacted_reading.py::test_the_call_and_the_command_leave_fewer_files_than_they_are_told",
        ),
    ),
    mutant(
        "keys-of-tasks-mixed",
        "8.13",
        "A write whose tasks routed partly by a key that the topic got meanwhile is refused.",
        ("spark_txn_sink.commit:agreed_key", "if len(keys) > 1:", "if False:"),
        tests=(_SINK,),
    ),
    mutant(
        "silent-task-is-left-out",
        "8.5",
        "A write with a task that did not report is never committed.",
        ("spark_txn_sink.commit:reported", "if len(staged) != len(messages):", "if False:"),
        tests=(_SINK,),
    ),
    mutant(
        "failed-manifest-counts",
        "2, 8.5",
        "A write that Spark says has failed does not count, whatever manifest it left.",
        (f"{_TOGETHER}._has_succeeded", "return said is Ended.COMPLETED", "return True"),
        tests=("tests/spark/test_transactions.py::test_a_write_that_failed_after_it_had_left_its_manifest_does_not_count",),
    ),
    mutant(
        "compact-command-drops-its-limit",
        "7",
        "The command compacts as its options say.",
        ("txnsegment.cli.storage:compact", "min_files=min_files", "min_files=2"),
        tests=(
            "tests/spark_txn_source/test_compacted_reading.py::test_the_call_and_the_command_leave_fewer_files_than_they_are_told",
        ),
    ),
)
