"""Faults of what programs call: consumers, producers, transactions, subscriptions (txnsegment), and of Spark's writes."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_CONSUMER = "txnsegment.consumer:Consumer"
_PRODUCER = "txnsegment.producer:Producer"
_PRODUCERS = "tests/txnsegment/test_producer.py"
_SINK = "tests/spark_txn_sink/test_sink_commit.py"
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
        "cumulative-acks-of-what-others-delivered",
        "8.11",
        "A consumer acknowledges cumulatively only what it has handed out itself.",
        (f"{_CONSUMER}.ack_cumulative", "if given.span[1] > self._handed_to(given.segment):", "if False:"),
        tests=(f"{_TAKING_UP}::test_a_cumulative_ack_is_of_rows_that_the_consumer_delivered",),
    ),
    mutant(
        "flush-forgets-later-rows",
        "8.5",
        "A flush takes the rows that it has committed out of the producer, and none that were sent since.",
        (f"{_PRODUCER}._commit", "del self._waiting[: self._staged]", "self._waiting.clear()"),
        tests=(f"{_PRODUCERS}::test_rows_whose_commit_is_not_known_are_never_staged_anew",),
    ),
    mutant(
        "more-rows-after-an-unknown-commit",
        "8.5",
        "A transaction that may have committed takes nothing more: it would be in no commit.",
        ("txnsegment.transaction:Transaction._check_takes_more", "if self._unknown:", "if False:"),
        tests=("tests/txnsegment/test_transaction.py::test_what_may_have_committed_takes_nothing_more",),
    ),
    mutant(
        "forked-child-gives-its-parents-ids",
        "8.3",
        "A forked child gives no ids of the block that its parent took.",
        ("metadata.write.txn_ids:TxnIds.next", "if os.getpid() != self._pid:", "if False:"),
        tests=("tests/txnsegment/test_transaction.py::test_a_forked_child_has_ids_and_a_background_of_its_own",),
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
        "batch-tokens-without-their-query",
        "A20",
        "A write in foreachBatch whose version another query has committed is an error: its rows would be lost without a word.",
        ("metadata.rules.transitions:_same", "not claim.replays and (claim.by is None or by is None)", "not claim.replays"),
        tests=(f"{_TOKENS}::test_another_query_repeats_nothing",),
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
        "silent-task-is-left-out",
        "8.5",
        "A write with a task that did not report is never committed.",
        ("spark_txn_sink.commit:reported", "if len(staged) != len(messages):", "if False:"),
        tests=(_SINK,),
    ),
)
