"""Faults of sweepers: timing out, settling, folding, forgetting, orphans (protocol.md section 7)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_FORGET = "metadata.maintenance.sweeper:Sweeper.forget"
_FOLD = "metadata.rules.transitions:fold"
_MAY_DROP = "metadata.rules.transitions:may_drop"
_CLEAN = "metadata.maintenance.folding:Folding._clean_behind"
_ORPHANS = "metadata.maintenance.orphans:sweep_orphans"
_LISTED = 'files = {f.path: f for f in storage.list("")}'
_TIME = """clocks = clock_looks.look(cluster.store, cluster.clock)
    now_ms = now_for(clocks, max(settings.orphan_age_ms, settings.grace_period_ms))"""

_ERRORS = "tests/txnsegment/test_sweeping_errors.py::"

MUTANTS = (
    mutant(
        "nobody-times-out",
        "A4, 8.10",
        "A transaction past its deadline is aborted by whoever meets it.",
        ("metadata.rules.transitions:expired", "return header.state is State.OPEN and", "return False and"),
    ),
    mutant(
        "settle-all-committed",
        "A7, 8.4",
        "What no header names is settled VOID: a replay shows it else.",
        ("metadata.rules.transitions:settled", "if verdict is Verdict.VISIBLE else Settled.VOID", ""),
    ),
    mutant(
        "settle-without-version",
        "7, A27",
        "A registration is settled by CAS: who saw less loses.",
        ("metadata.maintenance.sweeper:Sweeper._settle_entry", "after.to_bytes(), expect=entry.record)", "after.to_bytes())"),
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
        ("metadata.maintenance.folding:Folding._fold_segment", "expect=ABSENT if mark is None else mark", "expect=None"),
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
        ("metadata.maintenance.folding:Folding.collect_aborted", "AbortedTxn.of(record).max_ledger_id <= through", "through >= 0"),
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
        ("metadata.maintenance.folding:Folding._forget_events", "for path in view.keys(events.range())]", "for path in ()]"),
    ),
    mutant(
        "ops-are-kept",
        "A13, 8.14",
        "Write ops are deleted once their transaction is settled.",
        ("metadata.maintenance.sweeper:Sweeper._delete_ops", "in_groups(records)", "in_groups(records[:0])"),
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
        ("metadata.maintenance.orphans:named_files", "yield from snapshot_changes.listed(cluster.storage, head)", "yield from ()"),
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
    mutant(
        "damaged-note-is-left-out",
        "issue 13, 18",
        "What a damaged note has said of unprotected files is unknown: they are seen for the first time.",
        ("metadata.maintenance.orphans:_seen", "if damaged:", "if False:"),
        tests=(f"{_ERRORS}test_a_file_is_not_deleted_by_the_other_note_while_one_is_damaged",),
    ),
    mutant(
        "damaged-note-spares-nothing",
        "issue 13, 18",
        "A damaged note of a replaced snapshot spares all parts until the grace period has passed.",
        ("metadata.maintenance.retired:spared", 'found += (file.path for file in files if file.path.endswith(".parquet"))', "pass"),
        tests=(f"{_ERRORS}test_a_part_is_not_deleted_while_a_damaged_note_may_spare_it",),
    ),
    mutant(
        "foreign-errors-end-the-sweeper",
        "issue 13, 18",
        "An error that is none of ours ends neither a sweep nor the daemon.",
        ("metadata.common.failures:contained", "except Exception as error:", "except TxnSegmentError as error:"),
        tests=(f"{_ERRORS}test_the_daemon_goes_on_past_an_error_of_another_kind_and_retries",),
    ),
    mutant(
        "damaged-staging-manifest-names-nothing",
        "issue 13, 18",
        "A damaged staging manifest spares all parts until the orphan age has passed.",
        ("metadata.write.staging_manifests:protected", 'yield from (path for path in files if path.endswith(".parquet"))', "pass"),
        tests=(f"{_ERRORS}test_a_damaged_staging_manifest_spares_all_parts_and_holds_up_no_other_delete",),
    ),
    mutant(
        "committers-do-not-look-at-the-clocks",
        "7, Time",
        "Who sweeps while rows are published, a committer too, notes a clock that is behind.",
        ("metadata.maintenance.sweeper:Sweeper._steps", 'self._step("look at the clocks", self._look, failed)', "pass"),
        tests=(
            "tests/metadata/cluster/test_elapsed.py::test_a_row_of_a_persistent_topic_that_was_committed_while_the_clock_was_behind_stays",
        ),
    ),
    mutant(
        "note-before-deleting-has-content",
        "issue 13, 23",
        "What a sweep writes before it deletes is empty: a full volume has room for a name.",
        (
            "metadata.maintenance.deleting:Deleter._check",
            'publish(self._note, b"")',
            "publish(self._note, self._cluster.owner.encode())",
        ),
        tests=("tests/metadata/store/test_full_disk.py::test_a_full_volume_of_ledgers_is_swept",),
    ),
    mutant(
        "all-files-listed-at-each-pass-that-fails",
        "issue 13, 18",
        "A pass that failed is no reason to list all files at the next one.",
        ("txnsegment.sweeping:sweep_until", "min(orphans_every, AGAIN_AFTER) if failed", "0 if failed"),
        tests=(f"{_ERRORS}test_the_daemon_does_not_list_all_files_at_each_pass_because_one_topic_fails",),
    ),
    mutant(
        "deleted-while-swept-is-a-failure",
        "7",
        "A persistent topic that is deleted while it is swept is a race, and no failure.",
        ("metadata.instream.sweeping:InStreamSweeper.sweep", "report.failed, races=RACES", "report.failed"),
        tests=("tests/metadata/instream/test_instream_life.py::test_a_topic_that_is_deleted_while_it_is_swept_is_no_failure",),
    ),
)
