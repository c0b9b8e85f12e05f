"""Faults in the small rules of the source and beside it, which larger suites did not see (protocol.md sections 6 and 7)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_RULES = "tests/spark_txn_source/test_reading_rules.py"
_SUBSCRIBED = "tests/spark_txn_source/test_subscribed_streams.py"

MUTANTS = (
    mutant(
        "offset-of-another-cluster",
        "6, 8.5",
        "The numbers of an offset count in the cluster that it names alone, and in those restored from its backups.",
        ("metadata.cluster.cluster:Cluster.check_is_mine", "or cluster in (self.id, *before)", "or cluster"),
        tests=("tests/spark_txn_source/test_checkpoints.py::test_a_checkpoint_counts_for_the_cluster_that_it_was_made_with",),
    ),
    mutant(
        "added-subscription-is-acknowledged-unread",
        "6, 8.11",
        "A stream that began without a subscription never moves its cursors over rows that it started behind.",
        ("spark_txn_source.cursors:StreamCursors.check_added", "if offset.subscription == self.subscription or", "if True or"),
        tests=(
            "tests/spark_txn_source/test_checkpoints.py::test_a_subscription_that_is_added_to_a_stream_loses_no_row_that_is_left",
        ),
    ),
    mutant(
        "added-topic-is-acknowledged-unread",
        "6, 8.11",
        "A subscribed stream never moves the cursor of an added topic over rows that it starts behind.",
        ("spark_txn_source.cursors:StreamCursors.check_added", "if first_left(", "if False and first_left("),
        tests=(
            "tests/spark_txn_source/test_checkpoints.py::test_a_topic_that_is_added_to_a_subscribed_stream_loses_no_row_that_is_left",
        ),
    ),
    mutant(
        "what-another-subscription-had-done-is-acknowledged-unread",
        "6, 8.11",
        "Nor the cursor of another subscription over rows that the one before had done, and that the stream leaves out.",
        ("spark_txn_source.cursors:StreamCursors.check_added", "left_out = offset.done()", "pass"),
        tests=(_SUBSCRIBED,),
    ),
    mutant(
        "nobody-waits-for-what-is-open-below-an-added-topic",
        "6, 8.11",
        "Nor over a row that is not decided yet when its topic is added.",
        ("spark_txn_source.cursors:StreamCursors.check_added", "reading.cut >= offset.log", "True"),
        tests=(_SUBSCRIBED,),
    ),
    mutant(
        "pattern-joins-its-topics-while-it-plans-alone",
        "6, 8.11",
        "A topic that a pattern meets between two calls of Spark has the subscription before its cursor is looked for.",
        ("spark_txn_source.cursors:StreamCursors.commit", "self.join(reading, topics)", "pass"),
        tests=(_SUBSCRIBED,),
    ),
    mutant(
        "what-was-read-under-the-old-name-counts-as-acknowledged",
        "6, 8.11",
        "What a stream has read of a topic under the name of before was given out, and may be left: nobody moved anything back.",
        ("spark_txn_source.offsets:StreamOffset.acked_beyond", "if one[0] != FIRST", "if True"),
        tests=(_SUBSCRIBED,),
    ),
    mutant(
        "topics-that-are-read-no-more-count-as-acknowledged",
        "6, 8.11",
        "A commit says of a topic that it does not read nothing but what was known of it.",
        ("spark_txn_source.cursors:StreamCursors.commit", "if log in views else acked_to.get(log, 0)", ""),
        tests=(_SUBSCRIBED,),
    ),
    mutant(
        "topics-that-are-gone-stay-in-the-offset",
        "6",
        "An offset says nothing of topics that are gone.",
        (
            "spark_txn_source.offsets:StreamOffset.after",
            "for name, n in self.trims.items() if not gone(name)",
            "for name, n in self.trims.items()",
        ),
        tests=(_SUBSCRIBED,),
    ),
    mutant(
        "runs-of-one-batch-know-nothing-of-their-commits",
        "6",
        "A run that plans before it has committed asks the cursors what is acknowledged.",
        ("spark_txn_source.cursors:StreamCursors.acked_now", "if self._acked_to:", "if True:"),
        tests=(_SUBSCRIBED,),
    ),
    mutant(
        "one-segment-forgets-the-acks-of-all",
        "6, 8.5",
        "An offset keeps what was acknowledged beyond its start while any segment needs it.",
        ("spark_txn_source.offsets:StreamOffset.after", "needed = any(", "needed = all("),
        tests=(_RULES,),
    ),
    mutant(
        "last-ledger-counts-for-no-limit",
        "6, 8.9",
        "The last ledger of a log counts for the limits of a micro-batch as the others do.",
        ("spark_txn_source.limits:limited", "found.weight.number > logs[name].end", "found.weight.number >= logs[name].end"),
        tests=(_RULES,),
    ),
    mutant(
        "entries-of-two-parts-as-one-run",
        "6, 8.5",
        "Entries that are left of a ledger are one piece within one part only.",
        (
            "spark_txn_source.pieces:runs",
            "(one.part, one.entry) == (whole[0], whole[2] + 1)",
            "one.entry == whole[2] + 1",
        ),
        tests=(_RULES,),
    ),
    mutant(
        "rows-of-the-first-batch-of-an-entry-only",
        "6, 8.5",
        "The rows that are wanted of an entry are counted within the entry, whichever of its batches they come in.",
        ("spark_txn_source.tasks:_wanted", "max(piece.row, found.first_row)", "piece.row"),
        tests=(_RULES,),
    ),
    mutant(
        "block-without-its-last-entries",
        "6, 8.5",
        "Each block of rows of a compacted file is joined with all entries that have rows in it.",
        ("spark_txn_source.native_scan:_blocks", "starts[last] < (block + 1) * step", "starts[last] <= block * step"),
        tests=(_RULES,),
    ),
    mutant(
        "range-of-no-rows-is-refused",
        "6",
        "A batch may end where it starts.",
        ("spark_txn_source.options:_check_order", "place > last", "place >= last"),
        tests=(_RULES,),
    ),
    mutant(
        "half-a-key-is-a-selection",
        "6",
        "What is no list of names is no selection.",
        ("spark_txn_source.selection:selection_of", "if names and len(names) == len(found):", "if names:"),
        tests=(_RULES,),
    ),
    mutant(
        "new-topic-of-a-pattern-waits",
        "6, 8.9",
        "A persistent topic that a pattern matches is met as soon as it is there.",
        ("spark_txn_source.following_topics:FollowingTopics._are_newest", "return not new", "return True"),
        tests=("tests/spark_txn_source/test_following_topics.py",),
    ),
    mutant(
        "gap-counts-as-acknowledged",
        "7, A19",
        "Retention stops before the first row that a subscription has not acknowledged, also before a gap.",
        ("metadata.rules.acks:first_left", "if behind and behind[0][0] == FIRST else", "if behind else"),
        tests=("tests/metadata/rules/test_acks.py",),
    ),
    mutant(
        "topic-made-again-forgets-its-deletion",
        "6, A19",
        "A topic that is made again keeps the guard of what was deleted under its name.",
        (
            "metadata.topics.topics:Topics.create",
            "deleted_to_log=None if old is None else old.deleted_to_log",
            "deleted_to_log=None",
        ),
        tests=(_RULES,),
    ),
    mutant(
        "guard-of-the-oldest-deletion",
        "6, A19",
        "The guard of deletions is the highest seal of those that were forgotten.",
        ("metadata.rules.transitions:without_gone", '"deleted_to_log": max(numbers)', '"deleted_to_log": min(numbers)'),
        tests=("tests/metadata/rules/test_transitions.py",),
    ),
)
