"""Faults of sweepers: timing out, settling, folding, forgetting, orphans (protocol.md section 7)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_FORGET = "metadata.sweeper:Sweeper.forget"
_FOLD = "metadata.transitions:fold"
_MAY_DROP = "metadata.transitions:may_drop"
_CLEAN = "metadata.folding:Folding._clean_behind"
_ORPHANS = "metadata.orphans:sweep_orphans"
_LISTED = 'files = {f.path: f for f in storage.list("")}'
_TIME = "now_ms = time_ms(cluster.store)"

MUTANTS = (
    mutant(
        "nobody-times-out",
        "A4, 8.10",
        "A transaction past its deadline is aborted by whoever meets it.",
        ("metadata.transitions:expired", "return header.state is State.OPEN and", "return False and"),
    ),
    mutant(
        "settle-all-committed",
        "A7, 8.4",
        "What no header names is settled VOID: a replay shows it else.",
        ("metadata.transitions:settled", "if verdict is Verdict.VISIBLE else Settled.VOID", ""),
    ),
    mutant(
        "settle-without-version",
        "7, A27",
        "A registration is settled by CAS: who saw less loses.",
        ("metadata.sweeper:Sweeper._settle_entry", "after.to_bytes(), expect=entry.record)", "after.to_bytes())"),
    ),
    mutant(
        "fold-void",
        "A7, 8.4",
        "A VOID registration does not enter a snapshot.",
        (_FOLD, "registration.state is not Settled.VOID and ", ""),
    ),
    mutant(
        "fold-stops",
        "model fold-stops, 8.5",
        "Folding never passes an unsettled registration.",
        (_FOLD, "break", "continue"),
    ),
    mutant(
        "fold-beyond-the-seal",
        "8.12",
        "What lies above a segment's seal does not enter its snapshot.",
        (_FOLD, "(sealed is None or number < sealed)", "True"),
    ),
    mutant(
        "watermark-without-cas",
        "A5, 8.6",
        "The watermark moves by CAS and never back.",
        ("metadata.folding:Folding._fold_segment", "expect=ABSENT if mark is None else mark", "expect=None"),
    ),
    mutant(
        "keep-tail",
        "model keep-tail, 8.6",
        "The newest record of the log stays, so that the end of a listing bounds the cut.",
        (_MAY_DROP, "number >= end_of_log or ", ""),
    ),
    mutant(
        "drop-before-folding",
        "7, 8.5",
        "A registration leaves the log once it is folded in all its segments, not in one.",
        (_MAY_DROP, "return all(", "return any("),
    ),
    mutant(
        "seal-dropped-before-shown",
        "5, 8.12",
        "A seal stays in the log until the layout shows it.",
        (_MAY_DROP, "(registration.seal is not None and not seal_shown)", "False"),
    ),
    mutant(
        "aborted-record-pruned-early",
        "A11",
        "An aborted record stays until the watermark has passed it.",
        ("metadata.folding:Folding.collect_aborted", "AbortedTxn.of(record).max_ledger_id <= through", "through >= 0"),
    ),
    mutant(
        "aborted-range-one-too-wide",
        "an index range one too wide, A14",
        "Folding cleans the aborted records up to its watermark, and none above it.",
        (
            _CLEAN,
            "paths.aborted_position(segment, through, 10**20 - 1)",
            "paths.aborted_position(segment, through + 1, 10**20 - 1)",
        ),
    ),
    mutant(
        "events-are-kept",
        "A13, 8.14",
        "Events are deleted once the watermark has passed.",
        ("metadata.folding:Folding._forget_events", "for path in view.keys(events.range())]", "for path in ()]"),
    ),
    mutant(
        "ops-are-kept",
        "A13, 8.14",
        "Write ops are deleted once their transaction is settled.",
        ("metadata.sweeper:Sweeper._delete_ops", "in_groups(records)", "in_groups(records[:0])"),
    ),
    mutant(
        "settle-before-forget",
        "model settle-before-forget, A10",
        "A header is forgotten only after its registration is settled.",
        (_FORGET, "txn in waiting or ", ""),
    ),
    mutant(
        "raise-before-forget",
        "model raise-before-forget, 8.8",
        "lastCommitted is raised before a committed header is deleted.",
        (_FORGET, "self._release_application(view, txn, header) and ", ""),
    ),
    mutant(
        "raise-after-forget",
        "the application record raised after the header is forgotten, 8.8",
        "lastCommitted is raised before the header is deleted, not after: in between a predecessor looks aborted.",
        (
            _FORGET,
            "self._release_application(view, txn, header) and written(self.cluster.store, Delete(record.key, expect=record))",
            "written(self.cluster.store, Delete(record.key, expect=record)) and self._release_application(view, txn, header)",
        ),
    ),
    mutant(
        "headers-are-kept",
        "8.14",
        "Headers are forgotten after their retention.",
        (_FORGET, "found[:limit]", "found[:0]"),
    ),
    mutant(
        "files-listed-last",
        "7, 8.5",
        "The orphan sweep lists the files and takes the time first, then looks for what protects them.",
        (_ORPHANS, f"    {_LISTED}\n    {_TIME}\n", ""),
        (_ORPHANS, "    late = {", f"    {_LISTED}\n    {_TIME}\n    late = {{"),
    ),
    mutant(
        "folded-parts-unprotected",
        "7, 8.5",
        "What a snapshot lists is protected from the orphan sweep.",
        ("metadata.orphans:named_files", "yield from snapshot_changes.listed(cluster.storage, head)", "yield from ()"),
    ),
    mutant(
        "orphan-age-in-the-wrong-unit",
        "A12, time in the wrong unit, 8.5",
        "The orphan age is in milliseconds.",
        (
            _ORPHANS,
            "expired = file.mtime_ms + settings.orphan_age_ms < now_ms",
            "expired = file.mtime_ms + settings.orphan_age_ms // 1000 < now_ms",
        ),
    ),
)
