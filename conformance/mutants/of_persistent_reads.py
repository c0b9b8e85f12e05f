"""Faults where Spark reads and writes `persistent://` topics (docs/in_stream.md, Spark)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_TESTS = "tests/spark_txn_source/test_persistent_source.py"

_TIMES = "tests/spark_txn_source/test_persistent_timestamps.py"

MUTANTS = (
    mutant(
        "offset-forgets-other-logs",
        "8.5",
        "An offset keeps the position of every persistent topic, also of those that a micro-batch did not move in.",
        ("spark_txn_source.stream:StreamReader._given", "{**offset.positions, **positions}", "{**positions}"),
        tests=(f"{_TESTS}::test_a_stream_of_both_kinds",),
    ),
    mutant(
        "newcomer-from-its-end",
        "8.5",
        "A persistent topic that an offset does not name came later, and is read from its first row.",
        ("spark_txn_source.offsets:StreamOffset.number", "else 0", "else 1 << 62"),
        tests=(f"{_TESTS}::test_a_pattern_finds_new_topics",),
    ),
    mutant(
        "limits-by-name",
        "8.9",
        "Of several logs the oldest rows are read first, so that none waits for another.",
        ("spark_txn_source.limits:limited", "(found.ms, name, found.weight)", "(0, name, found.weight)"),
        tests=(f"{_TESTS}::test_limits_take_the_oldest_first",),
    ),
    mutant(
        "trimmed-persistent-rows-unheard",
        "A19",
        "A stream whose rows retention has taken from a persistent topic says so.",
        ("spark_txn_source.persistent:check_trim", "begin < min(end, reading.lost_to)", "begin > end"),
        tests=(f"{_TESTS}::test_what_retention_took_is_an_error",),
    ),
    mutant(
        "deleted-persistent-rows-unheard",
        "A19",
        "A stream of a pattern whose persistent topic was deleted with rows that it has not read says so.",
        ("spark_txn_source.persistent:_had_more", "number > after", "number > after + 1"),
        tests=(f"{_TESTS}::test_a_deleted_topic_of_a_pattern",),
    ),
    mutant(
        "start-within-an-append",
        "8.5",
        "An append is read whole: an offset within one is refused, and no row of it is passed over.",
        ("spark_txn_source.persistent:_number", "place.entry < last", "place.entry < 0"),
        tests=(f"{_TESTS}::test_starts_and_ends_of_a_batch",),
    ),
    mutant(
        "schemas-of-what-moved-alone",
        "8.5",
        "A micro-batch is checked by the schemas of all topics of its read, also of those in which nothing moved.",
        (
            "spark_txn_source.stream:StreamReader.partitions",
            "*persistent.topics(client, planned, ranges)",
            "*(one.topic for one in ranges)",
        ),
        tests=(f"{_TESTS}::test_a_stream_of_both_kinds",),
    ),
    mutant(
        "staged-writes-to-both-kinds",
        "8.5",
        "Of two writes of one Spark transaction to topics of both kinds, whichever comes second is refused before it stages a row.",
        (
            "metadata.write.staging_manifests:StagingArea._refuse_both_kinds",
            "self.storage.info(self._path(PERSISTENT)) is None",
            "True",
        ),
        tests=("tests/spark_txn_sink/test_staging_kinds.py",),
    ),
    mutant(
        "open-transactions-of-persistent-topics-hold-no-timestamp",
        "6, 8.5",
        "An end by publish time of a persistent topic is not final while a transaction is open that may append to it.",
        ("metadata.instream.end:Ending.open_transactions", "if txn.state is TxnState.OPEN", "if False"),
        tests=(_TIMES,),
    ),
    mutant(
        "plain-append-with-an-older-time",
        "6",
        "A plain append takes its publish time right before it is appended.",
        (
            "metadata.instream.steps:TransactionSteps._append_plain",
            'entry = entry.model_copy(update={"publish_ms": self._now()})',
            "pass",
        ),
        tests=(_TIMES,),
    ),
    mutant(
        "stream-from-a-timestamp-does-not-wait",
        "6, 8.5",
        "A new stream from a timestamp starts where a batch up to it ends, once that is final.",
        ("spark_txn_source.stream:StreamReader.initialOffset", "if isinstance(start, AtTime):", "if False:"),
        tests=(_TIMES,),
    ),
)
