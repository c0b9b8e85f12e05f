"""Faults of how long a migrated topic is kept, and of what is left of it (docs/in_stream.md, Migration)."""

from __future__ import annotations

from functools import partial

from conformance.mutants import planting

mutant = partial(planting.mutant, kind="migrating")
_STREAMS = "tests/spark_txn_source/test_migrated_streams.py"

MUTANTS = (
    mutant(
        "patterns-end-at-the-seal",
        "8.9",
        "A pattern that matches the old name of a migrated topic alone covers what goes on from it.",
        (
            "spark_txn_source.topics:onward",
            "tuple(name for name in client.instream.migrator.matching(selection.compiled) if not selection.matches(name))",
            "()",
        ),
        tests=(f"{_STREAMS}::test_a_pattern_of_the_old_name_alone_goes_on_with_the_new_topic",),
    ),
)
