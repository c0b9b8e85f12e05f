"""Faults where Spark reads and writes `persistent://` topics (docs/in_stream.md, Spark)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_TESTS = "tests/spark_txn_source/test_persistent_source.py"

_TIMES = "tests/spark_txn_source/test_persistent_timestamps.py"

MUTANTS = (
    mutant(
        "newcomer-from-its-end",
        "8.5",
        "A persistent topic that an offset does not name came later, and is read from its first row.",
        ("spark_txn_source.offsets:StreamOffset.number", "else 0", "else 1 << 62"),
        tests=(f"{_TESTS}::test_a_pattern_finds_new_topics",),
    ),
    mutant(
        "trimmed-persistent-rows-unheard",
        "A19",
        "A stream whose rows retention has taken from a persistent topic says so.",
        ("spark_txn_source.persistent:check_trim", "begin < min(end, reading.lost_to)", "begin > end"),
        tests=(f"{_TESTS}::test_what_retention_took_is_an_error",),
    ),
    mutant(
        "start-within-an-append",
        "8.5",
        "An append is read whole: an offset within one is refused, and no row of it is passed over.",
        ("spark_txn_source.persistent:_number", "place.entry < last", "place.entry < 0"),
        tests=(f"{_TESTS}::test_starts_and_ends_of_a_batch",),
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
)
