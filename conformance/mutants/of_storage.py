"""Faults of compaction and retention (protocol.md sections 1, 6 and 7)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="compacting")
_COMPACTING = ("tests/protocol/test_compacting.py",)
_COMPACTED = ("tests/ledgers/test_compaction.py::test_rows_positions_and_order_stay",)
_TRIMMING = "tests/protocol/test_trimming.py"

MUTANTS = (
    mutant(
        "compacted-rows-off-by-one",
        "1, 8.5",
        "The record of a compacted part says where its rows begin in the new file.",
        ("ledgers.compaction:_moved", "row += part.rows", "row += part.rows - (row == 0)"),
        tests=_COMPACTED,
    ),
    mutant(
        "marks-off-by-one",
        "1, 8.5",
        "Of the rows of a compacted file it is known which position each one has.",
        ("ledgers.stretches:_of_columns", "np.cumsum(entry_rows) - entry_rows", "np.cumsum(entry_rows) - 1"),
        tests=_COMPACTED,
    ),
    mutant(
        "compaction-without-a-note",
        "7, 8.5",
        "What compaction replaced stays for the grace period.",
        ("metadata.compaction:change_snapshot", "retire(cluster, mark.snapshot)", "mark.snapshot"),
        tests=_COMPACTING,
    ),
    mutant(
        "compaction-forgets-the-guard",
        "A19, 7",
        "A snapshot is replaced, and nothing else in the watermark record: `trimmedTo` stays.",
        (
            "metadata.compaction:change_snapshot",
            '{"snapshot": path, **update(mark)}',
            '{"trimmed_to": None, "snapshot": path, **update(mark)}',
        ),
        tests=(_TRIMMING,),
    ),
    mutant(
        "notes-before-watermarks",
        "7, 8.5",
        "The orphan sweep looks for notes after it has read the watermarks: a note is older than its change.",
        ("metadata.orphans:sweep_orphans", "    protected.update(spared(storage, protected))", "    protected.update(early)"),
        ("metadata.orphans:sweep_orphans", "    protected = set(", "    early = spared(storage, ())\n    protected = set("),
        tests=_COMPACTING,
    ),
    mutant(
        "late-compaction-not-fenced",
        "5 Late commit, 7",
        "Before it takes an old compacted file the orphan sweep makes sure that nobody can name it any more.",
        ("metadata.orphans:sweep_orphans", "_fence(cluster, late)", "late"),
        tests=_COMPACTING,
    ),
    mutant(
        "late-compaction",
        "5 Late commit, 7",
        "A compaction that has taken longer than half the orphan age names nothing: its files may be gone.",
        ("metadata.compaction:Compactor._name", "time_ms(self.cluster.store) - began_ms", "0"),
        tests=_COMPACTING,
    ),
    mutant(
        "trim-without-a-guard",
        "A19, 7",
        "`trimmedTo` moves in the CAS that takes the rows away.",
        ("metadata.trimming:Trimmer._trim_segment", "update=update)", "update=lambda mark: {})"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "trim-past-a-subscription",
        "7",
        "Subscriptions hold retention back.",
        ("metadata.retention:is_done", "end_of(ledger_id, last_entry)", "(ledger_id, 0, 0)"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "trim-what-is-claimed",
        "7, 8.11",
        "What an open transaction acknowledges is delivered again if it aborts: it is still needed.",
        ("metadata.acks:first_left", "behind = done(cursor)", "behind = union(done(cursor), *cursor.claims.values())"),
        tests=(f"{_TRIMMING}::test_rows_that_an_open_transaction_claims_are_held_back",),
    ),
    mutant(
        "trim-half-of-a-transaction",
        "7, 8.9",
        "Nothing is trimmed that is not folded in every segment: a transaction goes from all of its segments with one trim.",
        ("metadata.trimming:Trimmer.trim", "through = min([through, *(number - 1 for number in unfolded)])", "through = through"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "loss-is-silent",
        "A19, 6",
        "A read that needs trimmed rows is an error.",
        ("spark_txn_source.plan:check_trims", "if begin < through and", "if False and"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "subscription-hears-nothing",
        "A19, 6",
        "A subscription whose rows were trimmed says so, wherever its next row lies.",
        ("spark_txn_source.plan:check_cursors", "if left:", "if False:"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "timestamp-behind-the-trim",
        "A19, 6",
        "A timestamp among trimmed rows is not taken for the first row that is kept.",
        ("metadata.segment_view:StoredSegment.published", "if after < self.trimmed_to <= through", "if False"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "drained-within-the-grace-period",
        "7, 8.12",
        "A sealed segment leaves the layout only once nobody can be on the way to it.",
        ("metadata.retention:is_drained", "info.sealed_at_ms + grace_ms < now_ms", "True"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "drained-before-it-was-heard",
        "A19, 7",
        "A segment stays in the layout while a subscription misses rows that were trimmed of it: its cursor there says so.",
        ("metadata.retention:is_drained", "mark.trimmed_to is None or", "True or"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "drained-without-a-guard",
        "A19, 7",
        "The topic keeps the highest `trimmedTo` of the segments that have left its layout.",
        (
            "metadata.retention:without_drained",
            '"trimmed_to": max(guards, key=lambda p: (p.ledger_id, p.entry_id), default=None),',
            "",
        ),
        tests=(_TRIMMING,),
    ),
)
