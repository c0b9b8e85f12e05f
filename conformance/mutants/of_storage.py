"""Faults of compaction and retention (protocol.md sections 1, 6 and 7)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_COMPACTION = ("tests/protocol/test_compacting.py",)
_TRIMMING = ("tests/protocol/test_trimming.py",)

MUTANTS = (
    mutant(
        "compaction-without-a-note",
        "7, 8.5",
        "What compaction replaced stays for the grace period.",
        ("metadata.compaction:change_snapshot", "retire(cluster, mark.snapshot)", "mark.snapshot"),
        tests=_COMPACTION,
    ),
    mutant(
        "notes-before-watermarks",
        "7, 8.5",
        "The orphan sweep looks for notes after it has read the watermarks: a note is older than its change.",
        ("metadata.orphans:sweep_orphans", "    protected.update(spared(storage, protected))", "    protected.update(early)"),
        ("metadata.orphans:sweep_orphans", "    protected = decide", "    early = spared(storage, ())\n    protected = decide"),
        tests=_COMPACTION,
    ),
    mutant(
        "late-compaction-not-fenced",
        "5 Late commit, 7",
        "Before it takes an old compacted file the orphan sweep makes sure that nobody can name it any more.",
        ("metadata.orphans:sweep_orphans", "_fence(cluster, late)", "late"),
        tests=_COMPACTION,
    ),
    mutant(
        "trim-without-a-guard",
        "A19, 7",
        "`trimmedTo` moves in the CAS that takes the rows away.",
        ("metadata.trimming:Trimmer._trim_segment", "update=update)", "update=lambda mark: {})"),
        tests=_TRIMMING,
    ),
    mutant(
        "trim-past-a-subscription",
        "7",
        "Subscriptions hold retention back.",
        ("metadata.retention:held_back", "needed.ledger_id - 1", "needed.ledger_id"),
        tests=_TRIMMING,
    ),
    mutant(
        "loss-is-silent",
        "A19, 6",
        "A read that needs trimmed rows is an error.",
        ("spark_txn_source.plan:check_trims", "if begin < through:", "if False:"),
        tests=_TRIMMING,
    ),
)
