"""Faults of schemas: which versions count, which fit each other, by which one bytes are read."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_ROWS = "tests/ledgers/test_avro.py"
_VALUES = "tests/spark_txn_source/test_values.py"

MUTANTS = (
    mutant(
        "schemas-are-not-judged",
        "4",
        "A schema that the compatibility mode refuses is not registered.",
        ("metadata.topics.schemas:TopicSchemas.register", "if last is not None:", "if False:"),
    ),
    mutant(
        "growth-is-not-judged",
        "4",
        "Once a mode is set, it judges the versions that writes make, too.",
        ("metadata.topics.schemas:TopicSchemas._grown", "self._check(topic, mode, new)", "str(mode)"),
    ),
    mutant(
        "last-version-alone-is-judged",
        "4",
        "A transitive mode judges by every version, not by the last one alone.",
        ("ledgers.avro.compatibility:check", "earlier if mode.transitive else earlier[:1]", "earlier[:1]"),
    ),
    mutant(
        "judged-by-what-was-there",
        "4",
        "Of two schemas registered at once the second one is judged by the first.",
        ("metadata.topics.schemas:TopicSchemas._change", "expect=topic.record", "expect=None"),
    ),
    mutant(
        "values-by-another-version",
        "4",
        "Values are read by the schema that they were written in.",
        ("spark_txn_sink.plan:_plan_values", "else schemas.version(topic, options.schema_version)", "else schemas.latest(topic)"),
        tests=(f"{_VALUES}::test_values_are_read_by_the_version_they_were_written_in",),
    ),
    mutant(
        "bytes-after-the-end",
        "4",
        "A value is read to its end, or refused.",
        ("ledgers.avro.rows:Codec._records", "stream.tell() != end", "stream.tell() < end - 1"),
        tests=(f"{_ROWS}::test_bad_bytes_name_their_row",),
    ),
    mutant(
        "old-rows-without-defaults",
        "4",
        "Rows from before a field have its default.",
        ("spark_txn_source.tasks:_read", "None if values is None else values.filled", "None"),
        tests=(f"{_VALUES}::test_rows_from_before_a_field_have_its_default",),
    ),
)
