"""Faults of transactions over several writes: staging manifests, and when they count (protocol.md sections 2 and 7)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="moving")
_AREA = "metadata.write.staging_manifests:StagingArea"
_SWEEP = "metadata.maintenance.orphans:sweep_orphans"
_TESTS = "tests/txnsegment/test_spark_transaction.py"

MUTANTS = (
    mutant(
        "manifest-of-another-transaction",
        "2, 8.4",
        "A transaction commits what its own writes left, found by its token.",
        (f"{_AREA}.files", "if token_of(file.path) == self.token", ""),
    ),
    mutant(
        "token-of-the-version",
        "2, 8.8, staged parts of a failed attempt counted",
        "Each attempt stages under a token of its own: what a stale one of the same version left counts for nobody.",
        (
            "txnsegment.transaction:Transaction.__init__",
            "self._attempt = client.cluster.unique()",
            'self._attempt = f"{app}-{version}"',
        ),
    ),
    mutant(
        "second-run-counts",
        "2, 8.5",
        "Of a write that ran twice one manifest counts.",
        (f"{_AREA}.leave", "{manifest.write}{MANIFEST}", "{manifest.write}-{len(self.files())}{MANIFEST}"),
    ),
    mutant(
        "given-up-write-counts",
        "2, 8.5",
        "What a write left that Spark gave up, perhaps to run it again, does not count.",
        ("metadata.write.staging_manifests:counted", "sorted(left - withdrawn)", "sorted(left)"),
    ),
    mutant(
        "running-write-left-out",
        "2, 8.5",
        "A write that has begun and is not done keeps the rest from being committed.",
        ("metadata.write.staging_manifests:counted", "if running:", "if not begun:"),
    ),
    mutant(
        "late-write-unheard",
        "2, 8.5",
        "A write that begins when the driver has listed the manifests is told so.",
        (f"{_AREA}.begin", "if self.storage.info(self._path(CLOSED)) is not None:", "if self.storage is None:"),
        tests=(f"{_TESTS}::test_a_write_that_comes_too_late_is_told_so",),
    ),
    mutant(
        "sweep-takes-staged-parts",
        "7, A18",
        "The orphan sweep spares what a live staging manifest names.",
        (_SWEEP, "set(staging_manifests.protected(storage, now_ms, settings.orphan_age_ms, over, files))", "set()"),
    ),
    mutant(
        "sweep-takes-live-manifests",
        "7, A18",
        "The orphan sweep spares the staging manifests of a transaction that has not ended, until the orphan age.",
        (_SWEEP, "staging_manifests.token_of(path) in over", "staging_manifests.token_of(path) is not None"),
    ),
    mutant(
        "staging-kept-for-ever",
        "8.14, A13",
        "Staging manifests of a transaction that has ended are swept.",
        ("metadata.maintenance.orphans:sweep_staging", "in over", "is None"),
        (_SWEEP, "or staging_manifests.token_of(path) in over", ""),
    ),
    mutant(
        "acks-before-the-decision",
        "7, 8.11",
        "What a transaction acknowledges is claimed, and moves into the cursor once the transaction has committed.",
        (
            "metadata.cursors.pending_ack:PendingAcks.claim",
            "acks.acknowledged(cursor, ack, txn_id)",
            "acks.acknowledged(cursor, ack, None)",
        ),
    ),
    mutant(
        "acks-left-out",
        "7, 8.11",
        "What a transaction has read is acknowledged by the compare-and-set that commits its writes.",
        ("txnsegment.transaction:Transaction.commit", "acks=tuple(self._acks)", "acks=()"),
    ),
    mutant(
        "exception-commits",
        "2, 8.4",
        "An exception in the block leaves nothing.",
        ("txnsegment.spark_transaction:SparkTransaction.__exit__", "if error is None:", "if self is not None:"),
    ),
)
