"""Faults in reading what others wrote: each lets bytes in that no reader may believe, or has no end (protocol.md section 4)."""

from __future__ import annotations

from conformance.mutants.planting import mutant

_JSON = ("tests/metadata/records/test_json_text.py",)
_FILES = ("tests/ledgers/test_hostile_files.py",)
_TEXT = ("tests/metadata/common/test_hostile_text.py",)
_AVRO = ("tests/ledgers/test_hostile_avro.py",)

MUTANTS = (
    mutant(
        "exponents-without-a-bound",
        "4, 8.5",
        "A number of a record has 64 digits at most.",
        ("ledgers.json_text:_decimal", "-MAX_DIGITS <= number.adjusted() < MAX_DIGITS", "True"),
        tests=_JSON,
    ),
    mutant(
        "nesting-without-a-bound",
        "4, 8.5",
        "JSON of a record has 200 levels at most.",
        ("ledgers.json_text:read_json", "    _check_depth(raw)\n", ""),
        tests=_JSON,
    ),
    mutant(
        "long-numbers-pass",
        "4, 8.5",
        "A whole number of a record has 64 bits at most.",
        ("ledgers.json_text:read_json", "_LONG in raw.translate(_DIGITS)", "False"),
        tests=_JSON,
    ),
    mutant(
        "columns-of-user-types",
        "4, 8.5",
        "Of columns in a record no type is read that makes Spark import a module.",
        ("ledgers.spark_json:columns_from_json", "    _check_type(found)\n", ""),
        tests=_JSON,
    ),
    mutant(
        "parts-that-no-file-can-be",
        "4, 8.5",
        "A part's rows are those of its entries.",
        ("ledgers.model:check", " or sum(part.entries) != part.rows", ""),
        tests=_JSON,
    ),
    mutant(
        "avro-not-looked-at-twice",
        "8.5",
        "Bytes that are no Avro of the schema are refused, never taken for other values.",
        ("ledgers.avro.rows:Codec.decode", "if not self._same(found, given):", "if False:"),
        tests=_AVRO,
    ),
    mutant(
        "keys-twice-in-a-map",
        "8.5",
        "A map of Avro has each key once.",
        ("ledgers.avro.strict:_key", "if key in keys:", "if False:"),
        tests=_AVRO,
    ),
    mutant(
        "twins-without-a-bound",
        "8.5",
        "A schema's columns are counted with those inside of columns, wherever a name stands.",
        ("ledgers.avro.parsing:_Parsing._measure", "if size > MAX_FIELDS:", "if False:"),
        tests=_AVRO,
    ),
    mutant(
        "heads-believed",
        "8.5",
        "A head with a right checksum is checked, too.",
        ("ledgers.snapshots:read_head", "        check_head(record)\n", ""),
        tests=_FILES,
    ),
    mutant(
        "blocks-believed",
        "8.5",
        "The columns of a block fit each other.",
        ("ledgers.snapshot_checks:_check_block", '    _check_entries(rows, record["entryCounts"], entries)\n', ""),
        tests=_FILES,
    ),
    mutant(
        "page-headers-of-any-depth",
        "8.5",
        "A page header has few structs in each other.",
        ("ledgers.page_headers:_struct", "if level > _LEVELS:", "if False:"),
        tests=_FILES,
    ),
    mutant(
        "names-with-escapes",
        "4",
        "A new topic's name has no control character and no mark of direction.",
        ("metadata.topics.topics:Topics.create", "    check_new(name)\n", ""),
        tests=_TEXT,
    ),
    mutant(
        "terminals-get-escapes",
        "4",
        "Errors, tables and logs show what a terminal would obey escaped.",
        ("ledgers.plain_text:shown", "return HARMFUL.sub(_kept_line if lines else _escaped, text)", "return text"),
        tests=_TEXT,
    ),
    mutant(
        "patterns-without-end",
        "4",
        "A pattern that could take for ever is refused.",
        ("metadata.records.patterns:compiled", "    _check(what, pattern)\n", ""),
        tests=_TEXT,
    ),
)
