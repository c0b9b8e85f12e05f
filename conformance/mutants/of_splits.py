"""Faults of splits and merges: seals, layouts, children, rows that are routed on (protocol.md section 5, Sealing)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="splitting")
_SEALED_LAYOUT = "metadata.rules.transitions:sealed_layout"
_REROUTED = "metadata.write.rerouting:rerouted"
_SPLITS = "tests/metadata/write/test_splits.py"
_SCALING = "tests/metadata/maintenance/test_scaling.py"

MUTANTS = (
    mutant(
        "one-segment-merged-twice",
        "8.13",
        "A segment is merged with one neighbour in a pass, not with both.",
        ("metadata.rules.scaling:_merges", "and taken.isdisjoint(ids)", ""),
        tests=("tests/metadata/maintenance/test_scaling.py",),
    ),
    mutant(
        "young-segments-count-as-idle",
        "8.13",
        "A segment that is too young to be measured is not taken for an idle one.",
        ("metadata.rules.scaling:_merges", "shares.get(i, 1.0)", "shares.get(i, 0.0)"),
        tests=("tests/metadata/maintenance/test_scaling.py",),
    ),
    mutant(
        "merge-of-strangers",
        "8.13",
        "Only neighbours are merged: the range of the child is just that of its parents.",
        ("metadata.rules.transitions:child_ranges", "left.end + 1 == right.start", "left.end < right.start"),
    ),
    mutant(
        "sealed-segment-is-split-again",
        "8.12, 8.13",
        "Only an active segment is split or merged: a seal is a segment's last word.",
        ("metadata.topics.topics:Topics._active", "if info.state is not SegmentState.ACTIVE:", "if False:"),
    ),
    mutant(
        "child-ids-are-used-again",
        "8.13",
        "The ids of segments are never used twice.",
        (_SEALED_LAYOUT, "max(layout.next_segment_id, *(child + 1 for child in children))", "layout.next_segment_id"),
    ),
    mutant(
        "epoch-stays",
        "8.13, A35",
        "Each split or merge raises the epoch, by which the seals of an older layout are known.",
        (_SEALED_LAYOUT, "epoch = layout.epoch + 1", "epoch = layout.epoch"),
    ),
    mutant(
        "layout-shows-another-seal",
        "8.12",
        "A sealed segment's `sealedAtLog` is the number of its seal: what was registered below it counts, what lies above is void.",
        (_SEALED_LAYOUT, '"sealed_at_log": number', '"sealed_at_log": number - 1'),
    ),
    mutant(
        "micro-batch-passes-a-shown-seal",
        "8.13",
        "A seal ends a micro-batch also once its segment is folded and only the layout shows it.",
        (
            "metadata.read.reading:Reading.seals",
            "s.sealed_at is not None and",
            "s.head is None and s.sealed_at is not None and",
        ),
    ),
    mutant(
        "void-holds-readers",
        "6, 8.9",
        "A registration above a segment's seal is void there, also while its transaction is OPEN.",
        ("metadata.read.transaction_buffer:TransactionBuffer._read", " and not _above(e.number, sealed.get(s))", ""),
        tests=(f"{_SPLITS}::test_what_lies_above_a_seal_holds_no_reader_up",),
    ),
    mutant(
        "one-segment-is-checked",
        "8.12",
        "The owner looks for a seal of each of its segments.",
        (
            "metadata.write.coordinator:Coordinator._sealed_below",
            "for segment in work.parts:",
            "for segment in list(work.parts)[:1]:",
        ),
    ),
    mutant(
        "rerouted-part-keeps-its-segment",
        "5, 8.12",
        "Rows of a sealed segment are registered under the child that takes its range.",
        (_REROUTED, "found.setdefault(heirs[0].segment, []).extend(staged)", "found.setdefault(segment, []).extend(staged)"),
    ),
    mutant(
        "first-child-takes-all",
        "8.13",
        "Rows of a split segment go to its children by their keys.",
        (_REROUTED, "elif key is None or len(heirs) == 1:", "elif heirs:"),
    ),
    mutant(
        "broken-off-seal-refuses-writers",
        "A24, 8.12",
        "A writer that meets a seal without a layout finishes it and goes on.",
        ("metadata.write.coordinator:Coordinator._routed_on", "topics.finish_seals()", "len(work.parts)"),
    ),
    mutant(
        "children-cursors-are-swept",
        "8.11",
        "The cursors of children, made before the layout shows them, are nobody's remains.",
        ("metadata.maintenance.remains:_left", "name.segment_id < layout.next_segment_id and ", ""),
        tests=("tests/metadata/cursors/test_pending_ack.py::test_a_sweep_spares_the_cursors_of_children_that_no_layout_shows_yet",),
    ),
    mutant(
        "stale-leader-acts",
        "8.13, A6",
        "What was decided by one layout is done to that layout or not at all: two may believe that they lead.",
        ("metadata.topics.topics:Topics._seal", "if epoch is not None and topic.layout.epoch != epoch:", "if False:"),
        tests=(f"{_SCALING}::test_a_split_decided_by_another_epoch_is_refused",),
    ),
    mutant(
        "everybody-leads",
        "3, A6",
        "Whose record it is, leads, and nobody else while its session lasts.",
        ("metadata.maintenance.leading:Leadership.leads", "Leader.of(record).token == self.token", "Leader.of(record).token"),
        tests=(f"{_SCALING}::test_only_the_leader_scales_and_the_next_one_when_it_ends",),
    ),
    mutant(
        "dead-leader-leads-on",
        "3, A4",
        "The leader's record goes with its session, so that another one takes over.",
        ("metadata.maintenance.leading:Leadership.leads", "ephemeral=True", "ephemeral=False"),
        tests=(f"{_SCALING}::test_only_the_leader_scales_and_the_next_one_when_it_ends",),
    ),
    mutant(
        "scaling-swings",
        "8.13",
        "What was just split is not merged at once: neighbours merge only well below the limit.",
        ("metadata.rules.scaling:_merges", "together <= MERGE_SHARE", "together <= 2"),
        tests=(f"{_SCALING}::test_neighbours_merge_below_half_of_the_limit_together_and_only_if_nothing_splits",),
    ),
    mutant(
        "folded-rows-are-no-load",
        "4",
        "The load of a segment is counted in the log and in the snapshots.",
        ("metadata.maintenance.autoscaling:published", "if segment.head is not None and", "if False and"),
        tests=(f"{_SCALING}::test_a_topic_under_load_is_split_and_an_idle_one_merged_again",),
    ),
)
