"""Faults of compaction and retention (protocol.md sections 1, 6 and 7)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="compacting")
_COMPACTING = ("tests/metadata/maintenance/test_compacting.py",)
_COMPACTED = ("tests/ledgers/test_compaction.py::test_rows_positions_and_order_stay",)
_TRIMMING = "tests/metadata/maintenance/test_trimming.py"
_ELAPSED = "tests/metadata/cluster/test_elapsed.py"
_TORN = "tests/metadata/maintenance/test_torn_trims.py"

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
        ("metadata.maintenance.compaction:change_snapshot", "retire(cluster, mark.snapshot)", "mark.snapshot"),
        tests=_COMPACTING,
    ),
    mutant(
        "compaction-forgets-the-guard",
        "A19, 7",
        "A snapshot is replaced, and nothing else in the watermark record: `trimmedTo` stays.",
        (
            "metadata.maintenance.compaction:change_snapshot",
            '{"snapshot": path, **update(mark)}',
            '{"trimmed_to": None, "snapshot": path, **update(mark)}',
        ),
        tests=(_TRIMMING,),
    ),
    mutant(
        "notes-before-watermarks",
        "7, 8.5",
        "The orphan sweep looks for notes after it has read the watermarks: a note is older than its change.",
        (
            "metadata.maintenance.orphans:sweep_orphans",
            "    protected.update(spared(cluster, protected, files.values(), now_ms, gone))",
            "    protected.update(early)",
        ),
        (
            "metadata.maintenance.orphans:sweep_orphans",
            "    protected = set(",
            "    early = spared(cluster, (), files.values(), now_ms, [])\n    protected = set(",
        ),
        tests=_COMPACTING,
    ),
    mutant(
        "late-compaction-not-fenced",
        "5 Late commit, 7",
        "Before it takes an old compacted file the orphan sweep makes sure that nobody can name it any more.",
        ("metadata.maintenance.orphans:sweep_orphans", "_fence(cluster, late)", "late"),
        tests=_COMPACTING,
    ),
    mutant(
        "late-compaction",
        "5 Late commit, 7",
        "A compaction that has taken longer than half the orphan age names nothing: its files may be gone.",
        ("metadata.maintenance.compaction:Compactor._name", "time_ms(self.cluster.store) - began_ms", "0"),
        tests=_COMPACTING,
    ),
    mutant(
        "trim-without-a-guard",
        "A19, 7",
        "`trimmedTo` moves in the CAS that takes the rows away.",
        ("metadata.maintenance.trimming:Trimmer._trim_segment", "update=update)", "update=lambda mark: {})"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "trim-past-a-subscription",
        "7",
        "Subscriptions hold retention back.",
        ("metadata.rules.retention:is_done", "end_of(ledger_id, last_entry)", "(ledger_id, 0, 0)"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "trim-what-is-claimed",
        "7, 8.11",
        "What an open transaction acknowledges is delivered again if it aborts: it is still needed.",
        ("metadata.rules.acks:first_left", "behind = done(cursor)", "behind = union(done(cursor), *cursor.claims.values())"),
        tests=(f"{_TRIMMING}::test_rows_that_an_open_transaction_claims_are_held_back",),
    ),
    mutant(
        "trim-half-of-a-transaction",
        "7, 8.9",
        "Nothing is trimmed that is not folded in every segment: a transaction goes from all of its segments with one trim.",
        (
            "metadata.maintenance.trimming:Trimmer.trim",
            "through = min([through, *(number - 1 for number in unfolded)])",
            "through = through",
        ),
        tests=(_TRIMMING,),
    ),
    mutant(
        "earlier-guard-forgotten",
        "A19, 7",
        "A topic's guard is the highest of all segments that ever left its layout, not of those that leave now.",
        ("metadata.rules.retention:without_drained", "[*drained.values(), layout]", "[*drained.values()]"),
        tests=(_TORN,),
    ),
    mutant(
        "age-by-the-last-stamp",
        "7",
        "A row is as old as the youngest of all before it: publish times may go back, a trim is from the head.",
        ("metadata.rules.retention:trim_to", "latest = max(latest, one.publish_ms)", "latest = one.publish_ms"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "thinned-looks-forget-their-lead",
        "7, 8.5",
        "A look that is not kept leaves its lead to the next: it bounds the ages of rows.",
        ("metadata.rules.elapsed:thinned", "min(look.lead_ms, last.lead_ms)", "look.lead_ms"),
        tests=(_ELAPSED,),
    ),
    mutant(
        "unprotected-since-the-earliest-note",
        "7, 8.5",
        "Of several notes of what is unprotected the latest time counts: since then all sweeps have seen it so.",
        ("metadata.maintenance.orphans:_seen", "max(note[name] for note in found)", "min(note[name] for note in found)"),
        tests=("tests/metadata/maintenance/test_orphans.py",),
    ),
    mutant(
        "age-by-the-store-s-clock",
        "7, 8.5",
        "Whether rows are old is not judged by the store's clock alone: it may leap.",
        ("metadata.maintenance.trimming:Trimmer._time", "if keep_ms is None:", "if True:"),
        tests=(_ELAPSED,),
    ),
    mutant(
        "age-by-the-clocks-of-now",
        "7, 8.5",
        "The smallest lead of the clocks within the limit counts, not that of now: a clock that has leapt shows it by its lead.",
        ("metadata.rules.elapsed:now_for", "for look in [*before[-1:], *within]", "for look in within[-1:]"),
        tests=(_ELAPSED,),
    ),
    mutant(
        "age-by-publish-times-alone",
        "7, 8.5",
        "What was not in the log at a look within the limit is not old, whatever its publish time says.",
        ("metadata.rules.elapsed:known_to", "within[0].number", "within[-1].number"),
        tests=(_ELAPSED,),
    ),
    mutant(
        "time-passes-by-a-clock-that-can-be-set",
        "7, 8.5",
        "How much time has passed is said by the monotonic clock besides the store's.",
        (
            "metadata.rules.elapsed:_since",
            "min(now.store_ms - mine.store_ms, now.monotonic_ms - mine.monotonic_ms)",
            "now.store_ms - mine.store_ms",
        ),
        tests=(_ELAPSED,),
    ),
    mutant(
        "time-of-a-new-machine-by-one-clock",
        "7, 8.5",
        "A machine that has not looked before goes by the slower of two clocks.",
        (
            "metadata.rules.elapsed:_passed",
            "min(now.store_ms - before.store_ms, now.wall_ms - before.wall_ms)",
            "now.store_ms - before.store_ms",
        ),
        tests=(_ELAPSED,),
    ),
    mutant(
        "orphans-by-the-store-s-clock",
        "7, 8.5",
        "The orphan sweep does not go by the store's clock alone: it may leap beyond the orphan age.",
        (
            "metadata.maintenance.orphans:sweep_orphans",
            "now_for(clocks, max(settings.orphan_age_ms, settings.grace_period_ms))",
            "decide(cluster.store, lambda view: view.now_ms())",
        ),
        tests=(_ELAPSED,),
    ),
    mutant(
        "nobody-looks-at-the-clocks-of-a-new-cluster",
        "7, 8.5",
        "The first look is made when the cluster is: a leap before the first sweep is seen, too.",
        ("metadata.cluster.cluster:open_cluster", "clock_looks.look(store, clock)", "pass"),
        tests=(_ELAPSED,),
    ),
    mutant(
        "trim-each-segment-by-its-own-subscriptions",
        "7, 8.9",
        "A row that a subscription needs in one segment holds back all segments of the topic.",
        (
            "metadata.maintenance.trimming:Trimmer._free_to",
            "through = segment.free_to(needed, through)",
            "return segment.free_to(needed, through)",
        ),
        tests=(_TORN,),
    ),
    mutant(
        "trim-held-back-by-a-cursor-and-not-by-a-row",
        "7, 8.14",
        "A segment of which everything is acknowledged holds no other segment back, however old its last row is.",
        (
            "metadata.read.segment_view:SegmentView.free_to",
            "through if first is None else",
            "needed.ledger_id - 1 if first is None else",
        ),
        tests=(_TORN,),
    ),
    mutant(
        "half-done-trim-shows-half-of-a-transaction",
        "6, 8.9",
        "A read from `earliest` leaves out what is left of a transaction of which another segment has lost its rows.",
        ("spark_txn_source.losses:hidden", "if numbers[s.name] > s.trimmed_to", "if False"),
        tests=(_TORN,),
        kind="compacting",
    ),
    mutant(
        "earliest-of-each-segment-its-own",
        "6, 8.9",
        "`earliest` is one number for all segments of a topic: the highest that was trimmed of any of them.",
        (
            "metadata.read.reading:Reading.whole_from",
            "found |= dict.fromkeys([name] if name in whole else [s.name for s in segments], highest)",
            "found |= {s.name: s.trimmed_to for s in segments}",
        ),
        tests=(_TORN,),
        kind="compacting",
    ),
    mutant(
        "segment-that-left-is-a-loss",
        "A19, 6",
        "What was trimmed before a stream began is no loss for it when the segment leaves the layout.",
        ("spark_txn_source.losses:check_trims", "else known.get(name, 0)", "else 0"),
        tests=(_TORN,),
    ),
    mutant(
        "subscription-begins-in-half-of-a-transaction",
        "7, 8.9",
        "A subscription from `earliest` begins behind what was trimmed of any segment of the topic.",
        (
            "metadata.topics.subscriptions:Subscriptions._behind",
            "max(own[w[0]], to_own(highest, shifts.get(w[0], 0)))",
            "own[w[0]]",
        ),
        tests=(_TORN,),
    ),
    mutant(
        "loss-is-silent",
        "A19, 6",
        "A read that needs trimmed rows is an error.",
        ("spark_txn_source.losses:check_trims", "if begin < through and", "if False and"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "subscription-hears-nothing",
        "A19, 6",
        "A subscription whose rows were trimmed says so, wherever its next row lies.",
        ("spark_txn_source.losses:check_cursors", "if left:", "if False:"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "timestamp-behind-the-trim",
        "A19, 6",
        "A timestamp among trimmed rows is not taken for the first row that is kept.",
        ("metadata.read.segment_view:StoredSegment.published", "if after < self.trimmed_to <= through", "if False"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "drained-within-the-grace-period",
        "7, 8.12",
        "A sealed segment leaves the layout only once nobody can be on the way to it.",
        ("metadata.rules.retention:is_drained", "info.sealed_at_ms + grace_ms < now_ms", "True"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "drained-before-it-was-heard",
        "A19, 7",
        "A segment stays in the layout while a subscription misses rows that were trimmed of it: its cursor there says so.",
        ("metadata.rules.retention:is_drained", "mark.trimmed_to is None or", "True or"),
        tests=(_TRIMMING,),
    ),
    mutant(
        "drained-without-a-guard",
        "A19, 7",
        "The topic keeps the highest `trimmedTo` of the segments that have left its layout.",
        (
            "metadata.rules.retention:without_drained",
            '"trimmed_to": max(guards, key=lambda p: (p.ledger_id, p.entry_id), default=None),',
            "",
        ),
        tests=(_TRIMMING,),
    ),
)
