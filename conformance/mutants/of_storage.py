"""Faults of compaction and retention (protocol.md sections 1, 6 and 7)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="compacting")
_TRIMMING = "tests/metadata/maintenance/test_trimming.py"
_TORN = "tests/metadata/maintenance/test_torn_trims.py"

MUTANTS = (
    mutant(
        "half-done-trim-shows-half-of-a-transaction",
        "6, 8.9",
        "A read from `earliest` leaves out what is left of a transaction of which another segment has lost its rows.",
        ("spark_txn_source.losses:hidden", "if numbers[s.name] > s.trimmed_to", "if False"),
        tests=(_TORN,),
        kind="compacting",
    ),
    mutant(
        "loss-is-silent",
        "A19, 6",
        "A read that needs trimmed rows is an error.",
        ("spark_txn_source.losses:check_trims", "if begin < through and", "if False and"),
        tests=(_TRIMMING,),
    ),
)
