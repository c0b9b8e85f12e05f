"""JSON from outside: any text is decoded or refused, in bounded time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgers.json_text import MAX_BYTES, MAX_DEPTH, read_json
from ledgers.spark_json import columns_from_json


def test_nesting_up_to_the_bound_is_read_and_one_level_more_is_not() -> None:
    assert read_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(ValueError, match="levels"):
        read_json("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))


def test_brackets_in_texts_are_no_nesting() -> None:
    value = ["[[{" * 200, '"[{\\', {"]": "}"}] * 200
    assert read_json(json.dumps(value)) == value


def test_an_oversized_text_is_refused_before_parsing() -> None:
    with pytest.raises(ValueError, match="the limit is"):
        read_json(b" " * (MAX_BYTES + 1))


def test_the_limit_counts_bytes_for_bytes_and_for_text() -> None:
    text = '"' + "\u20ac" * 10 + '"'
    assert read_json(text, most=32) == read_json(text.encode(), most=32) == "\u20ac" * 10
    for one in (text, text.encode()):
        with pytest.raises(ValueError, match="a JSON text of 32 bytes; the limit is 31"):
            read_json(one, most=31)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner),
)


@settings(max_examples=50)
@given(VALUES, st.booleans())
def test_text_written_by_json_is_read_unchanged(value: object, ascii_only: bool) -> None:
    assert read_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "udt", "class": None, "pyClass": "antigravity.X", "sqlType": "string"},
        {"type": "udt", "pyClass": "pyspark.sql.types.X", "serializedClass": "gASVBQAAAAAAAACMAWGULg=="},
        {"type": "array"},
        {"type": "struct", "fields": [7]},
        {"type": "struct", "fields": []},
        "decimal(99,98)",
        "interval month to year",
        "nonsense",
        None,
    ],
)
def test_columns_of_unknown_types_are_refused_and_run_no_code(kind: object) -> None:
    text = json.dumps({"type": "struct", "fields": [{"name": "x", "type": kind, "nullable": True, "metadata": {}}]})
    with pytest.raises(ValueError):
        columns_from_json(text)


@pytest.mark.parametrize("text", ["[]", "7", '"string"', '{"type":"array","elementType":"string"}', "[" * 10**6, "{}"])
def test_a_type_other_than_a_struct_is_refused_as_columns(text: str) -> None:
    with pytest.raises(ValueError):
        columns_from_json(text)
